#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Style that fails the build: tidy.py ROOT prints one line per finding and exits 1 if there is any.
Warnings, of what is about to grow too long, do not fail it.

The rules stand in CONTRIBUTING.md; docs/architecture.md holds the table of who may include whom.
"""
import os
import re
import sys
from pathlib import Path

from source import bare, code_lines, functions, includes, string_literals, without_comments

# Lines of code, without comments and blank lines: from where on to warn, and to fail.
FILE, FUNCTION, PUBLIC_HEADER = (400, 800), (60, 70), (120, 200)
MAX_LINE = 100  # columns
MAX_DOCUMENT_LINE = 120  # tables cannot be wrapped, nor what a program printed
MAX_DOCUMENT = {"README.md": 180, "docs/performance.md": 150}  # lines
MAX_FOLDER = 24  # sources and headers
FOLDERS = ("include", "src", "kernels", "bench", "tools", "tests", "examples", "cmake", "docs",
           "python", ".ci", ".github")
CXX = (".h", ".c", ".cpp", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake")

# A house has floors, the lowest first: a folder includes itself and those below it.
LIBRARY = ["c10d/", "src/base/", "src/device/", "src/net/", "src/sync/", "src/store/",
           "src/recorder/", "src/control/", "src/group/", "src/launch/"]
NATIVE = [f"src/backends/native/{floor}/" for floor in
          ("plan", "memory", "team", "links", "collectives", "p2p", "hosts")]
BENCH = [f"bench/{floor}/" for floor in
         ("model", "text", "meeting", "measure", "torch", "rank", "analyse", "report", "run",
          "commands", "cli")]
TRAINING = [f"examples/training/{floor}" for floor in ("nn/", "trainer/", "")]


def up_to(floors, folder):
    return floors[:floors.index(folder) + 1]


def house(floors, ground):
    """A row for each floor, above the prefixes in `ground`."""
    return [(folder, [*ground, *up_to(floors, folder)]) for folder in floors]


BACKEND = [*up_to(LIBRARY, "src/sync/"), "kernels/", "src/backends/common/"]
# Who may include whom: the first row whose pattern matches the file decides. Entries are prefixes
# of what stands between the quotes; "@" is the file's own folder.
INCLUDE_RULES = [
    (r"include/c10d/", ["c10d/"]),
    (r"kernels/", ["c10d/view.h", "c10d/collective.h", "c10d/export.h",
                  "c10d/small_float.h", "kernels/"]),
    *house(LIBRARY[1:], ["c10d/"]),
    (r"src/c/", ["c10d/", "@"]),
    (r"src/backends/native/hosts/host_group", [*BACKEND, *NATIVE, "src/store/own_address.h",
                                                  "src/store/secret.h"]),
    *house(NATIVE, BACKEND),
    (r"src/backends/[^/]+$", [*up_to(LIBRARY, "src/group/"), "src/backends/module.h",
                              "src/backends/by_device.h", "src/backends/native/native.h"]),
    (r"src/backends/gloo/", [*BACKEND, "src/store/own_address.h", "@"]),
    (r"src/backends/", [*BACKEND, "@"]),
    (r"src/parallel/", ["c10d/", "src/base/hash.h", "kernels/", "src/parallel/common/", "@"]),
    (r"tools/", [*LIBRARY, "src/backends/native/native.h", "tools/manual/", "@"]),
    (r"python/", ["c10d/", "@"]),
    (r"bench/micro/", ["c10d/", "src/", "kernels/", "bench/micro/"]),
    (r"bench/cli/", ["c10d/", "src/base/", "bench/", "tools/manual/"]),
    (r"bench/measure/gpu\.cpp", ["c10d/", "src/device/", *up_to(BENCH, "bench/measure/")]),
    (r"bench/meeting/connection\.", ["c10d/", "src/net/", *up_to(BENCH, "bench/meeting/")]),
    *house(BENCH[:-1], ["c10d/", "src/base/"]),
    *house(TRAINING, ["c10d/"]),
    (r"bench/peers/raw_nccl", ["c10d/", "src/backends/nccl/", "src/device/", "@"]),
    (r"bench/peers/raw_gloo", ["c10d/", "src/net/network.h", "@"]),
    (r"bench/peers/raw_tcp", ["c10d/", "src/net/", "bench/meeting/", "bench/peers/"]),
    (r"bench/peers/raw_mpi", ["c10d/", "src/backends/mpi/network.h", "@"]),
    (r"(bench/peers|examples)/", ["c10d/", "@"]),
    (r"tests/parallel/", ["c10d/", "src/parallel/", "tests/contract/", "tests/parallel/",
                         "tests/counted_allocations.h", "tests/temporary_directory.h"]),
    (r"tests/(conformance|contract|install|examples)/", ["c10d/", "@", "tests/on_each_backend.h",
                                                        "tests/temporary_directory.h"]),
    (r"tests/chaos/", ["c10d/", "tests/conformance/", "@"]),
    (r"tests/(nn/|fuzz/idx)", ["c10d/", "examples/training/", "@", "tests/counted_allocations.h",
                              "tests/temporary_directory.h"]),
    (r"tests/", ["c10d/", "src/", "kernels/", "bench/", "tools/", "tests/"]),
]
# Headers that stay where they belong: those of the libraries below a backend in its folder and in
# the peers of the benchmark.
BELOW = [
    (r"gloo/", r"(src/backends/gloo|bench/peers)/"),
    (r"mpi\.h", r"(src/backends/mpi|bench/peers|examples|tests)/|include/c10d/mpi\.h"),
    (r"(oneapi/dnnl/|dnnl)", r"(examples/training|tests/nn)/"),
    (r"nanobind/", r"python/src/"),
    (r"(nccl|cuda|cuda_runtime)\.h", r"(src/backends/nccl|kernels|bench/peers|tests)/"),
    # The library's own locks are those that the compiler checks; its clients cannot see them.
    (r"(mutex|condition_variable)$",
     r"(src/base/mutex\.h|(src/parallel|python/torch|bench|examples|tests)/)"),
    (r"(torch|ATen|c10|pybind11)/",
     r"(python/torch/src|tests/((lib)?torch|install)|examples/libtorch)/|include/c10d/torch/"),
]
BANNED_NAME = re.compile(r"(Manager|Helper|Utils?|Impl2)(?![a-z])")
BANNED_FILE = re.compile(r"(^|_)(manager|helpers?|utils?|impl2)(_|$)")
MACHINE_PATH = re.compile(r"(?<![\w.>})])/(work|home|root)/\w")
C_HEADERS = ("stddef.h", "stdint.h")  # of the C interface
SPI = "c10d/spi/"  # for those who write backends
# What CI and containers run is a verb of ./dev: files, the lines that run something, what they may.
COMMANDS = [
    (r"\.ci/run$", r"([^#].*)", r'cd "\$\(dirname "\$0"\)/\.\." && exec \./dev test'),
    (r"\.github/", r"\s*(?:- )?run:\s*(.*)", r"\./dev [\w ${}.-]+"),
    (r"\.github/", r"\s*(?:- )?uses:\s*(.*)", r"actions/checkout@v\d+"),
    (r"Dockerfile$", r"(?:RUN|CMD|ENTRYPOINT)\s+(.*)", r'\./dev [\w -]+|\["\./dev", "--help"\]'),
]
ENV_TABLE = "src/base/env.cpp"


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        self.texts, self.findings, self.warnings = {}, [], []
        for path in self.walk():
            try:
                self.texts[path] = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # data

    def walk(self):
        for path in self.root.iterdir():
            if path.is_file() and not path.name.startswith(".git"):
                yield path.name
        for folder in FOLDERS:
            for where, folders, files in os.walk(self.root / folder):
                folders[:] = [f for f in folders if not f.startswith((".", "__pycache__"))]
                for file in files:
                    yield (Path(where) / file).relative_to(self.root).as_posix()

    def report(self, path, line, what):
        self.findings.append(f"{path}:{line}: {what}")

    def measure(self, path, line, what, length, limits):
        """Warns or reports by the two limits."""
        warn, fail = limits
        if length > fail:
            self.report(path, line, f"{what} of {length} lines of code, limit {fail}")
        elif length > warn:
            self.warnings.append(f"{path}:{line}: warning: {what} of {length} lines of code, "
                                 f"limit {fail}: is there a seam?")

    def of(self, *endings):
        return {p: t for p, t in self.texts.items() if p.endswith(endings)}

    def cmake(self):
        return {p: t for p, t in self.texts.items()
                if p.endswith((".cmake", "CMakeLists.txt")) or p.endswith(".cmake.in")}


def is_code(path):
    return (path.endswith(CXX + SCRIPTS + ("CMakeLists.txt",)) or
            path in ("dev", ".ci/run", "Dockerfile") or path.startswith(".github/"))


def check_layout(tree):
    for path, text in tree.texts.items():
        if not is_code(path):
            continue
        lines = text.splitlines()
        if not any("SPDX-License-Identifier: BSD-3-Clause" in line for line in lines[:2]):
            tree.report(path, 1, "the first line must be SPDX-License-Identifier: BSD-3-Clause")
        length = sum(code_lines(text, path.endswith(CXX)))
        if path.startswith("include/c10d/"):
            tree.measure(path, 1, "a public header", length, PUBLIC_HEADER)
        else:
            tree.measure(path, 1, "a file", length, FILE)
        for number, line in enumerate(lines, 1):
            if len(line) > MAX_LINE:
                tree.report(path, number, f"{len(line)} columns, limit {MAX_LINE}")
        if path.endswith((".h", ".cuh")) and "#pragma once" not in text:
            tree.report(path, 1, "a header needs #pragma once")
        if BANNED_FILE.search(Path(path).stem):
            tree.report(path, 1, "name the file after what it holds")


def check_functions(tree):
    for path, text in tree.of(*CXX).items():
        is_code_line = code_lines(text)
        for line, length in functions(text):
            tree.measure(path, line, "a function", sum(is_code_line[line - 1:line - 1 + length]),
                         FUNCTION)


def allowed_includes(path):
    deep = path.startswith(("src/backends/", "src/parallel/"))
    own = "/".join(path.split("/")[:3 if deep else 2]) + "/"
    for pattern, prefixes in INCLUDE_RULES:
        if re.match(pattern, path):
            return tuple(own if prefix == "@" else prefix for prefix in prefixes)
    return ()


def exists(tree, name):
    return name in tree.texts or "include/" + name in tree.texts


def check_includes(tree):
    for path, text in tree.of(*CXX).items():
        allowed = allowed_includes(path)
        for line, name, quoted in includes(text):
            if quoted and not exists(tree, name):
                tree.report(path, line, f'"{name}" is no file here: write it from the root')
            elif quoted and not name.startswith(allowed):
                tree.report(path, line, f'must not include "{name}", only {" ".join(allowed)}')
            elif path.startswith("include/") and name.startswith(SPI) and SPI not in path:
                tree.report(path, line, f'must not include "{name}": users see nothing of {SPI}')
            elif not quoted and name.startswith(("c10d/", "src/", "kernels/")):
                tree.report(path, line, f'write "{name}" in quotes')
            elif not quoted and path.startswith("include/") and re.search(r"[/.]", name) \
                    and not (path.startswith("include/c10d/c/") and name in C_HEADERS) \
                    and path != f"include/c10d/{name}" \
                    and not path.startswith("include/c10d/torch/"):  # <mpi.h>, LibTorch
                tree.report(path, line, f"<{name}>: a public header uses only the standard library")
            for pattern, home in BELOW:
                if not quoted and re.match(pattern, name) and not re.match(home, path):
                    tree.report(path, line, f"<{name}> belongs in {home}")


def pairs_included(tree):
    """By pair, a header and its source without their endings: the pairs that it includes."""
    arrows = {}
    for path, text in tree.of(*CXX).items():
        pair = path.rpartition(".")[0]
        for _, name, quoted in includes(text):
            name = "include/" + name if "include/" + name in tree.texts else name
            if quoted and name in tree.texts and name.rpartition(".")[0] != pair:
                arrows.setdefault(pair, set()).add(name.rpartition(".")[0])
    return arrows


def way(arrows, start, goal):
    """A shortest way along the arrows, both ends included; empty when there is none."""
    ways, reached = [[start]], {start}
    for steps in ways:
        if steps[-1] == goal:
            return steps
        for after in sorted(arrows.get(steps[-1], set()) - reached):
            reached.add(after)
            ways.append([*steps, after])
    return []


def check_cycles(tree):
    arrows = pairs_included(tree)
    known = set()
    for pair in sorted(arrows):
        for after in sorted(arrows[pair]):
            back = way(arrows, after, pair)
            if back and not known & {pair, *back}:
                known |= {pair, *back}
                tree.report(pair, 1, "pairs include each other: " + " -> ".join([pair, *back]))


def check_folders(tree):
    folders = {}
    for path, text in tree.of(*CXX).items():
        only_includes = path.endswith(".h") and not bare(text).strip()
        if not path.startswith("tests/") and not only_includes:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    for folder, files in folders.items():
        if len(files) > MAX_FOLDER:
            tree.report(folder, 1, f"{len(files)} sources, limit {MAX_FOLDER}: split it by concern")


def is_built(file, cmake):
    """Whether CMake code names the file, whole or as ${part}_test.cpp with the part in a list."""
    words = set(re.findall(r"[\w./*-]+", cmake))
    if file.name in {word.rpartition("/")[2] for word in words} or file.stem in words:
        return True
    return any(file.name.endswith(ending) and file.name[: -len(ending)] in words
               for ending in re.findall(r"\$\{\w+\}([\w.]+)", cmake))


def check_dead_files(tree):
    included = {prefix + name for text in tree.of(*CXX).values()
                for _, name, quoted in includes(text) if quoted for prefix in ("", "include/")}
    for path in tree.of(*CXX):
        if path.startswith("include/c10d/"):
            continue  # the product itself
        built = is_built(Path(path), "\n".join(text for p, text in tree.cmake().items()
                                               if path.startswith(p.rpartition("/")[0])))
        if path.endswith((".h", ".cuh")) and path not in included and not built:
            tree.report(path, 1, "dead: nothing includes it")
        if path.endswith((".c", ".cpp", ".cu")) and not built:
            tree.report(path, 1, "dead: no CMakeLists.txt names it")


def check_names(tree):
    declaration = re.compile(r"\b(?:class|struct|enum(?:\s+class)?|using)\s+(?:C10D_API\s+)?(\w+)")
    for path, text in tree.of(*CXX).items():
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for name in declaration.findall(line):
                if BANNED_NAME.search(name):
                    tree.report(path, number, f"{name}: name the type after what it is")


def check_environment(tree):
    known = set(re.findall(r'^\s*\{"(\w+)"', tree.texts.get(ENV_TABLE, ""), re.M))
    used = set()
    for path, text in tree.of(*CXX).items():
        code = without_comments(text)
        for number, line in enumerate(code.splitlines(), 1):
            # The stand-in for a GPU is no part of the library: it is opened instead of others.
            if path == ENV_TABLE or path.startswith("tests/fake_gpu/"):
                continue
            if re.search(r"\b(secure_)?getenv\b", line):
                tree.report(path, number, "read the environment through c10d::env()")
        if path.startswith("tests/"):
            continue  # tests set names that must be unknown
        for number, literal in string_literals(text):
            names = set(re.findall(r"\bC10D_[A-Z][A-Z0-9_]*", literal))
            used |= set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", literal)) if path != ENV_TABLE else set()
            for name in sorted(names - known):
                prefix = name.endswith("_") and any(other.startswith(name) for other in known)
                if not prefix:
                    tree.report(path, number, f"{name} is not in the table of {ENV_TABLE}")
    for name in sorted(known - used):
        if name.startswith("C10D_"):
            tree.report(ENV_TABLE, 1, f"{name} is in the table but nothing reads it")


def check_paths(tree):
    for path, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE_PATH.search(line):
                tree.report(path, number, "a path of one machine")


def check_documents(tree):
    for path, text in tree.of(".md").items():
        length, most = len(text.splitlines()), MAX_DOCUMENT.get(path)
        if most and length > most:
            tree.report(path, 1, f"{length} lines, limit {most}")
        in_code = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                in_code = not in_code
            if len(line) > MAX_DOCUMENT_LINE and not in_code and not line.lstrip().startswith("|"):
                tree.report(path, number, f"{len(line)} columns, limit {MAX_DOCUMENT_LINE}")


def check_index(tree):
    index = "docs/README.md"
    listed = set(re.findall(r"\]\(([^)#\s]+)", tree.texts.get(index, "")))
    for path in tree.of(".md"):
        if re.match(r"docs/(adr/)?[^/]+$", path) and path != index and path[5:] not in listed:
            tree.report(path, 1, f"{index} does not list it")


def check_commands(tree):
    for path, text in tree.texts.items():
        for files, runs, allowed in COMMANDS:
            if not re.match(files, path):
                continue
            for number, line in enumerate(text.splitlines(), 1):
                command = re.match(runs, line)
                if command and not re.fullmatch(allowed, command[1].strip()):
                    tree.report(path, number, f"runs {command[1]}: a verb of ./dev does that")


def check_links(tree):
    for path, text in tree.of(".md").items():
        in_code = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("```"):
                in_code = not in_code
            for target in re.findall(r"\]\(([^)#\s]+)", line) if not in_code else ():
                where = (tree.root / path).parent / target
                if "://" not in target and not where.exists():
                    tree.report(path, number, f"dead link {target}")


# Every op is in each interface.
INTERFACES = {"include/c10d/process_group.h": r"\b{}\(", "include/c10d/async_group.h": r"\b{}\(",
              "include/c10d/c/ops.h": r"\bc10d_{}\(", "python/c10d/_c10d.pyi": r"def {}\(self,"}
OP_TABLE = "include/c10d/op_traits.h"


def check_ops(tree):
    names = re.findall(r'^ *\{\w+, +"(\w+)",', tree.texts.get(OP_TABLE, ""), re.M)
    if OP_TABLE in tree.texts and not names:
        tree.report(OP_TABLE, 1, "has no rows that this check can read")
    for path, call in INTERFACES.items():
        text = tree.texts.get(path, "")
        text = without_comments(text) if path.endswith(CXX) else text
        for name in names:
            if not re.search(call.format(name), text):
                tree.report(path, 1, f"there is no {name}, which {OP_TABLE} has")


CHECKS = (check_layout, check_functions, check_includes, check_cycles, check_folders,
          check_dead_files, check_names, check_environment, check_paths, check_documents,
          check_index, check_links, check_commands, check_ops)


def main(arguments):
    if len(arguments) != 2:
        print("usage: tidy.py ROOT", file=sys.stderr)
        return 2
    tree = Tree(arguments[1])
    for check in CHECKS:
        check(tree)
    for line in sorted(tree.warnings) + sorted(tree.findings):
        print(line)
    print(f"tidy: {len(tree.texts)} files, {len(tree.findings)} findings, "
          f"{len(tree.warnings)} warnings")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
