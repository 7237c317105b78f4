# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that die, fork, abort, or end with ops pending: failures_test.py C10D-RUN."""
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

RUN = sys.argv.pop(1)
RANKS = Path(__file__).with_name("failing_ranks.py")


def job(case, ranks=2, options=()):
    """How the ranks of a case ended: exit code, output, seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run([RUN, "-n", str(ranks), "--timeout", "60", *options, sys.executable,
                                "-B", str(RANKS), case, folder], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, timeout=120)
    return ended.returncode, ended.stdout, time.monotonic() - start


class Failures(unittest.TestCase):
    def test_a_killed_rank_under_ddp_is_named_within_a_second(self):
        _, output, _ = job("killed", 3, ["--max-failures", "1"])
        raised = re.findall(r"\[([02])\] raised after (\S+) s: (.*)", output)
        self.assertEqual(len(raised), 2, output)
        for _, seconds, message in raised:
            self.assertLess(float(seconds), 1, output)
            self.assertRegex(message, r"rank 1 \(host .*, pid \d+\) died")

    def test_a_forked_worker_gets_an_error_and_the_group_goes_on(self):
        code, output, _ = job("forked")
        self.assertEqual(code, 0, output)
        self.assertEqual(len(re.findall("worker: ", output)), 2, output)
        self.assertRegex(output, "forked")
        self.assertNotIn("whose Work was dropped", output)
        self.assertEqual(len(re.findall(r"parent: \[2.0, 2.0\]", output)), 2, output)

    def test_an_interpreter_that_ends_with_ops_pending_ends_in_good_order(self):
        code, output, seconds = job("pending")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("end"), 2, output)
        self.assertLess(seconds, 20, output)

    def test_a_forked_child_has_futures_of_its_own(self):
        code, output, _ = job("futures")
        self.assertEqual(code, 0, output)
        self.assertEqual(len(re.findall(r"child: \[2.0, 2.0\]", output)), 2, output)

    def test_a_failure_that_nobody_waits_for_is_logged(self):
        _, output, _ = job("dropped")
        said = re.findall("an op whose Work was dropped failed: .*f64 x 4", output)
        self.assertEqual(len(said), 2, output)

    def test_abort_ends_the_ops_of_all_ranks(self):
        import torch
        if torch.__version__.startswith("1."):
            self.skipTest("PyTorch 1 has no abort() of a group")
        code, output, _ = job("aborted")
        self.assertEqual(code, 0, output)
        seen = re.findall("aborted: revoked .*torch.distributed called abort", output)
        self.assertEqual(len(seen), 2, output)

    def test_ranks_that_are_left_go_on_in_a_smaller_group(self):
        import torch.distributed
        if not hasattr(torch.distributed, "shrink_group"):
            self.skipTest("this PyTorch has no shrink_group()")
        _, output, _ = job("shrunk", 3, ["--max-failures", "1"])
        self.assertEqual(output.count("lost 1"), 2, output)
        self.assertEqual(output.count("left: 2 ranks, [2.0, 2.0]"), 2, output)

    def test_ranks_meet_by_a_file(self):
        code, output, _ = job("file_store")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("met: [2.0, 2.0]"), 2, output)

    def test_other_dtypes_are_a_mismatch_that_names_both_calls(self):
        code, output, _ = job("dtypes")
        self.assertEqual(code, 0, output)
        both = "mismatch: .*f32 x 4.*f64 x 4|mismatch: .*f64 x 4.*f32 x 4"
        self.assertEqual(len(re.findall(both, output)), 2, output)
        self.assertNotIn("whose Work was dropped", output)  # it was raised


unittest.main()
