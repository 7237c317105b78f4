# SPDX-License-Identifier: BSD-3-Clause
"""The stub says what the extension has: names, arguments and manual: stub_test.py ROOT."""
import ast
import inspect
import re
import sys
import unittest
from pathlib import Path

import c10d
from c10d import _c10d, _errors

ROOT = Path(sys.argv.pop(1))

STUB = ast.parse(Path(_c10d.__file__).with_name("_c10d.pyi").read_text())
IN_PYTHON = {"broadcast_object", "all_gather_object", "scatter_object"}


def public(names):
    return {name for name in names if not name.startswith("_")}


def names_of(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id


def arguments_of(node):
    return [a.arg for a in node.args.args + node.args.kwonlyargs]


def arguments_in(signature):
    inside = signature[signature.index("(") + 1:signature.rindex(")")]
    while "[" in inside:
        inside = re.sub(r"\[[^\[\]]*\]", "", inside)
    return [part.split(":")[0].split("=")[0].strip() for part in inside.split(",")
            if part.strip() not in ("*", "/", "")]


class Stub(unittest.TestCase):
    def test_names(self):
        self.assertEqual(public(names_of(STUB.body)), public(dir(_c10d)))
        self.assertEqual(public(names_of(STUB.body)) - set(c10d.__all__), set())
        for node in STUB.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                kind = getattr(_c10d, node.name)
                self.assertEqual(public(names_of(node.body)),
                                 public(set(dir(kind)) - set(dir(kind.__base__))), node.name)

    def test_arguments(self):
        seen = 0
        for owner in STUB.body:
            for node in owner.body if isinstance(owner, ast.ClassDef) else [owner]:
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                    continue
                where = getattr(_c10d, owner.name) if isinstance(owner, ast.ClassDef) else _c10d
                function = getattr(where, node.name)
                if node.name in IN_PYTHON:
                    code = function.__code__
                    count = code.co_argcount + code.co_kwonlyargcount
                    self.assertEqual(arguments_of(node), list(code.co_varnames[:count]))
                elif hasattr(function, "__nb_signature__"):
                    seen += 1
                    self.assertEqual(arguments_of(node),
                                     arguments_in(function.__nb_signature__[0][0]), node.name)
        self.assertGreater(seen, 40)

    def test_help_is_the_manual(self):
        seen = 0
        for owner in STUB.body:
            if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_"):
                self.assertEqual(inspect.getdoc(getattr(c10d, owner.name)),
                                 ast.get_docstring(owner))
            for node in owner.body if isinstance(owner, ast.ClassDef) else [owner]:
                text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
                if text is None or owner.name.startswith("_") or node.name in IN_PYTHON:
                    continue
                where = getattr(_c10d, owner.name) if isinstance(owner, ast.ClassDef) else _c10d
                seen += 1
                self.assertIn(text, inspect.getdoc(getattr(where, node.name)), node.name)
        self.assertGreater(seen, 40)

    def test_repr(self):
        self.assertEqual(repr(c10d.ReduceOp.max), "ReduceOp.max")
        self.assertIs(c10d.ReduceOp.MAX, c10d.ReduceOp.max)
        self.assertEqual(repr(c10d.ReduceOp.premul(0.5)), "ReduceOp.premul(0.5)")
        self.assertRegex(repr(c10d.list_backends()), r"BackendInfo\(name='native', available=True")
        self.assertRegex(repr(c10d.detect_launch()), r"LaunchInfo\(rank=")

    def test_every_code_has_an_exception(self):
        header = (ROOT / "include/c10d/error.h").read_text()
        codes = re.findall(r"^  (\w+),? +// \w+: ", header[header.index("enum class Code"):], re.M)
        self.assertEqual(list(_errors._BY_CODE), codes)
        for kind in _errors._BY_CODE.values():
            self.assertTrue(issubclass(kind, c10d.Error))
            self.assertIs(getattr(c10d, kind.__name__), kind)
            self.assertEqual(kind.__module__, "c10d")
        self.assertTrue(issubclass(c10d.Timeout, TimeoutError))
        self.assertFalse(issubclass(c10d.InvalidArgument, c10d.Error))


if __name__ == "__main__":
    unittest.main()
