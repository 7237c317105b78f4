#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bench/perf.py on made-up launches, and once on real ones: perf_test.py C10D_BENCH."""
import contextlib
import io
import itertools
import json
import math
import os
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import perf  # noqa: E402

BENCH = ""
SIZES = [8 << 2 * step for step in range(10)]


def line(size, us, block=0, algo="one_shot", bits="00ff"):
    return json.dumps({"v": 1, "t": "cell", "op": "all_reduce", "backend": "native", "algo": algo,
                       "bytes": size, "dtype": "f32", "redop": "sum", "root": None, "place": "out",
                       "launch": 0, "block": block, "us": {"p50": us}, "hash": bits})


def launches(seed, count=20, noise=0.05, drift=0.0, head=lambda size: {}):
    """Pairs of launches whose times scatter by `noise`, on a machine that slows down by `drift`
    from pair to pair; `head` says what differs in the cells of head: factor, algo, bits."""
    draw = random.Random(seed)

    def one(number, change):
        lines = []
        for size in SIZES:
            fields = change(size)
            us = size * fields.pop("factor", 1.0) * (1 + drift) ** number
            lines.append(line(size, us * math.exp(draw.gauss(0, noise)), **fields))
        return perf.cells_of(lines)

    return [(one(number, lambda size: {}), one(number, head)) for number in range(count)]


def verdicts(pairs, effect=0.03):
    return [one.verdict for one in perf.compare(pairs, effect)]


def run(*options):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = perf.main(["--base", "b", "--head", "h", *options])
    return status, out.getvalue(), err.getvalue()


def run_on(pairs, *options):
    with mock.patch.object(perf, "measure", return_value=pairs):
        return run("--pairs", str(len(pairs)), *options)


class Interval(unittest.TestCase):
    def test_is_that_of_the_signed_rank_test(self):
        # By definition: every value v for which the ranks of |x - v|, with their signs, are no
        # rarer than the confidence allows, counted over all signs.
        values, confidence = [0.3, -1.2, 2.2, 0.9, 1.4, 3.1, -0.4, 0.75], 0.9
        signs = list(itertools.product((0, 1), repeat=len(values)))

        def is_refused(v):
            order = sorted(values, key=lambda x: abs(x - v))
            plus = sum(rank for rank, x in enumerate(order, 1) if x > v)
            sums = [sum(rank for rank, sign in enumerate(row, 1) if sign) for row in signs]
            tail = min(sum(s <= plus for s in sums), sum(s >= plus for s in sums)) / len(signs)
            return tail <= (1 - confidence) / 2

        middle, low, high = perf.middle_and_interval(values, confidence)
        self.assertTrue(is_refused(low - 1e-9) and is_refused(high + 1e-9))
        self.assertFalse(is_refused(low + 1e-9) or is_refused(high - 1e-9))
        self.assertTrue(low < middle < high)

    def test_holds_the_truth_as_often_as_it_says(self):
        draw = random.Random(7)
        missed = sum(not low <= 1 <= high for _, low, high in (
            perf.middle_and_interval([draw.gauss(1, 1) for _ in range(12)], 0.95)
            for _ in range(2000)))
        self.assertTrue(0.03 < missed / 2000 < 0.06, missed)

    def test_needs_enough_values(self):
        for cells in (1, 2, 25):
            enough = perf.least_pairs(cells)
            confidence = 1 - 0.05 / cells
            self.assertIsNone(perf.middle_and_interval(list(range(enough - 1)), confidence))
            self.assertIsNotNone(perf.middle_and_interval(list(range(enough)), confidence))


class Comparison(unittest.TestCase):
    def test_the_same_build_shows_a_cell_once_in_twenty_runs_at_most(self):
        shown = sum(bool({"slower", "faster"} & set(verdicts(launches(seed))))
                    for seed in range(100))
        self.assertLessEqual(shown, 10)  # of 100; more than 10 at 5 % each has a chance of 1 %

    def test_what_slows_the_machine_down_is_no_difference(self):
        self.assertFalse({"slower", "faster"} & set(verdicts(launches(1, drift=0.1))))

    def test_a_cell_that_is_ten_percent_slower_or_faster_is_found_and_no_other(self):
        changed = {SIZES[2]: {"factor": 1.10}, SIZES[7]: {"factor": 1 / 1.10}}
        found = verdicts(launches(3, noise=0.02, head=lambda size: dict(changed.get(size, {}))))
        self.assertEqual([(i, v) for i, v in enumerate(found) if v in ("slower", "faster")],
                         [(2, "slower"), (7, "faster")])

    def test_a_certain_difference_below_the_effect_is_the_same(self):
        pairs = launches(4, noise=0.001, head=lambda size: {"factor": 1.01})
        self.assertEqual(verdicts(pairs), ["same"] * len(SIZES))
        self.assertEqual(verdicts(pairs, effect=0.005), ["slower"] * len(SIZES))

    def test_what_cannot_be_told_is_open(self):
        self.assertIn("open", verdicts(launches(5, noise=0.5)))

    def test_a_launch_is_the_median_of_its_blocks(self):
        cells = perf.cells_of([line(8, us, block) for block, us in enumerate((5.0, 90.0, 6.0))])
        self.assertEqual([cell.us for cell in cells.values()], [6.0])

    def test_too_few_pairs_are_refused_with_the_number(self):
        with self.assertRaisesRegex(ValueError, "10 cells need --pairs 9 at least, not 8"):
            perf.compare(launches(6, count=8), 0.03)


class Report(unittest.TestCase):
    def test_nothing_differs(self):
        status, out, _ = run_on(launches(8, noise=0.001))
        self.assertEqual(status, 0, out)
        self.assertIn("no cell differs by 3 % or more", out)
        self.assertIn("0 slower, 0 faster, 10 same, 0 open", out)
        self.assertIn("the same bits", out)

    def test_a_slower_cell_with_its_interval_algorithm_and_bits(self):
        change = {"factor": 1.5, "algo": "two_shot", "bits": "ff00"}
        pairs = launches(9, noise=0.001, head=lambda s: dict(change) if s == 32 << 10 else {})
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            status, out, _ = run_on(pairs, "--json", file.name)
            written = json.load(file)
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"all_reduce native f32 sum 32 KiB .* 1\.5\d* \[1\.[45]\d+, 1\.5\d+\]"
                              r"  slower  algorithm one_shot -> two_shot")
        self.assertIn("other bits: all_reduce native f32 sum 32 KiB", out)
        slower = [cell for cell in written["cells"] if cell["verdict"] == "slower"]
        self.assertEqual([cell["bytes"] for cell in slower], [32 << 10])
        self.assertEqual(len(slower[0]["ratios"]), 20)
        self.assertTrue(1.45 < slower[0]["low"] < slower[0]["ratio"] < slower[0]["high"] < 1.55)

    def test_a_cell_that_one_build_lacks_is_named(self):
        pairs = launches(10)
        for _, head in pairs:
            del head[next(iter(head))]
        self.assertIn("all_reduce native f32 sum None out 8: not in every launch", run_on(pairs)[1])

    def test_a_launch_that_fails_ends_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "bench"
            program.write_text("#!/bin/sh\necho 'wrong data' >&2\nexit 3\n")
            program.chmod(0o755)
            status, _, err = run("--base", str(program), "--head", str(program))
        self.assertEqual(status, 3)
        self.assertIn("wrong data", err)
        self.assertIn("exit status 3", err)

    def test_launches_take_turns_and_each_counts_for_its_own_build(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, us in (("base", 10.0), ("head", 20.0)):
                program = Path(folder) / name
                program.write_text(f"#!/bin/sh\necho {name} >>{folder}/order\n"
                                   f"echo '{line(8, us)}'\n")
                program.chmod(0o755)
            pairs = perf.measure(f"{folder}/base", f"{folder}/head", 6, [])
            order = Path(folder, "order").read_text().split()
        self.assertEqual(order, ["base", "head", "head", "base"] * 3)
        self.assertEqual([(b.us, h.us) for base, head in pairs
                          for b, h in zip(base.values(), head.values())], [(10.0, 20.0)] * 6)

    def test_real_launches(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "out.json"
            status, out, err = run("--base", BENCH, "--head", BENCH, "--pairs", "6", "all_reduce",
                                   "-s", "1K", "--time", "10ms", "--json", str(file))
            self.assertIn(status, (0, 1), err)  # other tests may run beside it
            cells = json.loads(file.read_text())["cells"]
        self.assertEqual([(cell["op"], cell["bytes"]) for cell in cells], [("all_reduce", 1024)])
        self.assertEqual(len(cells[0]["ratios"]), 6)
        self.assertTrue(cells[0]["same_bits"], out)


if __name__ == "__main__":
    BENCH = os.path.abspath(sys.argv.pop(1))
    unittest.main()
