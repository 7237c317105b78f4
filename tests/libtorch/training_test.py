# SPDX-License-Identifier: BSD-3-Clause
"""The example for LibTorch on 1 to 4 ranks: training_test.py C10D-RUN TRAIN_DDP."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

RUN, TRAIN = sys.argv[1:3]
del sys.argv[1:3]
BOUND = 20  # seconds until all ranks have ended after a death; without news of it they wait minutes


def command(ranks, *options, of_run=()):
    return [RUN, "-n", str(ranks), "--timeout", "100", *of_run, TRAIN, *options]


def trained(ranks, *options):
    """What the run printed."""
    ended = subprocess.run(command(ranks, *options), stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, timeout=120)
    if ended.returncode != 0:
        raise AssertionError(ended.stdout)
    return ended.stdout


def digest(output):
    return re.search(r"weights ([0-9a-f]{16})$", output, re.M)[1]


def pid_of(rank, run):
    """Of a rank that the process `run` started."""
    for children in Path(f"/proc/{run}/task").glob("*/children"):
        for child in children.read_text().split():
            if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
                return int(child)
    raise AssertionError(f"no rank {rank}")


class Training(unittest.TestCase):
    def test_one_digest_at_every_number_of_ranks(self):
        outputs = [trained(ranks, "--reproducible", "--epochs", "2") for ranks in (1, 2, 3, 4)]
        self.assertEqual(len({digest(output) for output in outputs}), 1, outputs)
        other = trained(2, "--reproducible", "--epochs", "1")
        self.assertNotEqual(digest(other), digest(outputs[0]))

    def test_mode_fast_learns(self):
        output = trained(2, "--epochs", "4", "--lr", "0.1")
        self.assertGreater(float(re.findall(r"test accuracy (\S+) %", output)[-1]), 90, output)

    def test_a_checkpoint_goes_on_with_another_number_of_ranks(self):
        whole = trained(2, "--reproducible", "--epochs", "2")
        with tempfile.TemporaryDirectory() as folder:
            trained(3, "--reproducible", "--epochs", "1", "--checkpoint", folder)
            rest = trained(2, "--reproducible", "--epochs", "2", "--checkpoint", folder)
        self.assertEqual(re.findall("epoch .*", rest), re.findall("epoch 2.*", whole))
        self.assertEqual(digest(rest), digest(whole))

    def test_a_killed_rank_is_named(self):
        run = subprocess.Popen(command(3, "--epochs", "100000", of_run=["--max-failures", "1"]),
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        guard = threading.Timer(110, run.terminate)
        guard.start()
        try:
            output = run.stdout.readline()
            self.assertIn("epoch 1", output)
            os.kill(pid_of(1, run.pid), signal.SIGKILL)
            killed = time.monotonic()
            output += run.stdout.read()
            self.assertNotEqual(run.wait(), 0)
            self.assertLess(time.monotonic() - killed, BOUND, output)
        finally:
            guard.cancel()
            run.terminate()
            run.wait()
            run.stdout.close()
        said = re.findall(r"^\[([02])\] .*rank 1 \(host .*, pid \d+\) died", output, re.M)
        self.assertEqual(sorted(set(said)), ["0", "2"], output)

    def test_wrong_options_are_named(self):
        ended = subprocess.run([TRAIN, "--epoch", "1"], stderr=subprocess.PIPE, text=True,
                               timeout=60)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("--epoch: there are --epochs N", ended.stderr)


unittest.main()
