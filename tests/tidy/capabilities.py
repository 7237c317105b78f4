#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds docs/capabilities.md to what ctest runs: capabilities.py FILE BUILD prints one line per
finding and exits 1 if there is any.

Every R and E number has one row with its name and a status. A row that is tested names tests: in
the column Test the words in backticks are tests of ctest and, behind one, cases of it.
"""
import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
from pathlib import Path

NUMBERS = [f"R{n}" for n in range(1, 37)] + [f"E{n}" for n in range(13)]
TESTED, STATUSES = ("tested", "partly"), ("tested", "partly", "measured", "on demand", "no")


def rows(text):
    """Line number, number, and the columns from the second on, of each row of a capability."""
    for line, row in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        if cells and re.fullmatch(r"[RE]\d+", cells[0]):
            yield line, cells[0], cells[1:]


def named_tests(cell):
    """Each test with its cases."""
    tests = {}
    for word in re.findall(r"`([^`]+)`", cell):
        if "." in word:
            cases = tests.setdefault(word, [])
        elif tests:
            cases.append(word)
    return tests


def check_row(number, cells, default, large, cases_of):
    """What is wrong with a row. `default` and `large` are names of tests, the second those that run
    on demand; cases_of() has those of a test, None where this build leaves it out."""
    status = re.match(r"\*?(" + "|".join(STATUSES) + r")\b", cells[-1])
    if not cells[0] or not status:
        return [f"{number} needs a name and one of the statuses {', '.join(STATUSES)}"]
    problems, run = [], 0
    tests = named_tests(cells[-2])
    for test, cases in tests.items():
        matching = fnmatch.filter(default, test)
        run += len(matching)
        if not matching and not fnmatch.filter(large, test):
            problems.append(f"{number}: ctest knows no {test}")
        elif not matching and "on demand" not in cells[-1] + cells[-2]:
            problems.append(f"{number}: {test} runs on demand, and the row does not say so")
        known = cases_of(test) if cases and test in default else None
        for case in cases if known is not None else ():
            if not any(name.startswith(case) for name in known):
                problems.append(f"{number}: {test} has no case {case}" +
                                ("" if known else ": it is not built"))
    if status[1] in TESTED and not run:
        problems.append(f"{number} is {status[1]}, and names no test that runs by default")
    if status[1] == "on demand" and not tests:
        problems.append(f"{number} is on demand, and names no test")
    if status[1] == "no" and tests:
        problems.append(f"{number} is not there, and names a test")
    return problems


def findings(text, default, large, cases_of):
    found, seen = [], {}
    for line, number, cells in rows(text):
        if number in seen:
            found.append(f"{line}: {number} stands in line {seen[number]} already")
        seen[number] = line
        if len(cells) < 3:
            found.append(f"{line}: {number} needs a name, a test and a status")
            continue
        found += [f"{line}: {problem}"
                  for problem in check_row(number, cells, default, large, cases_of)]
    found += [f"1: there is no {number}" for number in NUMBERS if number not in seen]
    return found + [f"{seen[number]}: {number} is unknown" for number in seen
                    if number not in NUMBERS]


def commands(build, *options):
    """Of each test of ctest its command."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *options],
                            stdout=subprocess.PIPE, check=True, text=True).stdout
    return {test["name"]: test.get("command") for test in json.loads(listed)["tests"]}


def cases_of_command(command):
    """The cases that a command runs; None where it only says that the test is left out."""
    if not command:
        return []  # its program is not built
    if Path(command[0]).name == "cmake":
        return None
    scripts = [word for word in command[:3] if word.endswith(".py")]
    if scripts:
        tree = ast.parse(Path(scripts[0]).read_text(encoding="utf-8"))
        return [node.name.removeprefix("test_") for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    listed = subprocess.run([*command, "--gtest_list_tests"], stdout=subprocess.PIPE, check=True,
                            text=True).stdout
    return re.findall(r"^  (\w+)", listed, re.M)


def main(arguments):
    if len(arguments) != 3:
        print("usage: capabilities.py FILE BUILD", file=sys.stderr)
        return 2
    file, build = arguments[1:]
    default = commands(build)
    large = commands(build, "-C", "large")
    found = findings(Path(file).read_text(encoding="utf-8"), default, large,
                     lambda test: cases_of_command(default[test]))
    for finding in found:
        print(f"{os.path.basename(file)}:{finding}")
    print(f"capabilities: {len(NUMBERS)} rows, {len(default)} tests, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
