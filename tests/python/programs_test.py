# SPDX-License-Identifier: BSD-3-Clause
"""The examples, and the programs of docs/python.md: programs_test.py ROOT C10D-RUN."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, RUN = Path(sys.argv.pop(1)), sys.argv.pop(1)


def run(ranks, program):
    ended = subprocess.run([RUN, "-n", str(ranks), sys.executable, "-B", str(program)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


class Programs(unittest.TestCase):
    def test_hello(self):
        output = run(3, ROOT / "examples/python/hello_all_reduce.py")
        self.assertIn("rank 2 of 3: [6. 6. 6.]", output)

    def test_training_gives_the_same_bits(self):
        outputs = {n: run(n, ROOT / "examples/python/train_ddp.py") for n in (1, 2, 4)}
        weights = {re.search("weights (.+)", output)[1] for output in outputs.values()}
        self.assertEqual(len(weights), 1, outputs)
        self.assertGreater(float(re.search(r"(\S+) % of", outputs[1])[1]), 90)

    def test_the_page(self):
        page = (ROOT / "docs/python.md").read_text()
        programs = re.findall(r"\n```python\n(.*?)\n```\n", page, re.DOTALL)
        self.assertGreaterEqual(len(programs), 5)
        for program in programs:
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
                file.write(program + "\n")
                file.flush()
                for ranks in (2, 3):
                    run(ranks, file.name)


if __name__ == "__main__":
    unittest.main()
