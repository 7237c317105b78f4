#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""native over two networks, of which one is cut: networks_test.py PROGRAMS

The hosts are network namespaces, joined by a cable and by a switch that the test lays. Exits with
77 where it may not.
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
CUT_BY = 8.0     # seconds until a host that is cut off is named, on a busy machine


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
        return self.stand(PROGRAMS, what, 2, 2, C10D_NET_INTERFACE=self.NETWORKS)

    SILENCE = ("root", "tbf", "rate", "1mbit", "burst", "32", "limit", "32")  # nothing goes out

    def cut(self, cable, how="both"):
        """Both hosts say nothing there, or one, or one sees its end go down."""
        if how == "down":
            return self.namespaces[0].do("ip", "link", "set", cable, "down")
        for each in self.namespaces if how == "both" else self.namespaces[1:]:
            each.do("tc", "qdisc", "add", "dev", cable, *self.SILENCE)

    def mend(self, cable, how="both"):
        if how == "down":
            return self.namespaces[0].do("ip", "link", "set", cable, "up")
        for each in self.namespaces if how == "both" else self.namespaces[1:]:
            each.do("tc", "qdisc", "del", "dev", cable, "root")

    def test_one_that_is_cut_is_left(self):
        """And every result is right."""
        cuts = [(what, cable, "both") for what in ("large", "spread", "passed on", "small")
                for cable in ("cable", "rail")]
        cuts += [(what, "cable", how) for what, how in (("large", "down"), ("spread", "one"),
                                                        ("passed on", "one"))]
        for what, cable, how in cuts:
            ranks, _ = self.start_over_both(what)
            start = time.monotonic()
            self.cut(cable, how)
            other = "rail" if cable == "cable" else "cable"
            much = 1 << 20 if what == "small" else 8 * MUCH  # more than the ops of that moment
            enough = self.bytes_on_the_cable(other) + much
            while self.bytes_on_the_cable(other) < enough:
                self.check_alive(ranks)
            took = time.monotonic() - start
            (self.folder / "over").touch()
            self.end_well(ranks)
            is_used = cable == "cable" or what in ("large", "spread")
            for rank in ranks:
                said = re.findall(r"warn: the network from (\S+)\.\d to \S+ is left", rank.err)
                subnet = {"cable": "10.77.0", "rail": "10.78.0"}[cable]
                self.assertEqual(said, [subnet] if is_used else [], rank.err)
            print(f"{what}, {cable}, {how}: goes on after {took:.1f} s", flush=True)
            self.mend(cable, how)
            self.clear()

    def test_a_host_that_is_cut_off_is_named(self):
        """On both networks."""
        for what in ("large", "passed on", "small"):
            ranks, _ = self.start_over_both(what)
            start = time.time_ns()
            for cable in ("cable", "rail"):
                self.cut(cable)
            for rank, running in enumerate(ranks):
                self.assertEqual(running.end(), 1)
                said = re.search(r"(?m)^(\d+) peer_died (\d) .*no answer from host", running.err)
                self.assertTrue(said, running.err)
                self.assertLess((int(said[1]) - start) / 1e9, CUT_BY)
                self.assertNotEqual(int(said[2]) // 2, rank // 2, running.err)
            print(f"{what}: named after {(int(said[1]) - start) / 1e9:.1f} s", flush=True)
            for cable in ("cable", "rail"):
                self.mend(cable)
            self.clear()

    def test_a_rank_that_is_stopped_breaks_nothing(self):
        ranks, pids = self.start_over_both("large")
        os.kill(pids[2], signal.SIGSTOP)
        time.sleep(5)
        os.kill(pids[2], signal.SIGCONT)
        time.sleep(1)
        self.check_alive(ranks)
        (self.folder / "over").touch()
        self.end_well(ranks)

    def test_one_that_is_cut_and_not_used_breaks_nothing(self):
        # Small ops go with their agreement, over the first one.
        ranks, _ = self.start_over_both("small")
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


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(TwoNetworks)
