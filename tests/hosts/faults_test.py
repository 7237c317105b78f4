#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ranks say when something happens to one of them, to their host or to the cable:
faults_test.py PROGRAMS BACKEND

Two hosts with one rank or two each, or three hosts, started by hand: rank 0 serves the store, and
no launcher ends anybody. The hosts are network namespaces, joined by cables that the test lays.
Exits with 77 where it may not. The times are printed; what bounds them here is for busy machines.
"""
import os
import re
import signal
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS, BACKEND = None, None
# Seconds until every rank names a rank that was killed. Its connections end when its memory is
# gone, and a sanitizer has much more of that.
DIED_BY = 2.0 if os.environ.get("SANITIZED") else 1.0
CUT_BY = 6.0   # and a host that is cut off


class Job(test_bed.TwoHosts):
    """Of as many ranks on each host."""
    PER_HOST = 2

    def setUp(self):
        super().setUp()
        self.size = self.PER_HOST * len(self.ADDRESSES)
        self.ranks = []

    def host_of(self, rank):
        return rank // self.PER_HOST

    def job(self, what, resident=None):
        """Starts it, and returns when the group stands. `resident`: MiB, by rank."""
        (self.folder / "over").touch()
        for rank in self.ranks:  # of the job before
            rank.end()
        for left in [self.folder / "over", *self.folder.glob("*-*")]:
            left.unlink()
        self.ranks = [
            self.start([*self.namespaces[self.host_of(rank)].enter, PROGRAMS / "hosts-rank",
                        self.folder, what, (resident or {}).get(rank, 0)],
                       RANK=str(rank), WORLD_SIZE=str(self.size),
                       LOCAL_RANK=str(rank % self.PER_HOST), LOCAL_WORLD_SIZE=str(self.PER_HOST),
                       MASTER_ADDR=self.ADDRESSES[0], MASTER_PORT="29500",
                       C10D_TOKEN_FILE=str(self.token), C10D_BACKEND=BACKEND,
                       C10D_TIMEOUT="60", C10D_NATIVE_HOSTS_PLAN="overlap")
            for rank in range(self.size)]
        self.pids = [int(self.await_text(f"ready-{rank}")) for rank in range(self.size)]

    def await_text(self, name):
        end = time.monotonic() + test_bed.DEADLINE
        path = self.folder / name
        while True:
            over = [rank for rank in self.ranks if rank.process.poll() is not None]
            if path.exists():
                return path.read_text()
            if time.monotonic() > end or len(over) == self.size:
                for rank in self.ranks:
                    rank.kill()
                self.fail(f"no {name}: {[rank.err[-2000:] for rank in self.ranks]}")
            time.sleep(0.005)

    def failures_after(self, happens, ranks, about_it=""):
        """What each rank says after happens(), and after how many seconds."""
        start = time.time_ns()
        happens()
        failures = {}
        for rank in ranks:
            said = self.await_text(f"said-{rank}")
            self.assertNotEqual(said, "ok")
            when, code, about, text = said.split(" ", 3)
            failures[rank] = (code, int(about), text, (int(when) - start) / 1e9)
        times = ", ".join(f"{failure[3] * 1e3:.0f}" for failure in failures.values())
        print(f"{self.id().rpartition('.')[2]}{about_it}: named after {times} ms")
        return failures

    def expect_death(self, what, *victims, resident=0, by=DIED_BY):
        """All others name one of those who are killed, which have so many MiB of memory."""
        self.job(what, dict.fromkeys(victims, resident))
        failures = self.failures_after(
            lambda: [os.kill(self.pids[victim], signal.SIGKILL) for victim in victims],
            [rank for rank in range(self.size) if rank not in victims], f", {what}")
        named = {about for _, about, _, _ in failures.values()}
        for code, about, text, seconds in failures.values():
            self.assertEqual(code, "peer_died", text)
            self.assertIn(about, victims, text)
            if len(victims) == 1:  # else a store that is slow may not decide who was first
                self.assertEqual(len(named), 1, failures)
            self.assertIn(f"rank {about} (host {self.NAMES[self.host_of(about)]}, "
                          f"pid {self.pids[about]})", text)
            self.assertLess(seconds, by, text)

    def expect_another_call(self):
        """Of rank 2; all others make one call."""
        for what, calls in (("op", ("all_reduce(sum, i64 x 4)", "broadcast(i64 x 4, root 0)")),
                            ("dtype", ("all_reduce(sum, i64 x 4)", "all_reduce(sum, f64 x 4)")),
                            ("count", ("all_reduce(sum, i64 x 4)", "all_reduce(sum, i64 x 5)")),
                            ("root", ("broadcast(i64 x 4, root 0)",
                                      "broadcast(i64 x 4, root 1)"))):
            with self.subTest(what):
                self.job(f"other {what}")
                failures = self.failures_after(lambda: None, range(self.size), f", {what}")
                for code, about, text, _ in failures.values():
                    self.assertEqual((code, about), ("mismatch", 2), text)
                    for call in calls:
                        self.assertIn(call, text)


class Faults(Job):
    def test_a_rank_that_is_killed_in_a_small_op(self):
        self.expect_death("small", 3)

    def test_a_rank_that_is_killed_in_a_large_op(self):
        self.expect_death("large", 1)

    def test_a_rank_that_is_killed_between_ops(self):
        self.expect_death("idle", 3)

    def test_a_rank_of_each_host_is_killed(self):
        for what in ("small", "large", "idle"):
            with self.subTest(what):
                self.expect_death(what, 1, 2)

    def test_the_rank_that_serves_the_store_is_killed_in_a_small_op(self):
        self.expect_death("small", 0)

    def test_the_rank_that_serves_the_store_is_killed_between_ops(self):
        self.expect_death("idle", 0)

    def expect_cut(self, what):
        self.job(what)
        failures = self.failures_after(self.cut_the_cable, range(self.size))
        for rank, (code, about, text, seconds) in failures.items():
            self.assertEqual(code, "peer_died", text)
            self.assertEqual(self.host_of(about), 1 - self.host_of(rank), text)
            self.assertIn(f"no answer from host {('second', 'first')[self.host_of(rank)]}", text)
            self.assertLess(seconds, CUT_BY, text)

    def test_the_cable_is_cut_in_a_small_op(self):
        self.expect_cut("small")

    def test_the_cable_is_cut_between_ops(self):
        self.expect_cut("idle")

    def expect_patience(self, what):
        self.job(what)
        os.kill(self.pids[2], signal.SIGSTOP)
        time.sleep(5)
        os.kill(self.pids[2], signal.SIGCONT)
        (self.folder / "over").touch()
        for number, rank in enumerate(self.ranks):
            self.assertEqual(rank.end(), 0, rank.err)
            named = re.findall(r"#\d+ runs for [12] s; .*\brank 2 \(host second,", rank.err)
            # A broadcast may let a rank go on to the next op.
            self.assertIn(len(named), (0,) if number == 2 else (1, 2), rank.err)

    def test_a_rank_that_is_stopped_in_a_small_op_breaks_nothing(self):
        self.expect_patience("small")

    def test_a_rank_that_is_stopped_in_a_large_op_breaks_nothing(self):
        self.expect_patience("large")

    def test_another_call_on_the_other_host(self):
        self.job("mismatch")
        for code, _, text, _ in self.failures_after(lambda: None, range(self.size)).values():
            self.assertEqual(code, "mismatch", text)
            for count in (4, 5):
                self.assertIn(f"x {count}", text)

    def test_the_rank_that_makes_another_call_than_the_others_is_named(self):
        self.expect_another_call()

    def test_ops_go_on_without_rank_0_and_its_store(self):
        self.job("without_rank_0")
        for rank in self.ranks:
            self.assertEqual(rank.end(), 0, rank.err)


class OneRankEach(Job):
    """Nobody is beside a rank, to see its end at once."""
    PER_HOST = 1

    def test_a_rank_that_is_killed(self):
        for what, victim in (("small", 1), ("large", 1), ("idle", 1), ("idle", 0)):
            with self.subTest(what):
                self.expect_death(what, victim, resident=50)

    def test_a_rank_with_much_memory_that_is_killed(self):
        """Its connections end when the system has taken its memory back."""
        resident = 1024 if os.environ.get("SANITIZED") else 4096
        free = int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[1]) >> 10
        if free < 2 * resident:
            self.skipTest(f"{resident} MiB are too much of {free}")
        self.expect_death("idle", 1, resident=resident, by=3 * DIED_BY)


class ThreeHosts(Job):
    """Something happens to the second of them."""
    ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
    VICTIMS = (2, 3)

    def test_a_rank_that_is_killed(self):
        for what in ("small", "large", "idle", "forming", "ending"):
            with self.subTest(what):
                self.expect_death(what, 3)

    def test_all_ranks_of_a_host_that_are_killed(self):
        for what in ("small", "large", "idle", "forming", "ending"):
            with self.subTest(what):
                self.expect_death(what, *self.VICTIMS)

    def test_the_launcher_of_a_host_that_is_killed(self):
        """Takes its ranks along. Of the others, those say why who come to it before they end."""
        run = self.c10d_run(PROGRAMS, self.hosts(2, 2, 2), PROGRAMS / "hosts-rank", self.folder,
                            "small")
        self.ranks = [run]
        self.size = 1
        pids = [int(self.await_text(f"ready-{rank}")) for rank in range(6)]
        status = Path(f"/proc/{pids[self.VICTIMS[0]]}/status").read_text()
        start = time.time_ns()
        os.kill(int(re.search(r"^PPid:\s*(\d+)$", status, re.M)[1]), signal.SIGKILL)
        self.assertNotEqual(run.end(), 0)
        ends = [path.read_text().split(" ", 3) for path in self.folder.glob("said-?")]
        print(f"{self.id().rpartition('.')[2]}: named after "
              f"{', '.join(f'{(int(end[0]) - start) / 1e6:.0f}' for end in ends)} ms, over after "
              f"{(time.time_ns() - start) / 1e6:.0f}")
        self.assertTrue(ends, run.err)
        for when, code, about, text in ends:
            self.assertEqual(code, "peer_died", text)
            self.assertIn(int(about), self.VICTIMS, text)
            self.assertLess((int(when) - start) / 1e9, DIED_BY, text)
        self.assertEqual([pid for pid in pids if Path(f"/proc/{pid}").exists()], [])

    def test_a_host_that_is_cut_off(self):
        for what, *ways in (("small", "out", "in"), ("large", "out"), ("large", "in"),
                            ("idle", "out"), ("forming", "out", "in"), ("ending", "out", "in")):
            with self.subTest(what, ways=ways):
                self.expect_cut(what, ways)

    def expect_cut(self, what, ways):
        """Both sides name a host of the other one, and what is left of a group says one cause. Who
        makes a group may miss the store first."""
        self.job(what)
        failures = self.failures_after(lambda: self.swallow("second", ways), range(self.size),
                                       f", {what}, {' and '.join(ways)}")
        self.let_through("second", ways)
        for rank, (code, about, text, seconds) in failures.items():
            self.assertLess(seconds, CUT_BY, text)
            if code == "store_lost":  # which is on the first host
                self.assertEqual((what, rank in self.VICTIMS), ("forming", True), text)
                self.assertIn(f"store at {self.ADDRESSES[0]}", text)
                continue
            self.assertEqual(code, "peer_died", text)
            self.assertEqual(about in self.VICTIMS, rank not in self.VICTIMS, text)
            self.assertIn("no answer from host ", text)
        causes = {}  # of a group, and of one that is made in it
        for rank, (_, about, text, _) in failures.items():
            if rank not in self.VICTIMS:
                causes.setdefault(re.search(r'of group "(.*?)"', text)[1], set()).add(about)
        self.assertEqual({len(named) for named in causes.values()}, {1}, failures)

    def test_the_rank_that_makes_another_call_than_the_others_is_named(self):
        self.expect_another_call()


if __name__ == "__main__":
    PROGRAMS, BACKEND = Path(sys.argv[1]).resolve(), sys.argv[2]
    test_bed.run(Faults, OneRankEach, ThreeHosts)
