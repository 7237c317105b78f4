#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the pack of a build and runs a part of it on the stand-ins: test_pack.py BUILD_FOLDER"""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv.pop())
HERE = Path(__file__).resolve().parent


class Pack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.pack = Path(cls.folder.name) / "pack"
        subprocess.run([HERE / "pack.sh", BUILD, cls.pack], check=True)

    def run_pack(self, *words, **variables):
        return subprocess.run([self.pack / "run", *words], env=dict(os.environ, **variables),
                              capture_output=True, text=True, timeout=200)

    def test_without_a_gpu_it_says_so_and_writes_nothing(self):
        results = Path(self.folder.name) / "none.md"
        run = self.run_pack(results, C10D_CUDA_LIBRARY="/no/libcuda.so.1")
        self.assertEqual(run.returncode, 2, run)
        self.assertIn("no CUDA driver: /no/libcuda.so.1", run.stderr)
        self.assertFalse(results.exists())

    def test_on_the_stand_ins_each_part_has_a_verdict(self):
        results = Path(self.folder.name) / "results.md"
        run = self.run_pack(results, "gpus", "kernels",
                            C10D_CUDA_LIBRARY=str(BUILD / "lib/libfake_cuda.so"),
                            C10D_NCCL_LIBRARY=str(BUILD / "lib/libfake_nccl_2.28.9.so"),
                            FAKE_GPU="devices = 1")
        text = results.read_text(encoding="utf-8")
        self.assertEqual(run.returncode, 0, run.stdout + text)
        self.assertRegex(text, r"GPUs +1, CUDA 13.0: NVIDIA H100 stand-in")
        self.assertRegex(text, r"nccl +2.28.9")
        self.assertEqual(re.findall(r"^\| (\w+) \| (\w+) \|", text, re.M),
                         [("part", "verdict"), ("gpus", "passed"), ("kernels", "passed")])

    def test_a_part_that_fails_is_told(self):
        results = Path(self.folder.name) / "failed.md"
        run = self.run_pack(results, "gpus", "conformance_1",
                            C10D_CUDA_LIBRARY=str(BUILD / "lib/libfake_cuda.so"),
                            C10D_NCCL_LIBRARY=str(BUILD / "lib/libfake_nccl_2.28.9.so"),
                            FAKE_GPU="devices = 1; ncclCommInitRankConfig = 3")
        text = results.read_text(encoding="utf-8")
        self.assertEqual(run.returncode, 1, run.stdout + text)
        self.assertIn("| gpus | passed |", text)
        self.assertIn("| conformance_1 | FAILED: status 1 |", text)
        self.assertIn("ncclCommInitRankConfig on rank 0", text)

    def test_a_daemon_of_mps_ends_with_its_part(self):
        folder = Path(self.folder.name) / "mps"
        folder.mkdir()
        daemon = folder / "nvidia-cuda-mps-control"
        daemon.write_text('#!/bin/sh\n[ "$1" = -d ] || read command\n'
                          'echo "$1$command in ${CUDA_MPS_PIPE_DIRECTORY##*/}" >> '
                          f'{folder}/said\n')
        daemon.chmod(0o755)
        results = folder / "results.md"
        self.run_pack(results, "conformance_mps", "conformance_multi_rank",
                      C10D_CUDA_LIBRARY=str(BUILD / "lib/libfake_cuda.so"),
                      C10D_NCCL_LIBRARY=str(BUILD / "lib/libfake_nccl_2.28.9.so"),
                      PATH=f"{folder}:{os.environ['PATH']}",
                      FAKE_GPU="devices = 1; ncclCommInitRankConfig = 3")
        text = results.read_text(encoding="utf-8")
        self.assertIn("| conformance_mps | FAILED: status 1 |", text)
        self.assertIn("| conformance_multi_rank | skipped: the stand-in", text)
        self.assertEqual((folder / "said").read_text().splitlines(), ["-d in mps", "quit in mps"])

    def test_its_programs_find_its_libraries_beside_them(self):
        for path in ("bin/conformance", "lib/c10d/backends/libc10d_nccl.so"):
            dynamic = subprocess.run(["readelf", "-d", self.pack / path], text=True, check=True,
                                     stdout=subprocess.PIPE).stdout
            self.assertRegex(dynamic, r"RUNPATH.*\[\$ORIGIN/")
            self.assertNotIn(str(BUILD), dynamic)


if __name__ == "__main__":
    unittest.main()
