#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Holds the C interface to what programs were compiled against: abi_test.py SOURCE CC LIBRARY.

It compares the types of every function and the numbers of every constant of include/c10d/c with
c10d_c.abi beside this file, by abidiff (Debian: abigail-tools), and the functions with those that
LIBRARY exports. The types are those of the headers, in a small source that CC compiles, so that
they do not depend on how the library was built.

With --renew as the last argument it writes c10d_c.abi instead.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
DUMP = Path(__file__).resolve().parent / "c10d_c.abi"


def run(*command):
    """The result of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def names(headers):
    """Functions, and enums, of the headers."""
    text = "".join(re.sub(r"//.*", "", header.read_text()) for header in headers)
    functions = re.findall(r"^C10D_C_API\s[^;(]*?\b(c10d_\w+)\(", text, re.M)
    return sorted(functions), sorted(re.findall(r"^enum (\w+) \{", text, re.M))


def source_of(functions, enums):
    """A source that exports a pointer to each function, and a value of each enum."""
    lines = ['#include "c10d/c.h"']
    lines += [f"__typeof__({f})* const pointer_to_{f} = {f};" for f in functions]
    lines += [f"enum {e} value_of_{e};" for e in enums]
    return "\n".join(lines) + "\n"


def dump(source, compiler, folder, functions, enums):
    """The file with the types, as abidw writes it."""
    (folder / "abi.c").write_text(source_of(functions, enums))
    library, xml = folder / "libc10d_c.so", folder / "found.abi"
    run(compiler, "-std=gnu11", "-g", "-gdwarf-4", "-O0", "-shared", "-fPIC",
        f"-I{source}/include", str(folder / "abi.c"), "-o", str(library))
    run("abidw", "--no-comp-dir-path", "--no-corpus-path", "--no-show-locs",
        "--no-architecture", "--drop-undefined-syms", str(library), "--out-file", str(xml))
    return xml


def main(arguments):
    renew = arguments[-1] == "--renew"
    source, compiler, built = arguments[1:4]
    for tool in ("abidw", "abidiff"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}: apt-get install abigail-tools")
            return SKIPPED
    functions, enums = names(sorted((Path(source) / "include/c10d/c").glob("*.h")))
    if len(functions) < 80 or len(enums) < 5:
        sys.exit(f"FAILED: only {len(functions)} functions and {len(enums)} enums were found")

    exported = re.findall(r" T (c10d_\w+)", run("nm", "-D", "--defined-only", built))
    if sorted(exported) != functions:
        print(f"FAILED: {built} and the headers differ in", *sorted({*exported} ^ {*functions}))
        return 1

    with tempfile.TemporaryDirectory() as folder:
        found = dump(source, compiler, Path(folder), functions, enums)
        if renew:
            shutil.copy(found, DUMP)
            return 0
        done = subprocess.run(["abidiff", "--harmless", str(DUMP), str(found)],
                              capture_output=True, text=True)
    if done.returncode == 0:
        print(f"abi: {len(functions)} functions and {len(enums)} enums are as before")
        return 0
    print(done.stdout + done.stderr)
    print("FAILED: the C interface has changed. Programs that were compiled before still run if "
          "functions, constants or fields at the end of structs were added; nothing else may "
          "change. If it is meant: abi_test.py", source, compiler, built, "--renew")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
