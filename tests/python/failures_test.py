# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are interrupted, die, fork, or end with ops pending: failures_test.py C10D-RUN."""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

RUN = sys.argv.pop(1) if len(sys.argv) > 1 else "c10d-run"
BOUND = 2  # seconds: 0.1 on an idle host; without a look at signals the wait is endless
RANKS = Path(__file__).with_name("failing_ranks.py")


def job(case, *arguments, ranks=2, options=()):
    """How the ranks of a case ended: exit code, output, seconds."""
    start = time.monotonic()
    ended = subprocess.run([RUN, "-n", str(ranks), *options, sys.executable, "-B", str(RANKS), case,
                            *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True, timeout=120)
    return ended.returncode, ended.stdout, time.monotonic() - start


class Failures(unittest.TestCase):
    def test_ctrl_c_interrupts_every_wait(self):
        for wait in ("op", "work", "await", "recv", "split", "new_group"):
            with self.subTest(wait=wait):
                self.expect_interrupt(wait)

    def test_ctrl_c_interrupts_a_wait_inside_gloo(self):
        self.skip_without("gloo")
        for wait in ("op", "recv"):
            self.expect_interrupt(wait, "-x", "C10D_BACKEND=gloo")

    def expect_interrupt(self, wait, *options):
        code, output, _ = job("interrupted", wait, options=options)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"\[0\] KeyboardInterrupt")
        self.assertRegex(output, r"\[1\] Aborted .*rank 0: .*Ctrl-C")
        self.assertLess(float(re.search(r"after (\S+) s", output)[1]), BOUND, output)

    def test_ctrl_c_on_every_rank_is_a_keyboard_interrupt(self):
        for _ in range(4):
            _, output, _ = job("everyone", ranks=3, options=["--max-failures", "3"])
            self.assertEqual(re.findall("got (.*)", output), ["KeyboardInterrupt"] * 3, output)

    def test_the_buffers_of_a_failed_op_stay_with_the_library_below(self):
        self.skip_without("gloo")
        code, output, _ = job("kept", options=["-x", "C10D_BACKEND=gloo"])
        self.assertEqual(code, 0, output)
        for how in ("call", "work", "dropped"):
            self.assertIn(f"interrupted {how}", output)
            self.assertIn(f"kept {how}", output)
        code, output, _ = job("kept")  # native needs them no more
        self.assertEqual((code, output.count("freed")), (0, 3), output)

    def test_the_failure_of_a_work_that_was_dropped_is_logged(self):
        code, output, _ = job("dropped", ranks=1)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, "recv .*failed after its call had returned")

    def skip_without(self, name):
        import c10d
        backend = next(backend for backend in c10d.list_backends() if backend.name == name)
        if not backend.available:
            self.skipTest(backend.reason)

    def test_ctrl_c_interrupts_the_wait_for_a_store_and_for_ranks(self):
        for wait in ("store", "init"):
            with self.subTest(wait=wait):
                code, output, _ = job("interrupted", wait, ranks=1)
                self.assertEqual(code, 0, output)
                self.assertIn("KeyboardInterrupt", output)
                self.assertLess(float(re.search(r"after (\S+) s", output)[1]), BOUND, output)

    def test_a_handler_that_does_not_raise_ends_no_wait(self):
        code, output, _ = job("handled")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"\[0\] handled\n(.*\n)*\[0\] done")

    def test_a_killed_rank_is_named(self):
        code, output, seconds = job("killed", ranks=3, options=["--max-failures", "1"])
        self.assertEqual(code, 0, output)
        for rank in (0, 2):
            self.assertRegex(output, rf"\[{rank}\] PeerDied rank 1 peer_lost")
        self.assertLess(seconds, 30)

    def test_a_forked_child_gets_a_clear_error(self):
        code, output, _ = job("forked")
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"\[0\] child: ForkedChild .*parent process")
        self.assertRegex(output, r"\[0\] child ended with 0")

    def test_a_child_of_multiprocessing_leaves_in_good_order(self):
        with tempfile.TemporaryDirectory() as folder:
            code, output, _ = job("children", folder)
        self.assertEqual(code, 0, output)
        self.assertIn("came 7.0 7.0", output)
        self.assertIn("ended [0, 0]", output)

    def test_an_end_with_ops_pending_is_clean(self):
        for case in ("pending", "dropped", "thread", "callback"):
            with self.subTest(case=case):
                code, output, seconds = job("ends", case)
                self.assertEqual(code, 0, output)
                self.assertNotRegex(output, "Traceback|Fatal|terminate|Segmentation")
                self.assertLess(seconds, 30)

    def test_all_groups_together_have_a_second_to_end(self):
        for case in ("calls", "groups"):
            with self.subTest(case=case):
                code, output, seconds = job("ends", case)
                self.assertEqual(code, 0, output)
                self.assertLess(seconds, 5, output)

    def test_a_script_runs_with_this_python(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.py")
            script.write_text("import sys; print(sys.executable)\n")
            output = subprocess.run([sys.executable, "-m", "c10d.run", "-n", "1", str(script)],
                                    text=True, capture_output=True, timeout=60, check=True).stdout
        self.assertIn(os.path.dirname(sys.executable) + os.sep, output)

    def test_programs(self):
        for program in ("run", "bench"):
            text = subprocess.run([sys.executable, "-m", f"c10d.{program}", "--help"], text=True,
                                  capture_output=True, timeout=60, check=True).stdout
            self.assertIn(f"c10d-{program}", text)


if __name__ == "__main__":
    unittest.main()
