# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of torch.distributed, with gloo and with c10d in its place.

    pytorch_suite.py [-n RANKS] [--below BACKEND] [-k WORD] [--json FILE] gloo|c10d|both

The tests are those of torch.testing._internal.distributed.distributed_test that PyTorch runs for
gloo on the CPU. Only the name of the backend is another. `both` runs both, and fails when a
test that passes on gloo fails on c10d, unless reason() has one.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

# Tests that pass on gloo and cannot pass on another backend: docs/pytorch.md has the same list.
KNOWN = {
    "test_ddp_logging_data_cpu": "PyTorch calls every backend but its own \"custom\" in this log",
}
KNOWN_1 = "PyTorch 1 refuses monitored_barrier() for a group whose name is not gloo"


def reason(name):
    """Why a test cannot pass; None if it can."""
    import torch
    if "monitored_barrier" in name and torch.__version__.startswith("1."):
        return KNOWN_1
    return KNOWN.get(name)


class Name(str):
    """A name that also equals gloo, where a test asks what gloo can do."""

    def __eq__(self, other):
        return other == "gloo" or str.__eq__(self, other)

    __hash__ = str.__hash__


def suite(backend):
    """The test case, with `backend` in the place of gloo."""
    os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
    os.environ["BACKEND"] = "gloo"  # decides which tests run
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
    import torch
    from torch.testing._internal.distributed import distributed_test as module

    if backend == "c10d":
        import c10d_torch  # noqa: F401

        module.BACKEND = Name("c10d")

    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            # As upstream, but ranks need not import PyTorch once more.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Suite


class Outcomes(unittest.TextTestResult):
    """Prints what became of each test, and keeps it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.of = {}

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.of[test._testMethodName] = "passed"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.of[test._testMethodName] = "skipped"

    def addError(self, test, error):
        super().addError(test, error)
        self.of[test._testMethodName] = "failed"

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.of[test._testMethodName] = "failed"

    def stopTest(self, test):
        super().stopTest(test)
        name = test._testMethodName
        if self.of[name] != "skipped":
            print(f"{self.of[name]} {name} {time.monotonic() - self.began:.1f} s", flush=True)


def run(backend, words):
    tests = unittest.TestLoader().loadTestsFromTestCase(suite(backend))
    chosen = unittest.TestSuite(
        t for t in tests if not words or any(w in t._testMethodName for w in words))
    runner = unittest.TextTestRunner(stream=sys.stderr, resultclass=Outcomes, verbosity=0)
    return runner.run(chosen).of


def run_in_process(backend, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-B", __file__, "--json", file.name, "-n", str(arguments.n),
                   "--below", arguments.below, backend]
        for word in arguments.k:
            command += ["-k", word]
        subprocess.run(command)
        return json.load(open(file.name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("-k", action="append", default=[])
    parser.add_argument("--below", default="native")
    parser.add_argument("--json")
    parser.add_argument("what", choices=["gloo", "c10d", "both"])
    arguments = parser.parse_args()
    os.environ["WORLD_SIZE"] = str(arguments.n)
    os.environ["TORCH_C10D_BACKEND"] = arguments.below
    if arguments.what == "both":
        gloo, ours = (run_in_process(backend, arguments) for backend in ("gloo", "c10d"))
        bad = [n for n, o in gloo.items() if o == "passed" and ours.get(n) != "passed"]
        for name in bad:
            print(f"{ours.get(name)} on c10d: {name}: {reason(name) or 'NO REASON IS KNOWN'}")
        print(f"{arguments.n} ranks, over {arguments.below}: {len(gloo)} tests;",
              f"gloo passes {sum(o == 'passed' for o in gloo.values())},",
              f"c10d passes {sum(o == 'passed' for o in ours.values())}")
        sys.exit(any(reason(name) is None for name in bad))
    outcomes = run(arguments.what, arguments.k)
    if arguments.json:
        json.dump(outcomes, open(arguments.json, "w"))


if __name__ == "__main__":
    main()
