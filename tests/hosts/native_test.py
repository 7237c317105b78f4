#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What only native promises over hosts: native_test.py PROGRAMS

The hosts are network namespaces, joined by a cable that the test lays. Exits with 77 where it may
not.
"""
import os
import re
import signal
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS = None
MUCH = 16 << 20  # bytes of hosts-rank's large ops
CUT_BY = 8.0     # seconds until a network that is cut is named, on a busy machine


class Native(test_bed.RanksByHand):
    def test_a_reduction_sends_each_byte_once(self):
        # 2 (H - 1) / H of the bytes, out of each of H = 2 hosts.
        for per_host in ((1, 1), (2, 2), (1, 3)):
            [sent] = self.bytes_of_a_reduction(PROGRAMS, *per_host)
            print(f"{per_host}: {sent / MUCH:.4f} of the bytes")
            self.assertLess(sent, 1.03 * MUCH)

    def test_one_direction_may_be_slow(self):
        self.namespaces[1].do("tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate",
                              "20mbit", "burst", "32kb", "limit", "60kb")
        self.end_well(self.start_ranks(PROGRAMS, "slow", 1, 1))

    def test_a_rank_may_be_late_while_much_is_sent_to_it(self):
        self.end_well(self.start_ranks(PROGRAMS, "late", 1, 1))

    def test_a_congestion_control_that_is_not_there_is_named(self):
        for rank in self.start_ranks(PROGRAMS, "once", 1, 1, C10D_NET_CONGESTION="nonsense"):
            self.assertEqual(rank.end(), 1)
            self.assertIn("C10D_NET_CONGESTION=nonsense", rank.err)
        self.end_well(self.start_ranks(PROGRAMS, "once", 1, 1, C10D_NET_CONGESTION="reno"))

    def test_a_late_rank_is_named_on_one_host(self):
        ranks = self.start_ranks(PROGRAMS, "large", 3)
        for rank in range(len(ranks)):
            self.await_file(f"ready-{rank}", ranks)
        pid = int((self.folder / "ready-2").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(pid, signal.SIGCONT)
        (self.folder / "over").touch()
        self.end_well(ranks)
        for rank in ranks[:2]:
            named = re.findall(r"#\d+ runs for [12] s; .*\brank 2 \(host first,", rank.err)
            self.assertEqual(len(named), 1, rank.err)

    def test_a_rank_that_is_stopped_for_good_is_named_at_the_deadline(self):
        for victim, per_host in ((0, (2, 2)), (3, (2, 2)), (1, (1, 2))):
            ranks = self.start_ranks(PROGRAMS, "large", *per_host, C10D_TIMEOUT="3")
            for rank in range(len(ranks)):
                self.await_file(f"ready-{rank}", ranks)
            pid = int((self.folder / f"ready-{victim}").read_text())
            os.kill(pid, signal.SIGSTOP)
            for rank, running in enumerate(ranks):
                if rank == victim:
                    continue
                self.assertEqual(running.end(), 1)
                self.assertRegex(running.err, f"(?m)^[0-9]+ timed_out {victim} ", (victim, rank))
            os.kill(pid, signal.SIGKILL)
            ranks[victim].end()
            for left in self.folder.glob("*-*"):
                left.unlink()

    def test_garbage_on_a_connection_is_named_everywhere(self):
        for rank, running in enumerate(self.start_ranks(PROGRAMS, "garbage", 2, 2)):
            self.assertEqual(running.end(), 1)
            self.assertRegex(running.err, r"(?m)^[0-9]+ corrupt 3 .*what it sent is no chunk", rank)

    def test_a_group_listens_nowhere(self):
        """But for the store, on the address that was asked for."""
        ranks = self.start_ranks(PROGRAMS, "idle", 2, 2)
        for rank in range(4):
            self.await_file(f"ready-{rank}", ranks)
        for namespace, expected in zip(self.namespaces, ([f"10.77.0.1:{self.PORT}"], [])):
            self.assertEqual(self.listeners(namespace), expected)
        (self.folder / "over").touch()
        self.end_well(ranks)


class TwoNetworks(test_bed.TwoNetworks):
    def test_each_carries_half(self):
        """Of what a lane sends; or of the lanes, each on a network of its own. Of f16 the values
        of hosts with several ranks are twice as long as the results."""
        for per_host, what, streams in (((1, 1), "counted", {}),
                                        ((2, 2), "counted", {"C10D_NET_STREAMS": "1"}),
                                        ((2, 2), "counted_half", {})):
            each = self.bytes_of_a_reduction(PROGRAMS, *per_host, cables=("cable", "rail"),
                                             what=what, C10D_NET_INTERFACE=self.NETWORKS, **streams)
            print(f"{per_host}, {what}: {[round(sent / MUCH, 4) for sent in each]} of the bytes")
            for sent in each:
                self.assertLess(abs(sent / sum(each) - 0.5), 0.05)

    def start_over_both(self, what):
        ranks = self.start_ranks(PROGRAMS, what, 2, 2, C10D_NET_INTERFACE=self.NETWORKS)
        for rank in range(4):
            self.await_file(f"ready-{rank}", ranks)
        return ranks

    def test_one_that_is_cut_is_named(self):
        """Silently, or the host that sends, or the one that receives, sees it, too."""
        rail = ("ip", "link", "set", "rail")
        cuts = [(lambda: self.swallow("second", ("out", "in")),
                 lambda: self.let_through("second", ("out", "in")))]
        cuts += [(lambda host=host: host.do(*rail, "down"), lambda host=host: host.do(*rail, "up"))
                 for host in self.namespaces]
        for what in ("large", "spread"):
            for cut, mend in cuts:
                ranks = self.start_over_both(what)
                start = time.time_ns()
                cut()
                for running in ranks:
                    self.assertEqual(running.end(), 1)
                    said = re.search(r"(?m)^(\d+) link_lost \d .* from 10\.78\.0\.[12]; is that "
                                     "network", running.err)
                    self.assertTrue(said, running.err)
                    self.assertLess((int(said[1]) - start) / 1e9, CUT_BY)
                print(f"{what}: named after {(int(said[1]) - start) / 1e9:.1f} s")
                mend()
                for left in self.folder.glob("*-*"):
                    left.unlink()

    def test_a_rank_that_is_stopped_breaks_nothing(self):
        ranks = self.start_over_both("large")
        pid = int((self.folder / "ready-2").read_text())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        self.check_alive(ranks)
        (self.folder / "over").touch()
        self.end_well(ranks)

    def test_one_that_is_cut_and_not_used_breaks_nothing(self):
        ranks = self.start_over_both("small")  # which go with their agreement, over the first one
        self.swallow("second", ("out", "in"))
        time.sleep(3)
        self.check_alive(ranks)
        (self.folder / "over").touch()
        self.end_well(ranks)

    def test_hosts_with_other_networks_are_named(self):
        ranks = [self.start([*self.namespaces[rank].enter, PROGRAMS / "hosts-rank", self.folder,
                             "once"],
                            RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                            MASTER_ADDR=self.ADDRESSES[0], MASTER_PORT=str(self.PORT),
                            C10D_TOKEN_FILE=str(self.token), C10D_BACKEND="native",
                            C10D_NET_INTERFACE=("cable", "cable,rail")[rank])
                 for rank in range(2)]
        for rank in ranks:
            self.assertEqual(rank.end(), 1)
            self.assertRegex(rank.err, r"(?m)^[0-9]+ mismatch 1 .*rank 1 \(host second, .* has 2 "
                                       "streams over 2 networks to other hosts, and rank 0 has 1 ")


class FourHosts(test_bed.RanksByHand):
    ADDRESSES = tuple(f"10.77.0.{host}" for host in range(1, 5))

    def test_an_algorithm_sends_what_it_must(self):
        # 2 (H - 1) / H of the bytes out of each of H = 4 hosts, or all bytes to all others.
        for forced, factor in (("two_shot", 1.5), ("halving", 1.5), ("dissemination", 3)):
            [sent] = self.bytes_of_a_reduction(PROGRAMS, 1, 1, 1, 1, C10D_NATIVE_HOSTS_PLAN=forced)
            print(f"{forced}: {sent / MUCH:.4f} of the bytes")
            self.assertLess(abs(sent - factor * MUCH), 0.05 * MUCH)


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(Native, TwoNetworks, FourHosts)
