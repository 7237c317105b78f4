#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tidy.py and capabilities.py must find what is wrong: each case is a small tree, or a page, with
one fault, and one has none."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import capabilities
import tidy
from source import functions

SPDX = "// SPDX-License-Identifier: BSD-3-Clause\n"
CMAKE = "# SPDX-License-Identifier: BSD-3-Clause\n"
HEADER = SPDX + "#pragma once\n"
GOOD = {
    "include/c10d/thing.h": HEADER + "#include <vector>\n",
    "include/c10d/c/thing.h": HEADER + "#include <stdint.h>\n",
    "src/base/CMakeLists.txt": CMAKE + "target_sources(c10d_objects PRIVATE thing.cpp env.cpp)\n",
    "src/base/thing.cpp": SPDX + '#include "c10d/thing.h"\nint x = env("C10D_LOG");\n',
    "src/base/env.cpp": SPDX + '    {"C10D_LOG", "warn", "What is logged."},\n',
    "tests/unit/CMakeLists.txt": CMAKE + "foreach(part a)\n  add(${part}_test.cpp)\nendforeach()\n",
    "tests/unit/a_test.cpp": SPDX,
    ".ci/run": CMAKE + 'cd "$(dirname "$0")/.." && exec ./dev test\n',
    ".github/workflows/ci.yml": CMAKE + "      - uses: actions/checkout@v4\n"
                                        "      - run: ./dev ${{ matrix.verb }}\n",
    "Dockerfile": CMAKE + 'RUN ./dev build\nCMD ["./dev", "--help"]\n',
    "README.md": "[the header](include/c10d/thing.h)\n```cpp\n[](auto lambda)\n```\n",
}
HERE = "/" + "home/someone/c10d"
TWIST = {  # an op, in each interface
    "include/c10d/op_traits.h": HEADER + '      {twist,  "twist",  no},\n',
    "include/c10d/process_group.h": HEADER + "void twist(int);\n",
    "include/c10d/async_group.h": HEADER + "void twist(int);\n",
    "include/c10d/c/ops.h": HEADER + "int c10d_twist(int);\n",
    "python/c10d/_c10d.pyi": CMAKE + "def twist(self, x): ...\n",
}


def findings(changes):
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**GOOD, **changes}.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = tidy.main(["tidy.py", root])
        return status, out.getvalue()


def built(folder, *names):
    return {f"{folder}/CMakeLists.txt": CMAKE + "add(" + " ".join(names) + ")\n"}


BAD = {
    "a lock that the compiler does not check": (
        {"src/base/thing.cpp": SPDX + "#include <mutex>\n"}, "<mutex> belongs in"),
    "core includes a backend": (
        {"src/base/thing.cpp": SPDX + '#include "src/backends/native/heap.h"\n',
         "src/backends/native/heap.h": HEADER}, 'must not include "src/backends/native/heap.h"'),
    "a floor includes a higher one": (
        {"src/base/thing.cpp": SPDX + '#include "src/group/work.h"\n',
         "src/group/work.h": HEADER}, 'must not include "src/group/work.h"'),
    "a floor of native includes a higher one": (
        {"src/backends/native/plan/a.h": HEADER + '#include "src/backends/native/team/b.h"\n',
         "src/backends/native/team/b.h": HEADER},
        'must not include "src/backends/native/team/b.h"'),
    "a wing of the benchmark includes a higher one": (
        {"bench/model/a.h": HEADER + '#include "bench/cli/b.h"\n', "bench/cli/b.h": HEADER},
        'must not include "bench/cli/b.h"'),
    "two trainers include each other": (
        {"src/parallel/ddp/a.h": HEADER + '#include "src/parallel/fsdp/b.h"\n',
         "src/parallel/fsdp/b.h": HEADER}, 'must not include "src/parallel/fsdp/b.h"'),
    "pairs that include each other": (
        {**built("src/net", "a.cpp", "b.cpp"), "src/net/a.h": HEADER, "src/net/b.h": HEADER,
         "src/net/a.cpp": SPDX + '#include "src/net/a.h"\n#include "src/net/b.h"\n',
         "src/net/b.cpp": SPDX + '#include "src/net/b.h"\n#include "src/net/a.h"\n'},
        "pairs include each other: src/net/a -> src/net/b -> src/net/a"),
    "a circle through a third pair": (
        {"src/net/a.h": HEADER + '#include "src/net/b.h"\n',
         "src/net/b.h": HEADER + '#include "src/net/c.h"\n',
         "src/net/c.h": HEADER + '#include "src/net/a.h"\n'},
        "pairs include each other: src/net/a -> src/net/b -> src/net/c -> src/net/a"),
    "a header of C where it does not belong": (
        {"include/c10d/thing.h": HEADER + "#include <stdint.h>\n"},
        "uses only the standard library"),
    "a crowded folder": (
        {**built("src/net", *(f"{n}.cpp" for n in range(25))),
         **{f"src/net/{n}.cpp": SPDX for n in range(25)}}, "src/net:1: 25 sources, limit 24"),
    "one backend includes another": (
        {**built("src/backends/mpi", "mpi.cpp"), "src/backends/native/heap.h": HEADER,
         "src/backends/mpi/mpi.cpp": SPDX + '#include "src/backends/native/heap.h"\n'},
        'must not include "src/backends/native/heap.h"'),
    "a backend includes the store": (
        {**built("src/backends/mpi", "mpi.cpp"), "src/store/codec.h": HEADER,
         "src/backends/mpi/mpi.cpp": SPDX + '#include "src/store/codec.h"\n'},
        'must not include "src/store/codec.h"'),
    "an example includes internals": (
        {**built("examples", "a.cpp"), "src/base/log.h": HEADER,
         "examples/a.cpp": SPDX + '#include "src/base/log.h"\n'},
        'must not include "src/base/log.h"'),
    "a trainer includes internals": (
        {**built("src/parallel/fsdp", "fsdp.cpp"), "src/base/log.h": HEADER,
         "src/parallel/fsdp/fsdp.cpp": SPDX + '#include "src/base/log.h"\n'},
        'must not include "src/base/log.h"'),
    "an include from nowhere": (
        {"src/base/thing.cpp": SPDX + '#include "thing.h"\n'}, '"thing.h" is no file here'),
    "a public header with a dependency": (
        {"include/c10d/thing.h": HEADER + "#include <fmt/format.h>\n"},
        "uses only the standard library"),
    "mpi.h in the core": (
        {"src/base/thing.cpp": SPDX + "#include <mpi.h>\n"}, "<mpi.h> belongs in"),
    "a long file": (
        {"src/base/thing.cpp": SPDX + "int x;\n" * 801}, "a file of 801 lines of code, limit 800"),
    "a long script": ({"tests/long.py": CMAKE + "x = 1\n" * 801}, "long.py:1: a file of 801 lines"),
    "a long public header": (
        {"include/c10d/thing.h": HEADER + "struct X;\n" * 200},
        "a public header of 201 lines of code, limit 200"),
    "a header of users that includes one of backends": (
        {"include/c10d/group.h": HEADER + '#include "c10d/spi/backend.h"\n',
         "include/c10d/spi/backend.h": HEADER},
        'must not include "c10d/spi/backend.h": users see nothing of c10d/spi/'),
    "a long function": (
        {"src/base/thing.cpp": SPDX + "int f(int x) {\n" + "  ++x;\n" * 69 + "}\n"},
        "thing.cpp:2: a function of 71 lines of code, limit 70"),
    "a long line": (
        {"src/base/thing.cpp": SPDX + "// " + "x" * 98 + "\n"}, "101 columns, limit 100"),
    "no licence": ({"src/base/thing.cpp": "int x;\n"}, "SPDX"),
    "no pragma once": ({"include/c10d/thing.h": SPDX}, "needs #pragma once"),
    "a source that is not built": ({"src/base/other.cpp": SPDX}, "other.cpp:1: dead"),
    "a test that is in no list": ({"tests/unit/b_test.cpp": SPDX}, "b_test.cpp:1: dead"),
    "a header that is not included": ({"src/base/other.h": HEADER}, "other.h:1: dead"),
    "getenv": (
        {"src/base/thing.cpp": SPDX + 'auto x = std::getenv("HOME");\n'}, "through c10d::env()"),
    "an unlisted variable": (
        {"src/base/thing.cpp": SPDX + 'auto x = env("C10D_SPEED");\n'},
        "C10D_SPEED is not in the table"),
    "a variable that nothing reads": (
        {"src/base/thing.cpp": SPDX + "int x;\n"}, "C10D_LOG is in the table but nothing reads it"),
    "a banned type": (
        {"src/base/thing.cpp": SPDX + "class StoreManager {};\n"}, "StoreManager: name the type"),
    "a banned file": (
        {**built("src/net", "net_utils.cpp"), "src/net/net_utils.cpp": SPDX},
        "name the file after"),
    "a machine's path": ({"README.md": f"see {HERE}\n"}, "a path of one machine"),
    "a long line of a document": (
        {"README.md": "| " + "x" * 130 + "\n\n```\n" + "x" * 130 + "\n```\n" + "x" * 121},
        "README.md:6: 121 columns, limit 120"),
    "a page that the index lacks": (
        {"docs/README.md": "[x](lost.md#part)\n", "docs/lost.md": "", "docs/adr/0001-x.md": ""},
        "docs/adr/0001-x.md:1: docs/README.md does not list it"),
    "a test command in CI": (
        {".ci/run": CMAKE + "ctest --preset ci\n"}, ".ci/run:2: runs ctest --preset ci"),
    "a command in a workflow": (
        {".github/workflows/ci.yml": CMAKE + "      - run: ./dev test && ctest\n"},
        "ci.yml:2: runs ./dev test && ctest"),
    "a script in a workflow": (
        {".github/workflows/ci.yml": CMAKE + "      - run: |\n          ctest\n"},
        "ci.yml:2: runs |"),
    "an action in a workflow": (
        {".github/workflows/ci.yml": CMAKE + "      - uses: someone/cmake@v1\n"},
        "ci.yml:2: runs someone/cmake@v1"),
    "a command in a container": (
        {"Dockerfile": CMAKE + "RUN apt-get install cmake\n"}, "Dockerfile:2: runs apt-get"),
    "a long README": ({"README.md": "x\n" * 181}, "README.md:1: 181 lines, limit 180"),
    "an op that C does not have": (
        {**TWIST, "include/c10d/c/ops.h": HEADER + "int c10d_twists(int);  // c10d_twist()\n"},
        "ops.h:1: there is no twist"),
    "an op that Python does not have": (
        {**TWIST, "python/c10d/_c10d.pyi": CMAKE}, "_c10d.pyi:1: there is no twist"),
    "a table of ops that cannot be read": (
        {"include/c10d/op_traits.h": HEADER}, "has no rows that this check can read"),
    "a dead link": ({"README.md": "[x](docs/none.md)\n"}, "dead link docs/none.md"),
    "a dead link behind code": (
        {"README.md": "```cpp\n[](auto x)\n```\n[x](docs/none.md)\n"},
        "README.md:4: dead link docs/none.md"),
}

USES_LOG = SPDX + 'int x = env("C10D_LOG");\n'
LONG = {
    "a file": ({"src/base/thing.cpp": USES_LOG + "int x;\n" * 400},
               "thing.cpp:1: warning: a file of 401 lines of code, limit 800"),
    "a public header": ({"include/c10d/thing.h": HEADER + "struct X;\n" * 120},
                        "thing.h:1: warning: a public header of 121 lines of code, limit 200"),
    "a function": ({"src/base/thing.cpp": USES_LOG + "int f(int x) {\n" + "  ++x;\n" * 59 + "}\n"},
                   "thing.cpp:3: warning: a function of 61 lines of code, limit 70"),
}


def page(changes):
    """Each number with a name and a test, or what `changes` has instead; nothing for None."""
    rows = {number: f"| {number} | it sums | here | `unit.sum` `Adds` | tested |"
            for number in capabilities.NUMBERS}
    return "\n".join(row for row in {**rows, **changes}.values() if row is not None)


BAD_ROWS = {
    "a number is missing": ({"R30": None}, "there is no R30"),
    "a number stands twice": (
        {"again": "| E3 | it sums | `unit.sum` | tested |"}, "E3 stands in line 40 already"),
    "an unknown number": ({"R37": "| R37 | it flies | | no |"}, "R37 is unknown"),
    "no status": ({"R4": "| R4 | it sums | `unit.sum` | |"}, "R4 needs a name and one of"),
    "another status": ({"R4": "| R4 | it sums | `unit.sum` | nearly |"}, "one of the statuses"),
    "no name": ({"R4": "| R4 | | `unit.sum` | tested |"}, "R4 needs a name and one of"),
    "a test that there is not": (
        {"R4": "| R4 | it sums | `unit.sums`; `unit.sum` | tested |"}, "ctest knows no unit.sums"),
    "a case that there is not": (
        {"R4": "| R4 | it sums | `unit.sum` `Subtracts` | tested |"},
        "unit.sum has no case Subtracts"),
    "tested by nothing": ({"R4": "| R4 | it sums | by hand | tested |"}, "names no test that runs"),
    "partly tested by nothing": ({"R4": "| R4 | it sums | | partly |"}, "names no test that runs"),
    "tested on demand only": (
        {"R4": "| R4 | it sums | on demand `large.sum` | tested |"}, "names no test that runs"),
    "a test on demand that says nothing of it": (
        {"R4": "| R4 | it sums | `unit.sum`, `large.sum` | tested |"}, "does not say so"),
    "on demand without a test": ({"R4": "| R4 | it sums | | on demand |"}, "names no test"),
    "not there but tested": ({"R4": "| R4 | it sums | `unit.sum` | no |"}, "names a test"),
}


class Capabilities(unittest.TestCase):
    def findings(self, changes):
        cases = {"unit.sum": ["AddsUp"], "unit.left_out": None}
        return capabilities.findings(page(changes), list(cases), [*cases, "large.sum"], cases.get)

    def test_a_true_page_passes(self):
        self.assertEqual(self.findings({
            "R30": "| R30 | it flies | | no: it has no wings |",
            "R12": "| R12 | it is fast | | measured: 3 s |",
            "R13": "| R13 | it sums | `unit.*` | partly: no halves |",
            "R14": "| R14 | it sums much | `large.sum` | on demand |",
            "R15": "| R15 | it sums | `unit.left_out` `Any`; on demand `large.*` | tested |"}), [])

    def test_each_fault_is_found(self):
        for name, (changes, expected) in BAD_ROWS.items():
            with self.subTest(name):
                found = self.findings(changes)
                self.assertEqual(len(found), 1, found)
                self.assertIn(expected, found[0])


class Tidy(unittest.TestCase):
    def test_a_good_tree_passes(self):
        status, out = findings({})
        self.assertEqual((status, "0 findings" in out), (0, True), out)

    def test_what_is_almost_too_long_is_a_warning(self):
        for name, (changes, expected) in LONG.items():
            with self.subTest(name):
                status, out = findings(changes)
                self.assertEqual(status, 0, out)
                self.assertIn(expected, out)
                self.assertIn("0 findings, 1 warnings", out)

    def test_comments_and_blank_lines_are_not_counted(self):
        comments = "// Why.\n\n/* And\n   why. */\n" * 300
        function = "void f() {\n" + comments + "}\n"
        for name, text in {"include/c10d/thing.h": HEADER + comments,
                           "src/base/env.cpp": GOOD["src/base/env.cpp"] + function,
                           "tests/long.py": CMAKE + "\n  # Why.\n" * 900}.items():
            with self.subTest(name):
                status, out = findings({name: text})
                self.assertEqual((status, "0 findings, 0 warnings" in out), (0, True), out)

    def test_headers_that_only_include_others_do_not_crowd_a_folder(self):
        names = [f"include/c10d/{n}.h" for n in range(24)]
        for text, expected in (("int x;\n", 1), ('#include "c10d/thing.h"\n', 0)):
            status, out = findings({**dict.fromkeys(names, HEADER + text),
                                    "include/c10d/thing.h": HEADER + "int y;\n"})
            self.assertEqual(status, expected, out)

    def test_each_fault_is_found(self):
        for name, (changes, expected) in BAD.items():
            with self.subTest(name):
                status, out = findings(changes)
                self.assertEqual(status, 1, out)
                self.assertIn(expected, out)

    def test_function_lengths(self):
        code = """namespace a {
struct S : B {
  S(int x) : B{x}, y_{x} {
    call([] { return '{'; });
  }
  bool operator==(const S&) const = default;
  int y_{3};
};
constexpr int kTable[] = {
    1,
};
template <class T>
  requires(sizeof(T) > 1)
auto f(T t) -> decltype(t.x) {
  if (t) {
    g(R"(})");
  }
  // }
}
TEST(A, b) {
}
}
"""
        self.assertEqual(list(functions(code)), [(3, 3), (12, 8), (20, 2)])


if __name__ == "__main__":
    unittest.main()
