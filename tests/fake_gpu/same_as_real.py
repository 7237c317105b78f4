#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads a stand-in as a GPU was read, and compares.

usage: same_as_real.py PROGRAM EXPECTED KNOWN_DIFFERENCES DRIVER [NCCL]

Without NCCL it reads what the driver does, with it what NCCL does.
"""
import json
import os
import subprocess
import sys

# Times, and what the stand-in does not have.
NOT_OF_THE_DRIVER = ("nccl", "cost.", "memory.vmm", "memory.multicast")
NOT_OF_NCCL = ("nccl2.cost", "nccl2.timing", "nccl4.timing")
SANITIZERS = {"ASAN_OPTIONS": ":handle_segv=0", "TSAN_OPTIONS": ":handle_segv=0:die_after_fork=0"}


def rows(path):
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]


def main(program, expected, known, driver, nccl=None):
    known_rows = rows(known)
    allowed = {tuple(row[:3]) for row in known_rows}
    # Those of NCCL wait most of their time.
    command = [program, "--cuda", driver, "--expected", expected, "--patience", "4",
               "--jobs", "12" if nccl else "4"]
    if nccl:
        command += ["--nccl", nccl, "--only", "nccl"]
    left_out = NOT_OF_NCCL if nccl else NOT_OF_THE_DRIVER
    for name in left_out:
        command += ["--skip", name]
    # The readings are those of a machine with one GPU. A sanitizer leaves SIGSEGV to the program:
    # it is one of the facts. Some behaviours fork when they have threads, and start others.
    env = dict(os.environ, FAKE_GPU="devices=1")
    for name, options in SANITIZERS.items():
        env[name] = env.get(name, "") + options
    run = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, timeout=250,
                         check=False)
    lines = run.stdout.splitlines()
    # Also what no GPU has shown is written down.
    wrong = [line for line in lines if line.startswith(("unproven: ", "NOT AS ASSUMED: "))
             and not line.endswith(", as assumed")]
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
    wanted = {row[0] for row in rows(expected) if row[0].startswith("nccl") == bool(nccl)}
    wrong += [f"not read: {name}" for name in sorted(wanted - read)
              if not name.startswith(left_out)]
    print("\n".join(wrong))
    print(lines[-1] if lines else "it read nothing")
    return 0 if run.returncode in (0, 1) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
