#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads the stand-in for the driver as a GPU was read, and compares.

usage: same_as_real.py PROGRAM STAND_IN EXPECTED KNOWN_DIFFERENCES
"""
import os
import subprocess
import sys

BEHAVIOURS = ("driver", "capture", "kernel.", "error", "memory", "stream", "blocking")
NOT_MODELLED = ("memory.vmm", "memory.multicast")


def main(program, stand_in, expected, known):
    with open(known, encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    allowed = {(behaviour, fact, value) for behaviour, fact, value, _ in rows}
    command = [program, "--cuda", stand_in, "--expected", expected, "--jobs", "4",
               "--patience", "4"]
    for name in BEHAVIOURS:
        command += ["--only", name]
    for name in NOT_MODELLED:
        command += ["--skip", name]
    # The readings are those of a machine with one GPU. A sanitizer leaves SIGSEGV to the program:
    # it is one of the facts.
    env = dict(os.environ, FAKE_GPU="devices=1")
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    run = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, timeout=250,
                         check=False)
    lines = run.stdout.splitlines()
    different = [line for line in lines if line.startswith("DIFFERENT: ")]
    wrong = []
    for line in different:
        behaviour, fact, rest = line[len("DIFFERENT: "):].split(" ", 2)
        value = rest.removeprefix("is ").split(", expected ")[0]
        if (behaviour, fact, value) not in allowed:
            wrong.append(line)
    print("\n".join(wrong))
    print(lines[-1] if lines else "it read nothing")
    read = sum(line.startswith("{") for line in lines)
    return 0 if read >= 30 and run.returncode in (0, 1) and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
