#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A user's program with a user's flags: user_flags.py INCLUDE COMPILER[,COMPILER...] SOURCE...

Every public header in one source, and the given programs, compile without a warning."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion",
         "-Wshadow", "-Werror", '-DTUTORIAL_DATA=""']


def complaints(compiler, include, name, words, source=None):
    """What the compiler says; name stands for the source, which is one of the words or given."""
    folders = ["-I", include, "-I", str(pathlib.Path(include).parent)]  # of the tutorial's headers
    words = [*words, *(["-fsyntax-only", "-x", "c++", "-"] if source else [])]
    done = subprocess.run([compiler, *FLAGS, *folders, *words], input=source, text=True,
                          capture_output=True, timeout=300, check=False)
    return "" if done.returncode == 0 else f"{compiler}: {name}:\n{done.stderr}"


def findings(compiler, include, headers, sources):
    """What the compiler says to the headers, and to the sources: these begin with all headers, so
    that it reads them only once."""
    with tempfile.TemporaryDirectory() as folder:
        head = f"{folder}/headers.h"
        pathlib.Path(head).write_text(headers, encoding="utf-8")
        found = complaints(compiler, include, "all public headers",
                           ["-x", "c++-header", head, "-o", f"{head}.gch"])
        if found:
            return [found]
        words = ["-Winvalid-pch", "-include", head]
        # A program that warns, so that this test can fail.
        if not complaints(compiler, include, "", words, "int f(long x) { return x; }\n"):
            return [f"{compiler} lets a conversion pass\n"]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as jobs:
            answers = jobs.map(lambda file: complaints(compiler, include, file, words,
                                                       sources[file]), sources)
            return [what for what in answers if what]


def main():
    include, compilers, files = sys.argv[1], sys.argv[2].split(","), sys.argv[3:]
    # Without what needs <mpi.h>, which has warnings of its own, or LibTorch.
    sources = {file: pathlib.Path(file).read_text(encoding="utf-8") for file in files
               if not file.endswith("inside_mpi.cpp")}
    headers = "".join(f'#include "{header.relative_to(include)}"\n'
                      for header in sorted(pathlib.Path(include).rglob("*.h"))
                      if not re.search(r"mpi\.h|c10d/torch", str(header)))
    found = [what for compiler in compilers
             for what in findings(compiler, include, headers, sources)]
    print("".join(found), end="")
    print(f"{len(sources)} sources, compilers: {' '.join(compilers)}: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
