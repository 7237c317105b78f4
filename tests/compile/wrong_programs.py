#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Programs that must not compile: wrong_programs.py INCLUDE COMPILER...

The first line with an error, of each compiler, must have the words that say what is wrong."""
import concurrent.futures
import os
import re
import pathlib
import subprocess
import sys
import tempfile

# What the program does in f(group), what stands before it, and the words of the error.
PROGRAMS = [
    ("const c10d::Work w = group.async().all_reduce(std::vector<float>(3));", "", "a temporary"),
    ("const c10d::Work w = group.isend(std::vector<float>(3), 1);", "", "a temporary"),
    ("group.broadcast(std::array{1, 2}, 0);", "", "a temporary"),
    ("const std::vector<float> x(3); group.all_reduce(x);", "", "its elements are const"),
    ("std::vector<int> x(3); group.recv(std::span<const int>(x), 0);", "",
     "its elements are const"),
    ("std::vector<bool> x(3); group.all_reduce(x);", "", "not contiguous memory"),
    ("std::list<int> x(3); group.all_reduce(x);", "", "not contiguous memory"),
    ("std::deque<int> x(3); group.send(x, 0);", "", "not contiguous memory"),
    ("std::vector<std::string> x(3); group.broadcast(x, 0);", "", "c10d/values.h"),
    ("std::vector<std::vector<int>> x(3); group.all_gather(x, x);", "", "own memory"),
    ("c10d::all_gather(group, std::vector<std::string>());", "", "write to_bytes()"),
    ("c10d::broadcast(group, std::map<int, int>(), 0);", "", "write to_bytes()"),
    ("std::vector<int*> x(3); group.all_reduce(x);", "", "a pointer means nothing"),
    ("std::vector<long double> x(3); group.all_reduce(x);", "", "long double"),
    ("std::vector<Pair> x(3); group.all_reduce(x);", "struct Pair { float a, b; };",
     "c10d::element_traits"),
    ("std::vector<Pair> x(3); group.all_reduce(x);",
     "struct Pair { float a, b; };\n"
     "template <> struct c10d::element_traits<Pair> {\n"
     "  static constexpr c10d::DType dtype = c10d::DType::f32;\n"
     "  static constexpr std::size_t count = 3;\n"
     "};", "a size that T does not have"),
    ("float* x = nullptr; group.broadcast(x, 0);", "", "a pointer has no length"),
    ("const float* x = nullptr; group.send(x, 0);", "", "a pointer has no length"),
    ("double x = 1; group.broadcast(x, 0);", "", "one value is no buffer"),
    ("std::vector<int> all(2); group.all_gather(all, 1);", "", "one value is no buffer"),
    ("group.barrier({.async = true});", "", "CallOptions"),
    ("c10d::CallOptions options{.async = true};", "", "async"),
    ("group.async().barrier();", "", "nodiscard"),
    ("std::vector<int> x(3); group.irecv(x, 0);", "", "nodiscard"),
    ("const c10d::Work a = group.async().barrier(), b = a;", "", "Work"),
    ("c10d::BFloat16 x = 3.5f;", "", "BFloat16"),
    ("float x = c10d::Float16(1.0f);", "", "Float16"),
    ("auto x = c10d::Float16(1.0f) + c10d::Float16(1.0f);", "", "Float16"),
    ("auto a = group.allocate<float>(3); auto b = a;", "", "Buffer"),
    ("group.set_timeout(5);", "", "duration"),
    ("c10d::init_process_group(\"native\");", "", "InitOptions"),
    ("std::vector<int> x(3); group.all_gather_v(x, x, std::vector{1.0, 2.0});", "",
     "Counts"),
]

HEAD = """#include <array>
#include <deque>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "c10d/init.h"
#include "c10d/values.h"
"""


def first_error(compiler, include, source, flags=()):
    """The first line with an error; None where the program compiles."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Werror=unused-result", "-I", include,
               *flags, "-x", "c++", "-"]
    done = subprocess.run(command, input=source, text=True, capture_output=True, timeout=300,
                          check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if re.search(r"\berror: ", line)]
    return lines[0] if lines else done.stderr


def compiled_head(compiler, include, folder):
    """The flags with which a program begins with HEAD, which the compiler reads only once."""
    head = pathlib.Path(folder) / "head.h"
    head.write_text(HEAD, encoding="utf-8")
    subprocess.run([compiler, "-std=c++20", "-I", include, "-x", "c++-header", head,
                    "-o", f"{head}.gch"], timeout=300, check=True)
    return ["-Winvalid-pch", "-Werror=invalid-pch", "-include", str(head)]


def check(compiler, include, flags, program):
    """What is wrong with the compiler's answer to the program, or nothing."""
    body, before, words = program
    source = f"{before}\nvoid f(const c10d::ProcessGroup& group) {{ {body} }}\n"
    error = first_error(compiler, include, source, flags)
    if error is None:
        return f"{compiler} accepts: {body}"
    if words.lower() not in error.lower():
        return f"{compiler} on: {body}\n  '{words}' is not in: {error}"
    return None


def findings(compiler, include, folder):
    """What is wrong with the compiler's answers."""
    found = []
    flags = compiled_head(compiler, include, folder)
    right = "void f(const c10d::ProcessGroup& group) { group.barrier(); }\n"
    if (error := first_error(compiler, include, right, flags)) is not None:
        found.append(f"{compiler} refuses a right program: {error}")
    old = first_error(compiler, include, HEAD, ["-std=c++17"])
    if old is None or "c10d needs C++20" not in old:
        found.append(f"{compiler} before C++20: {old}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as jobs:
        answers = jobs.map(lambda program: check(compiler, include, flags, program), PROGRAMS)
        return found + [answer for answer in answers if answer]


def main():
    include, compilers = sys.argv[1], sys.argv[2:]
    found = []
    for compiler in compilers:
        with tempfile.TemporaryDirectory() as folder:
            found += findings(compiler, include, folder)
    for what in found:
        print(what)
    print(f"{len(PROGRAMS)} wrong programs, {len(compilers)} compilers: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
