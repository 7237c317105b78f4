#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The equivalence ladder over hosts: training_test.py PROGRAMS THIN

Training must end in the bits of one process however it is spread over two and three hosts, on
`native` and `gloo`. One rung in THIN is climbed. The hosts are network namespaces, joined by cables
that the test lays. Exits with 77 where it may not.
"""
import itertools
import re
import sys
from pathlib import Path

import test_bed

PROGRAMS, THIN = None, None
TASK = ["--model", "mlp", "--epochs", "100000", "--steps", "12", "--global-batch-size", "30"]
WAYS = [["train_ddp"],
        *(["train_fsdp", "--zero", zero] for zero in "123"),
        *(["train_pipeline", "--pipeline-schedule", schedule] for schedule in ("gpipe", "1f1b"))]
BACKENDS = ("native", "gloo")


class Training:
    def digest(self, output):
        found = re.findall(r"^weights ([0-9a-f]{16})$", output, re.M)
        self.assertEqual(len(found), 1, output)
        return found[0]

    def climb(self, *layouts):
        wanted = self.digest(self.output(PROGRAMS / "train_single", *TASK))
        rungs = list(itertools.product(layouts, WAYS, BACKENDS))[::THIN]
        for ranks, (program, *options), backend in rungs:
            with self.subTest(ranks=ranks, program=program, options=options, backend=backend):
                run = self.c10d_run(PROGRAMS, self.hosts(*ranks), "--no-prefix",
                                    PROGRAMS / program, *TASK, "--backend", backend, *options)
                self.assertEqual(run.end(), 0, run.out[-5000:] + run.err[-5000:])
                self.assertEqual(self.digest(run.out), wanted)
                print(program, *options, backend, *ranks, "ranks:", wanted)


class TwoHosts(Training, test_bed.TwoHosts):
    def test_training(self):
        self.climb((1, 1), (2, 2), (1, 2))


class ThreeHosts(Training, test_bed.TwoHosts):
    ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3")

    def test_training(self):
        self.climb((1, 1, 1), (2, 1, 1))


if __name__ == "__main__":
    PROGRAMS, THIN = Path(sys.argv[1]).resolve(), int(sys.argv[2])
    test_bed.run(TwoHosts, ThreeHosts)
