#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ranks say when something happens to one of them, to their host or to the cable:
faults_test.py PROGRAMS BACKEND

Two hosts with two ranks each, started by hand: rank 0 serves the store, and no launcher ends
anybody. The hosts are network namespaces, joined by a cable that the test lays. Exits with 77 where
it may not. The times are printed; what bounds them here is for busy machines.
"""
import os
import signal
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS, BACKEND = None, None
RANKS = 4
DIED_BY = 1.0  # seconds until every rank names a rank that was killed
CUT_BY = 5.0   # and a host that is cut off


class Faults(test_bed.TwoHosts):
    def job(self, what):
        """Starts it, and returns when the group stands."""
        self.ranks = [
            self.start([*self.namespaces[rank // 2].enter, PROGRAMS / "hosts-rank", self.folder,
                        what],
                       RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank % 2),
                       LOCAL_WORLD_SIZE="2", MASTER_ADDR=self.ADDRESSES[0], MASTER_PORT="29500",
                       C10D_TOKEN_FILE=str(self.token), C10D_BACKEND=BACKEND,
                       C10D_TIMEOUT="60")
            for rank in range(RANKS)]
        self.pids = [int(self.await_text(f"ready-{rank}")) for rank in range(RANKS)]

    def await_text(self, name):
        end = time.monotonic() + test_bed.DEADLINE
        path = self.folder / name
        while not path.exists():
            over = [rank for rank in self.ranks if rank.process.poll() is not None]
            if time.monotonic() > end or len(over) == RANKS:
                for rank in self.ranks:
                    rank.kill()
                self.fail(f"no {name}: {[rank.err[-2000:] for rank in self.ranks]}")
            time.sleep(0.005)
        return path.read_text()

    def failures_after(self, happens, ranks):
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
        print(f"{self.id().rpartition('.')[2]}: named after {times} ms")
        return failures

    def expect_death(self, what, victim):
        self.job(what)
        failures = self.failures_after(lambda: os.kill(self.pids[victim], signal.SIGKILL),
                                       [rank for rank in range(RANKS) if rank != victim])
        for code, about, text, seconds in failures.values():
            self.assertEqual((code, about), ("peer_died", victim), text)
            self.assertIn(f"rank {victim}", text)
            self.assertLess(seconds, DIED_BY, text)

    def test_a_rank_that_is_killed_in_a_small_op(self):
        self.expect_death("small", 3)

    def test_a_rank_that_is_killed_in_a_large_op(self):
        self.expect_death("large", 1)

    def test_a_rank_that_is_killed_between_ops(self):
        self.expect_death("idle", 3)

    def test_the_rank_that_serves_the_store_is_killed_in_a_small_op(self):
        self.expect_death("small", 0)

    def test_the_rank_that_serves_the_store_is_killed_between_ops(self):
        self.expect_death("idle", 0)

    def expect_cut(self, what):
        self.job(what)
        failures = self.failures_after(self.cut_the_cable, range(RANKS))
        for rank, (code, about, text, seconds) in failures.items():
            self.assertEqual(code, "peer_died", text)
            self.assertEqual(about // 2, 1 - rank // 2, text)
            self.assertIn(f"no answer from host {('second', 'first')[rank // 2]}", text)
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
        for rank in self.ranks:
            self.assertEqual(rank.end(), 0, rank.err)

    def test_a_rank_that_is_stopped_in_a_small_op_breaks_nothing(self):
        self.expect_patience("small")

    def test_a_rank_that_is_stopped_in_a_large_op_breaks_nothing(self):
        self.expect_patience("large")

    def test_another_call_on_the_other_host(self):
        self.job("mismatch")
        for code, _, text, _ in self.failures_after(lambda: None, range(RANKS)).values():
            self.assertEqual(code, "mismatch", text)
            for count in (4, 5):
                self.assertIn(f"x {count}", text)

    def test_ops_go_on_without_rank_0_and_its_store(self):
        self.job("without_rank_0")
        for rank in self.ranks:
            self.assertEqual(rank.end(), 0, rank.err)


if __name__ == "__main__":
    PROGRAMS, BACKEND = Path(sys.argv[1]).resolve(), sys.argv[2]
    test_bed.run(Faults)
