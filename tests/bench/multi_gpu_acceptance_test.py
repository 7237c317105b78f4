#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/multi_gpu_acceptance on the stand-ins: multi_gpu_acceptance_test.py TOOL BIN"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL, BIN = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
SWEEP = "all_reduce all_gather -s 8,4K -i 3 -w 1 --launches 1 --blocks 1 --cache hot --control off"


class Acceptance(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self.folder = tempfile.TemporaryDirectory(prefix="acceptance_")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "result.json"

    def run_tool(self, *arguments, **variables):
        ended = subprocess.run(
            [sys.executable, "-B", TOOL, "--bin", BIN, "--thin", "500", "--sweep", SWEEP,
             *arguments],
            env={**os.environ, **variables}, check=False, encoding="utf-8",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        return ended.returncode, ended.stdout

    def result(self):
        return json.loads(self.path.read_text(encoding="utf-8"))

    def test_two_gpus_pass_and_are_named(self):
        status, text = self.run_tool(self.path, FAKE_GPU="devices=2")
        self.assertEqual(status, 0, text)
        result = self.result()
        self.assertTrue(result["ok"])
        self.assertEqual([part["ranks"] for part in result["correctness"]], [1, 2])
        self.assertEqual(len({gpu["uuid"] for gpu in result["gpus"]}), 2)
        self.assertEqual(result["driver"]["path"], os.environ["C10D_CUDA_LIBRARY"])
        for sweep in (result["sweep"], result["symmetric_sweep"]):
            cells = [line for line in sweep["records"] if line["t"] == "cell"]
            self.assertEqual({(cell["op"], cell["backend"], cell["bytes"]) for cell in cells},
                             {(op, backend, size) for op in ("all_reduce", "all_gather")
                              for backend in ("nccl", "raw:nccl") for size in (8, 4096)})
            self.assertEqual({cell["placement"] for cell in cells}, {"gpu_per_rank"})
        for column in ("nccl", "raw:nccl"):
            self.assertIn("; symmetric windows" if column == "raw:nccl" else
                          "; allocate(): symmetric windows",
                          result["symmetric_sweep"]["memory"][column])
            self.assertNotIn("windows", result["sweep"]["memory"][column])

    # NCCL says that all went well, and did nothing.
    def test_wrong_data_is_not_accepted(self):
        status, text = self.run_tool(self.path, FAKE_GPU="devices=2; all: ncclAllReduce = 0")
        self.assertEqual(status, 1, text)
        result = self.result()
        self.assertFalse(result["ok"])
        self.assertFalse(result["correctness"][1]["ok"])
        self.assertEqual(result["sweep"]["exit"], 3)

    def test_what_cannot_run_says_why(self):
        for arguments, variables, words in (
                ([self.path], {"FAKE_GPU": "devices=1"}, "two are needed"),
                ([self.path], {"C10D_CUDA_LIBRARY": "/none/libcuda.so.1"}, "has no GPU"),
                ([self.path], {"C10D_NCCL_LIBRARY": "/none/libnccl.so.2"}, "/none/libnccl.so.2"),
                ([self.path, "--bin", self.folder.name], {}, "there is no conformance"),
                ([self.path, "--ranks", "1"], {}, "--ranks is 2 or more"),
                ([self.path.parent / "none/r.json"], {}, "No such file")):
            status, text = self.run_tool(*arguments, **variables)
            self.assertEqual(status, 2, text)
            self.assertTrue(text.startswith("multi_gpu_acceptance: "), text)
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
