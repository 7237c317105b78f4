#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts that are far from each other, 5 ms each way: delay_test.py PROGRAMS THIN

The hosts are network namespaces, the cable is a program: see slow_cable.py. One case of conformance
in THIN runs. Exits with 77 where it may not.
"""
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS, THIN = None, None
SLOWER = 4 if os.environ.get("SANITIZED") else 1
DIED_BY = 2.0 * SLOWER  # seconds


class FarHosts(test_bed.RanksByHand):
    DELAY = 0.005

    def lay_cable(self, *namespaces):
        self.lay_slow_cable(self.DELAY, *namespaces)

    def test_results_are_right(self):
        for backend in ("native", "gloo"):
            run = self.c10d_run(PROGRAMS, self.hosts(2, 2), "--no-prefix",
                                PROGRAMS / "conformance", "--gtest_filter=*ResultsAreRight",
                                f"--thin={THIN}", f"--backend={backend}")
            self.assertEqual(run.end(), 0, run.out[-20000:] + run.err[-20000:])
            print(backend, re.search(r"^.*: cases: .*$", run.out, re.M)[0])

    def test_the_plan_knows_how_far_they_are(self):
        run = self.c10d_run(PROGRAMS, self.hosts(), "--no-prefix", PROGRAMS / "c10d-bench",
                            "explain", "all_reduce", "1M")
        self.assertEqual(run.end(), 0, run.out + run.err)
        print(re.search(r"(?m)^network .*$", run.out)[0])
        self.assertGreater(int(re.search(r"(?m)^network +(\d+) us", run.out)[1]), 4000)

    def test_an_op_takes_few_round_trips(self):
        """The agreement before the op of a library takes one more."""
        path = self.folder / "run.jsonl"
        run = self.c10d_run(PROGRAMS, self.hosts(), PROGRAMS / "c10d-bench", "compare", "-B",
                            "native,gloo,raw:gloo", "all_reduce", "-s", "8,64K", "--launches", "1",
                            "--blocks", "2", "--time", "0.2s", "--json", path)
        self.assertEqual(run.end(), 0, run.out + run.err)
        us = {(cell["backend"], cell["bytes"]): cell["us"]["p50"]
              for cell in map(json.loads, path.read_text().splitlines()) if cell["t"] == "cell"}
        print(us)
        trip = 2e6 * self.DELAY
        # One way, and ranks that leave a barrier start that far from each other.
        self.assertLess(us["native", 8], 2 * trip * SLOWER)
        self.assertLess(us["native", 64 << 10], 3 * trip * SLOWER)
        self.assertLess(us["gloo", 8] - us["raw:gloo", 8], 3 * trip * SLOWER)

    def test_a_killed_rank_is_named(self):
        for what in ("small", "idle"):
            ranks, pids = self.stand(PROGRAMS, what, 2, 2)
            start = time.time_ns()
            os.kill(pids[3], signal.SIGKILL)
            took = []
            for rank in ranks[:3]:
                self.assertEqual(rank.end(), 1)
                said = re.search(r"(?m)^(\d+) peer_died 3 .*rank 3 \(host second,", rank.err)
                self.assertTrue(said, rank.err)
                took.append((int(said[1]) - start) / 1e9)
            ranks[3].end()
            print(f"{what}: named after {', '.join(f'{seconds * 1e3:.0f}' for seconds in took)} ms")
            self.assertLess(max(took), DIED_BY)
            self.clear()


if __name__ == "__main__":
    PROGRAMS, THIN = Path(sys.argv[1]).resolve(), sys.argv[2]
    test_bed.run(FarHosts)
