#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A user's program with a user's flags: user_flags.py INCLUDE COMPILER[,COMPILER...] SOURCE...

Every public header in one source, and the given programs, compile without a warning."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
         "-Wsign-conversion", "-Wshadow", "-Werror", '-DTUTORIAL_DATA=""']


def complaints(compiler, include, name, source):
    """What the compiler says to the source."""
    folders = ["-I", include, "-I", str(pathlib.Path(include).parent)]  # of the tutorial's headers
    done = subprocess.run([compiler, *FLAGS, *folders, "-x", "c++", "-"], input=source, text=True,
                          capture_output=True, timeout=300, check=False)
    return "" if done.returncode == 0 else f"{compiler}: {name}:\n{done.stderr}"


def main():
    include, compilers, files = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
    # Without what needs <mpi.h>, which has warnings of its own.
    sources = {file: pathlib.Path(file).read_text(encoding="utf-8") for file in files
               if not file.endswith("inside_mpi.cpp")}
    headers = [header for header in sorted(pathlib.Path(include).rglob("*.h"))
               if header.name != "mpi.h"]
    sources["all public headers"] = "".join(
        f'#include "{header.relative_to(include)}"\n' for header in headers)
    # A program that warns, so that this test can fail.
    if not complaints(compilers[0], include, "", "int f(long x) { return x; }\n"):
        sys.exit(f"{compilers[0]} lets a conversion pass")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as jobs:
        found = [what for what in jobs.map(
            lambda job: complaints(job[0], include, *job[1]),
            [(compiler, source) for compiler in compilers for source in sources.items()]) if what]
    print("".join(found), end="")
    print(f"{len(sources)} sources, compilers: {' '.join(compilers)}: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
