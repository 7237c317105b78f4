#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""./dev hosts, in little: measure_test.py PROGRAMS"""
import json
import sys
import tempfile
import unittest
from pathlib import Path

import test_bed

SCRIPT = Path(__file__).resolve().parents[2] / "bench/hosts.py"
PROGRAMS = None


def rows_of(text):
    """{first cell: the others} of the rows of a table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|")]
    return {first: others for first, *others in rows}


class Measure(unittest.TestCase):
    def run_script(self, *words):
        run = test_bed.Running([sys.executable, "-B", SCRIPT, "--programs", PROGRAMS, *words])
        self.addCleanup(run.kill)
        run.end()
        return run

    def test_every_column_is_measured_and_compared(self):
        with tempfile.TemporaryDirectory(prefix="c10d-hosts-") as folder:
            run = self.run_script("--only", "no-limit,four-ranks", "--sizes", "32,1M",
                                  "--runs", "1", "--congestion", "reno", "--time", "5ms",
                                  "--folder", folder)
            if run.process.returncode == test_bed.SKIPPED:
                self.skipTest(run.out)
            self.assertEqual(run.process.returncode, 0, run.out + run.err)
            self.assertEqual(sorted(path.name for path in Path(folder).iterdir()),
                             ["four-ranks-reno-1.jsonl", "no-limit-reno-1.jsonl"])
            lines = [json.loads(line) for line in
                     (Path(folder) / "no-limit-reno-1.jsonl").read_text().splitlines()]
        self.assertEqual({line["backend"] for line in lines if line["t"] == "cell"},
                         {"native", "raw:tcp", "raw:mpi", "mpi", "raw:gloo", "gloo"})
        alone, together = map(rows_of, run.out.split("\nfour-ranks: "))
        us, *ratios, share, mpi, gloo = alone["all_reduce 32 B"]
        self.assertGreater(float(us.replace(",", "")), 0.5)
        for ratio in (*ratios, *together["all_reduce 1 MiB"][1:]):
            self.assertRegex(ratio, r"^\d+\.\d\d$")
        self.assertEqual((len(ratios), share), (3, ""))
        for cost in (mpi, gloo):
            self.assertRegex(cost, r"^-?\d+$")
        self.assertEqual(together["reduce_scatter 32 B"][2:], ["", ""], "Gloo has none")

    def test_mistakes_are_said(self):
        run = self.run_script("--only", "no_limit")
        self.assertEqual(run.process.returncode, 2)
        self.assertIn("--only no_limit: there are no-limit, 10-gbit", run.err)


if __name__ == "__main__":
    PROGRAMS = sys.argv[1]
    test_bed.run(Measure)
