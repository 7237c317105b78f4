# SPDX-License-Identifier: BSD-3-Clause
"""The columns torch:gloo and torch:c10d of c10d-bench. Arguments: c10d-bench, c10d-run, Python."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH, RUN, PYTHON = sys.argv[1:4]
GLOO, C10D = f"torch:gloo@{PYTHON}", f"torch:c10d@{PYTHON}"
QUICK = "--blocks 1 --time 5ms --launches 1".split()


def bench(*arguments):
    """What --json says."""
    ended = subprocess.run([BENCH, *arguments, *QUICK, "--json", "-", "-q"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if ended.returncode != 0:
        raise AssertionError(f"exit code {ended.returncode}: {ended.stderr}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def of_kind(records, kind):
    return [record for record in records if record["t"] == kind]


class Columns(unittest.TestCase):
    def test_ops_end_with_the_right_data(self):
        ops = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather",
               "scatter", "all_to_all", "barrier", "send"]
        records = bench("compare", "-n", "2", "-B", f"native,{GLOO},{C10D}", *ops, "-s",
                        "8,64K", "-d", "f32,i64", "--place", "both")
        cells = of_kind(records, "cell")
        self.assertEqual({cell["wrong"] for cell in cells}, {0})
        self.assertEqual({(cell["op"], cell["backend"]) for cell in cells
                          if cell["backend"] == C10D}, {(op, C10D) for op in ops})
        compared = {(record["other"], record["base"]) for record in of_kind(records, "cmp")}
        self.assertEqual(compared, {(GLOO, "native"), (C10D, "native")})
        sets = of_kind(records, "env")
        self.assertEqual(sets[1]["set"], GLOO, "they run apart from native, in one process")
        self.assertIn("PyTorch", sets[1]["libs"][C10D]["about"])

    def test_what_pytorch_cannot_do_is_a_skip_with_its_reason(self):
        records = bench("run", "-n", "2", "-B", GLOO, "all_reduce", "scan", "all_gather_v",
                        "-s", "48", "-d", "f32,i16,u16", "-o", "sum,band,premul_sum")
        reasons = {(skip["op"], skip["dtype"], skip.get("redop")): skip["reason"]
                   for skip in of_kind(records, "skip")}
        self.assertIn("premul_sum", reasons["all_reduce", "f32", "premul_sum"])
        self.assertIn("u16", reasons["all_reduce", "u16", "sum"])
        self.assertEqual(reasons["scan", "f32", "sum"], "PyTorch has no scan")
        said = reasons["all_reduce", "i16", "sum"]  # PyTorch's own words
        self.assertRegex(said, "all_reduce of torch.int16: .+")
        self.assertTrue(any("shards" in reason for (op, *_), reason in reasons.items()
                            if op == "all_gather_v"), reasons)

    def test_ddp_trains_on_either_backend(self):
        for backend in ("gloo", "c10d"):
            ended = subprocess.run(
                [RUN, "-n", "2", PYTHON, "-B", str(pathlib.Path(BENCH).with_name("torch_ddp.py")),
                 "--model", "mlp", "--steps", "2", "--backend", backend],
                text=True, stdout=subprocess.PIPE, timeout=100, check=True)
            self.assertRegex(ended.stdout, f"PyTorch .* on {backend}: median step [0-9.]+ ms")

    def test_a_python_that_cannot_be_used_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = pathlib.Path(folder) / "python"  # sees no package
            bare.write_text(f'#!/bin/sh\nexec {PYTHON} -S "$@"\n', encoding="utf-8")
            bare.chmod(0o755)
            for column, why in (("torch:gloo@/no/python", "cannot start /no/python"),
                                ("torch:c10d@/bin/false", "/bin/false is no Python"),
                                ("torch:gloo@/bin/echo", "/bin/echo is no Python"),
                                (f"torch:gloo@{bare}", "has no PyTorch; install it"),
                                ("torch:mpi", "there are torch:gloo and torch:c10d")):
                ended = subprocess.run([BENCH, "run", "-n", "2", "-B", column, "-s", "8"],
                                       text=True, stderr=subprocess.PIPE, timeout=60, check=False)
                self.assertIn(why, ended.stderr)
                self.assertEqual(ended.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
