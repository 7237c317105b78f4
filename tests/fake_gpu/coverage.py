#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How many lines of src/device and src/backends/nccl the tests on the stand-ins run, by gcov.

usage: coverage.py BUILD_FOLDER

The tests must be built, by g++; the tree and the build stay as they are. Ranks that a test kills do
not count. Prints each file and the lines that never ran; exit status 1 if it is less than 95 %.
"""
import collections
import json
import pathlib
import subprocess
import sys

from relink import Build

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("src/device/", "src/backends/nccl/")
# Each with what makes it shorter here.
TESTS = {"unit.device": [], "unit.device.no_driver": [], "unit.device.half_driver": [],
         "unit.device.no_device": [], "unit.device.broken_driver": [], "unit.group_gpu": [],
         "fake_gpu.open": [], "conformance.nccl.2.28.9": ["--thin=4"],
         "conformance.nccl.in_f32": [], "contract.gpu.2.28.9": [], "nccl.graph": [],
         "nccl.graph.broken": [], "nccl.memory.plain": [], "nccl.memory.windows": [],
         "nccl.memory.old": [], "nccl.memory.none": [], "nccl.memory.no_window": [],
         "nccl.calls.2.18.3": [], "nccl.calls.2.28.9": [], "nccl.settings": [],
         "fault.nccl.ranks": [], "fault.nccl.calls": ["--seeds=4"]}
PATIENCE = 600  # seconds, of one test
WANTED = 95  # %


def instrument(build, to):
    """Libraries and programs in `to` that count."""
    made = {}
    products = [*build.libraries(), *{build.product_of(test) for test in TESTS}]
    for product in products:
        counting = {}
        for output in build.objects_in(build.link_of(product)):
            sources = [str(pathlib.Path(source).relative_to(ROOT))
                       for source in build.sources_in(output)
                       if pathlib.Path(source).is_relative_to(ROOT)]
            if any(source.startswith(FOLDERS) for source in sources):
                if output not in made:
                    made[output] = build.compile(output, to / "objects",
                                                 flags=["--coverage", "-O1", "-w"])
                counting[output] = made[output]
        if counting:
            build.link(product, to, counting, ["--coverage"])


def counts(folder):
    """How often each line of each file has run."""
    lines = collections.defaultdict(lambda: collections.defaultdict(int))
    for data in sorted(folder.glob("*.gcda")):
        text = subprocess.run(["gcov", "--json-format", "--stdout", data], cwd=folder, text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        for file in json.loads(text)["files"]:
            path = pathlib.Path(file["file"])
            if not path.is_relative_to(ROOT):
                continue
            name = str(path.relative_to(ROOT))
            if name.startswith(FOLDERS):
                for line in file["lines"]:
                    lines[name][line["line_number"]] += line["count"]
    return lines


def ranges(numbers):
    """[1, 2, 3, 7] as "1-3, 7"."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def main(folder):
    build = Build(folder)
    to = build.folder / "coverage"
    build.overlay(to)
    instrument(build, to)
    failed = False
    for test, arguments in TESTS.items():
        status, said = build.run(test, to, PATIENCE, *arguments)
        if status != 0:
            failed = True
            print(f"{said}\n{test} fails", file=sys.stderr)
    total = never = 0
    for name, lines in sorted(counts(to / "objects").items()):
        missing = [number for number, count in lines.items() if count == 0]
        total, never = total + len(lines), never + len(missing)
        print(f"{name:40} {len(lines) - len(missing):4} of {len(lines):4} lines"
              f"  {ranges(missing)}")
    share = 100 * (total - never) / total
    print(f"{share:.1f} % of {total} lines")
    return failed or share < WANTED


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
