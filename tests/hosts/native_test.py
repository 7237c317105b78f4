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


class Native(test_bed.RanksByHand):
    def test_a_reduction_sends_each_byte_once(self):
        # 2 (H - 1) / H of the bytes, out of each of H = 2 hosts, of integers.
        for per_host in ((1, 1), (2, 2), (1, 3)):
            [sent] = self.bytes_of_a_reduction(PROGRAMS, *per_host)
            print(f"{per_host}: {sent / MUCH:.4f} of the bytes")
            self.assertLess(sent, 1.03 * MUCH)

    def test_a_sum_of_floats_sends_each_value_once(self):
        # Half of the bytes of each of its values, and half of the result.
        for per_host, values in (((1, 1), (1, 1)), ((2, 2), (1, 1)), ((3, 3), (2, 2)),
                                 ((1, 3), (1, 2)), ((1, 6), (1, 3))):
            for host in (0, 1):
                [sent] = self.bytes_of_a_reduction(PROGRAMS, *per_host, host=host,
                                                   what="counted_float")
                expected = (values[host] + 1) / 2
                print(f"{per_host}: {sent / MUCH:.4f} of the bytes, out of host {host}, of "
                      f"{expected}")
                self.assertLess(sent, 1.03 * expected * MUCH)

    def test_large_ops_overlap(self):
        for per_host in ((2, 2), (3, 1), (2, 3)):
            self.end_well(self.start_ranks(PROGRAMS, "large ops", *per_host,
                                           C10D_NATIVE_HOSTS_PLAN="overlap"))

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
        ranks, pids = self.stand(PROGRAMS, "large", 3)
        os.kill(pids[2], signal.SIGSTOP)
        time.sleep(3)
        os.kill(pids[2], signal.SIGCONT)
        (self.folder / "over").touch()
        self.end_well(ranks)
        for rank in ranks[:2]:
            named = re.findall(r"#\d+ runs for [12] s; .*\brank 2 \(host first,", rank.err)
            self.assertEqual(len(named), 1, rank.err)

    def test_a_rank_that_is_stopped_for_good_is_named_at_the_deadline(self):
        for victim, per_host in ((0, (2, 2)), (3, (2, 2)), (1, (1, 2))):
            ranks, pids = self.stand(PROGRAMS, "large", *per_host, C10D_TIMEOUT="3",
                                     C10D_NATIVE_HOSTS_PLAN="overlap")
            os.kill(pids[victim], signal.SIGSTOP)
            for rank, running in enumerate(ranks):
                if rank == victim:
                    continue
                self.assertEqual(running.end(), 1)
                self.assertRegex(running.err, f"(?m)^[0-9]+ timed_out {victim} ", (victim, rank))
            os.kill(pids[victim], signal.SIGKILL)
            ranks[victim].end()
            self.clear()

    def test_garbage_on_a_connection_is_named_everywhere(self):
        for rank, running in enumerate(self.start_ranks(PROGRAMS, "garbage", 2, 2)):
            self.assertEqual(running.end(), 1)
            self.assertRegex(running.err, r"(?m)^[0-9]+ corrupt 3 .*what it sent is no chunk", rank)

    def test_a_group_listens_nowhere(self):
        """But for the store, on the address that was asked for."""
        ranks, _ = self.stand(PROGRAMS, "idle", 2, 2)
        for namespace, expected in zip(self.namespaces, ([f"10.77.0.1:{self.PORT}"], [])):
            self.assertEqual(self.listeners(namespace), expected)
        (self.folder / "over").touch()
        self.end_well(ranks)


class FourHosts(test_bed.RanksByHand):
    ADDRESSES = tuple(f"10.77.0.{host}" for host in range(1, 5))

    def test_the_rank_that_is_stopped_is_named_by_all(self):
        """Not those that wait for it, and then for each other."""
        ranks, pids = self.stand(PROGRAMS, "large", 1, 1, 1, C10D_TIMEOUT="3")
        os.kill(pids[2], signal.SIGSTOP)
        for rank in ranks[:2]:
            self.assertEqual(rank.end(), 1)
            self.assertRegex(rank.err, "(?m)^[0-9]+ timed_out 2 .*rank 2 \\(host third, pid")
        os.kill(pids[2], signal.SIGKILL)
        ranks[2].end()

    def test_large_ops_overlap(self):
        for forced in ("overlap", "overlap,one_shot"):
            self.end_well(self.start_ranks(PROGRAMS, "large ops", 2, 2, 2,
                                           C10D_NATIVE_HOSTS_PLAN=forced))

    def test_an_algorithm_sends_what_it_must(self):
        # 2 (H - 1) / H of the bytes out of each of H = 4 hosts, or all bytes to all others.
        for forced, factor in (("two_shot", 1.5), ("halving", 1.5), ("dissemination", 3)):
            [sent] = self.bytes_of_a_reduction(PROGRAMS, 1, 1, 1, 1, C10D_NATIVE_HOSTS_PLAN=forced)
            print(f"{forced}: {sent / MUCH:.4f} of the bytes")
            self.assertLess(abs(sent - factor * MUCH), 0.05 * MUCH)
        # The root's host sends as much for each host that it sends to.
        for forced, factor in (("binomial", 2), ("chain", 1), ("", 1)):
            [sent] = self.bytes_of_a_reduction(PROGRAMS, 1, 1, 1, 1, what="counted_broadcast",
                                               C10D_NATIVE_HOSTS_PLAN=forced)
            print(f"broadcast, {forced or 'as it chooses'}: {sent / MUCH:.4f} of the bytes")
            self.assertLess(abs(sent - factor * MUCH), 0.05 * MUCH)


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(Native, FourHosts)
