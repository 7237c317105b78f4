#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Breaks the code of the GPU parts in one line at a time, as mutants.txt says, and expects the test
that is named there to fail.

usage: mutants.py BUILD_FOLDER [NAME...] | --check

The tests must be built; the tree and the build stay as they are. Exit status 1 if a mutant
survives. --check only looks whether the lines to break are still there.
"""
import pathlib
import sys
import time
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parent))
from relink import Build  # noqa: E402  pylint: disable=wrong-import-position

PATIENCE = 150  # seconds; a test that takes longer hangs


@dataclass
class Mutant:
    name: str
    file: str
    before: str
    after: str
    test: str
    only: str = "*"

    def text(self):
        lines = (ROOT / self.file).read_text(encoding="utf-8").splitlines(keepends=True)
        at = [i for i, line in enumerate(lines) if line.strip() == self.before]
        if len(at) != 1:
            sys.exit(f"{self.name}: this line is {len(at)} times in {self.file}: {self.before}")
        lines[at[0]] = self.after + "\n"
        return "".join(lines)


def listed():
    text = (HERE / "mutants.txt").read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for block in text.split("\n\n"):
        if not block.strip():
            continue
        name, file, before, after, test = (line.strip() for line in block.strip().splitlines())
        if before[:2] != "- " or after[:1] != "+":
            sys.exit(f"mutants.txt: {name}: the third line begins with '- ', the fourth with '+'")
        yield Mutant(name, file, before[2:], after[1:].strip(), *test.split())


def killed(build, mutant):
    """How the test ends with the mutant."""
    to = build.folder / "mutants"
    build.overlay(to)
    build.replace(str(ROOT / mutant.file), to, [mutant.test], mutant.text())
    status, said = build.run(mutant.test, to, PATIENCE, f"--gtest_filter={mutant.only}")
    if status is None:
        return "hangs"
    return f"fails ({status}){first_reason(said)}" if status else ""


def first_reason(said):
    lines = said.splitlines()
    for mark in (": Failure", "process ", "signal", "rror"):
        for i, line in enumerate(lines):
            if mark in line:
                return ": " + " ".join(text.strip() for text in lines[i + 1:i + 5])[:160]
    return ""


def main(folder, *names):
    if folder == "--check":
        print(f"{len([mutant.text() for mutant in listed()])} mutants can be made")
        return 0
    build = Build(folder)
    mutants = [m for m in listed() if not names or m.name in names]
    for test, only in sorted({(m.test, m.only) for m in mutants}):
        status, said = build.run(test, build.folder, PATIENCE, f"--gtest_filter={only}")
        if status != 0 or "Running 0 tests" in said:
            sys.exit(f"{said}\n{test} {only} does not pass without a mutant")
    alive = []
    for mutant in mutants:
        start = time.monotonic()
        end = killed(build, mutant)
        print(f"{mutant.name:32} {end or 'SURVIVES ' + mutant.test}"
              f" after {time.monotonic() - start:.0f} s", flush=True)
        if not end:
            alive.append(mutant.name)
    print(f"{len(mutants) - len(alive)} of {len(mutants)} mutants make a test fail")
    return bool(alive)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
