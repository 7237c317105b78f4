#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What same_as_real prints and returns without a GPU: test_same_as_real.py PROGRAM EXPECTED"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, EXPECTED = sys.argv[1:3]
SELF = """self.child\tend\texit 0
self.child\texit\t7
self.child\tcrash\tsignal 6
self.child\thang\thangs
self.crash\tend\tsignal 6
self.crash\tbefore\t1
self.facts\tend\texit 0
self.facts\tnumber\t42
self.facts\tword\ta "word" with a break
self.facts\tyes\tyes
self.fail\tend\texit 4
self.hang\tend\ttimeout
self.hang\tbefore\t1
"""


def run(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)


class SameAsReal(unittest.TestCase):
    def compared(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
            file.write(text)
            file.flush()
            return run("--only", "self.", "--jobs", "4", "--expected", file.name)

    def test_one_line_for_each_behaviour(self):
        lines = [json.loads(line) for line in run("--only", "self.").stdout.splitlines()]
        ends = {line["name"]: line["end"] for line in lines}
        self.assertEqual(ends, {"self.facts": "exit 0", "self.crash": "signal 6",
                                "self.hang": "timeout", "self.fail": "exit 4",
                                "self.child": "exit 0"})
        facts = next(line for line in lines if line["name"] == "self.facts")
        self.assertEqual(facts["facts"],
                         {"number": "42", "word": 'a "word" with a break', "yes": "yes"})
        self.assertEqual(facts["notes"], {"time": "1.5", "patience": "1"})

    def test_patience_reaches_the_behaviour(self):
        line = json.loads(run("--only", "self.facts", "--patience", "3").stdout)
        self.assertEqual(line["notes"]["patience"], "3")

    def test_the_same(self):
        done = self.compared("# a comment\n" + SELF + "another.behaviour\tfact\t1\n")
        self.assertIn("13 facts, 0 different, 0 unproven", done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_different(self):
        done = self.compared(SELF.replace("number\t42", "number\t43"))
        self.assertIn("DIFFERENT: self.facts number is 42, expected 43", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_unproven(self):
        done = self.compared(SELF.replace("self.facts\tyes\tyes\n", ""))
        self.assertIn("unproven: self.facts yes is yes", done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_unproven_and_as_assumed(self):
        done = self.compared(SELF.replace("yes\tyes", "yes\tyes\tunproven"))
        self.assertIn("unproven: self.facts yes is yes, as assumed", done.stdout)
        self.assertIn("13 facts, 0 different, 1 unproven", done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_unproven_and_not_as_assumed(self):
        done = self.compared(SELF.replace("yes\tyes", "yes\tno\tunproven") +
                             "self.facts\tanother\t1\tunproven\n")
        self.assertIn("NOT AS ASSUMED: self.facts yes is yes, assumed no", done.stdout)
        self.assertIn("NOT AS ASSUMED: self.facts another was not read, assumed 1", done.stdout)
        self.assertIn("13 facts, 0 different, 2 unproven", done.stdout)
        self.assertEqual(done.returncode, 0)

    def test_not_read(self):
        done = self.compared(SELF + "self.facts\tanother\t1\n")
        self.assertIn("DIFFERENT: self.facts another was not read, expected 1", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_bad_file(self):
        self.assertEqual(self.compared("no tabs\n").returncode, 2)
        self.assertEqual(self.compared("self.facts\tyes\tyes\tproven\n").returncode, 2)
        self.assertEqual(run("--only", "self.facts", "--expected", "/nowhere").returncode, 2)

    def test_what_is_read_can_be_expected(self):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "values.tsv")
            self.assertEqual(run("--only", "self.facts", "--write", file).returncode, 0)
            self.assertEqual(run("--only", "self.facts", "--expected", file).returncode, 0)

    def test_without_gpu(self):
        done = run("--cuda", "/nowhere/libcuda.so.1", "--only", "driver.")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("same_as_real: no CUDA driver: /nowhere/libcuda.so.1", done.stderr)

    def test_usage(self):
        self.assertEqual(run("--nonsense").returncode, 2)
        self.assertEqual(run("--only").returncode, 2)
        self.assertEqual(run("--only", "nobody").returncode, 2)

    def test_everything_has_been_read_on_hardware_or_is_called_unproven(self):
        names = {name for name in run("--list").stdout.split() if not name.startswith("self.")}
        lines = [line.rstrip("\n").split("\t") for line in open(EXPECTED, encoding="utf-8")
                 if not line.startswith("#")]
        self.assertEqual({tuple(line[3:]) for line in lines}, {(), ("unproven",)})
        self.assertEqual({line[0] for line in lines}, names)
        self.assertEqual(len({tuple(line[:2]) for line in lines}), len(lines))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
