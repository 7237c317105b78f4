#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads the stand-in for the driver as a GPU was read, and compares.

usage: same_as_real.py PROGRAM STAND_IN EXPECTED KNOWN_DIFFERENCES
"""
import json
import os
import subprocess
import sys

# Behaviours of NCCL, times, and what the stand-in does not have.
NOT_READ = ("nccl", "cost.", "memory.vmm", "memory.multicast")
SANITIZERS = {"ASAN_OPTIONS": ":handle_segv=0", "TSAN_OPTIONS": ":handle_segv=0:die_after_fork=0"}


def rows(path):
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]


def main(program, stand_in, expected, known):
    known_rows = rows(known)
    allowed = {tuple(row[:3]) for row in known_rows}
    command = [program, "--cuda", stand_in, "--expected", expected, "--jobs", "4",
               "--patience", "4"]
    for name in NOT_READ:
        command += ["--skip", name]
    # The readings are those of a machine with one GPU. A sanitizer leaves SIGSEGV to the program:
    # it is one of the facts. Some behaviours fork when they have threads, and start others.
    env = dict(os.environ, FAKE_GPU="devices=1")
    for name, options in SANITIZERS.items():
        env[name] = env.get(name, "") + options
    run = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, timeout=250,
                         check=False)
    lines = run.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("unproven: ")]
    found = set()
    for line in lines:
        if not line.startswith("DIFFERENT: "):
            continue
        behaviour, fact, rest = line.removeprefix("DIFFERENT: ").split(" ", 2)
        row = (behaviour, fact, rest.removeprefix("is ").split(", expected ")[0])
        found.add(row)
        if row not in allowed:
            wrong.append(line)
    # Those of time depend on how busy the machine is.
    wrong += ["no longer different: " + " ".join(row[:3]) for row in known_rows
              if tuple(row[:3]) not in found and not row[3].startswith("time: ")]
    read = {json.loads(line)["name"] for line in lines if line.startswith("{")}
    missing = {row[0] for row in rows(expected) if not row[0].startswith(NOT_READ)} - read
    wrong += [f"not read: {name}" for name in sorted(missing)]
    print("\n".join(wrong))
    print(lines[-1] if lines else "it read nothing")
    return 0 if run.returncode in (0, 1) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
