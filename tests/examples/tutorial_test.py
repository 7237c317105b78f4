#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The tutorial: tutorial_test.py SOURCE PROGRAMS BACKEND

docs/tutorial.md shows each program as its difference from the one before; the programs stay small;
what the page promises about their results holds. BACKEND is for the job over two hosts, which are
two launchers on this one: gloo, or native where gloo is not built.
"""
import difflib
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = PROGRAMS = BACKEND = None
DEADLINE = 120  # seconds of one program
NAMES = ("1_single", "2_ddp", "3_checkpoint", "4_multinode", "5_fsdp", "6_pipeline")
LINES = range(60, 91)  # of a program
MOST_CHANGED = 15  # lines of a program that are not in the one before, or the other way round
LAST = re.compile(r"^(?:\[0\] )?epoch (\d+): .* accuracy ([\d.]+) %, weights ([0-9a-f]{16})$", re.M)


def lines_of(name):
    return (SOURCE / "examples/tutorial" / f"{name}.cpp").read_text(encoding="utf-8").splitlines()


def difference(before, after):
    """A unified diff with a line of context and without header."""
    return [line for line in difflib.unified_diff(lines_of(before), lines_of(after), n=1,
                                                  lineterm="")
            if not line.startswith(("---", "+++"))]


class Page(unittest.TestCase):
    def test_a_program_is_read_in_one_sitting(self):
        for name in NAMES:
            self.assertIn(len(lines_of(name)), LINES, name)

    def test_a_step_changes_little(self):
        for before, after in zip(NAMES, NAMES[1:]):
            signs = [line[0] for line in difference(before, after)]
            self.assertLessEqual(max(signs.count("+"), signs.count("-")), MOST_CHANGED, after)

    def test_the_page_shows_the_differences(self):
        page = (SOURCE / "docs/tutorial.md").read_text(encoding="utf-8")
        expected = ["\n".join(difference(*pair)) for pair in zip(NAMES, NAMES[1:])]
        self.assertEqual(re.findall(r"```diff\n(.*?)\n```", page, re.S), expected)


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="c10d-tutorial-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        token = self.folder / "token"
        token.touch(0o600)
        token.write_bytes(os.urandom(32))
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("C10D_", "PET_"))}
        self.environment["C10D_TOKEN_FILE"] = str(token)

    def start(self, *command):
        process = subprocess.Popen([str(word) for word in command], text=True, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.environment)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def end(self, process):
        """Epoch, accuracy and digest of each line."""
        out, errors = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 0, out + errors)
        return [(int(epoch), float(accuracy), digest)
                for epoch, accuracy, digest in LAST.findall(out)]

    def run_ranks(self, ranks, name, epochs, directory="", *more):
        words = [directory, *more] if name[0] > "2" else []
        return self.end(self.start(PROGRAMS / "c10d-run", "-n", ranks, PROGRAMS / name, epochs,
                                   *words))

    def test_one_rank_of_ddp_computes_what_one_process_does(self):
        alone = self.end(self.start(PROGRAMS / "1_single", 10))
        self.assertEqual([epoch for epoch, _, _ in alone], list(range(10)))
        self.assertGreater(alone[-1][1], 93)
        self.assertEqual(self.run_ranks(1, "2_ddp", 10), alone)

    def test_a_run_that_resumes_ends_as_one_that_was_not_stopped(self):
        whole = self.run_ranks(2, "2_ddp", 6)
        self.assertEqual(self.run_ranks(2, "3_checkpoint", 6, "whole"), whole)
        self.assertEqual(self.run_ranks(2, "3_checkpoint", 4, "cut"), whole[:4])
        self.assertEqual(self.run_ranks(2, "3_checkpoint", 6, "cut"), whole[4:])

    def test_the_last_three_agree_at_any_number_of_ranks(self):
        expected = self.run_ranks(1, "4_multinode", 6, "1")
        for ranks, name in ((3, "4_multinode"), (2, "5_fsdp"), (3, "5_fsdp"), (2, "6_pipeline")):
            self.assertEqual(self.run_ranks(ranks, name, 6, f"{ranks}-{name}"), expected, name)
        # One checkpoint, continued by other programs and other numbers of ranks.
        self.assertEqual(self.run_ranks(2, "4_multinode", 2, "shared"), expected[:2])
        self.assertEqual(self.run_ranks(3, "5_fsdp", 4, "shared"), expected[2:4])
        self.assertEqual(self.run_ranks(2, "6_pipeline", 6, "shared"), expected[4:])

    def test_a_job_over_two_hosts_has_the_same_weights(self):
        # Bound but not listening: nobody else gets the port, and host 0 can still listen there.
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            hosts = [self.start(PROGRAMS / "c10d-run", "--nnodes=2", f"--node-rank={host}",
                                "--master-addr=127.0.0.1", f"--master-port={port}",
                                "--nproc-per-node=1", PROGRAMS / "4_multinode", 2, "checkpoint",
                                BACKEND)
                     for host in (0, 1)]
            first, second = [self.end(host) for host in hosts]
        self.assertEqual(first, self.run_ranks(1, "4_multinode", 2, "alone"))
        self.assertEqual(second, [])

    def test_a_pipeline_of_two_layers_refuses_other_numbers_of_ranks(self):
        for ranks in (1, 3):
            process = self.start(PROGRAMS / "c10d-run", "-n", ranks, PROGRAMS / "6_pipeline")
            _, errors = process.communicate(timeout=DEADLINE)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(f"start 2 ranks, not {ranks}", errors)


if __name__ == "__main__":
    SOURCE, PROGRAMS, BACKEND = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    unittest.main(argv=sys.argv[:1], verbosity=2)
