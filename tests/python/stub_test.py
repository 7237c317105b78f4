# SPDX-License-Identifier: BSD-3-Clause
"""The stub says what the extension has: the same names, and the same arguments."""
import ast
import re
import unittest
from pathlib import Path

import c10d
from c10d import _c10d

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

    def test_every_code_has_an_exception(self):
        for kind in (c10d.PeerDied, c10d.Mismatch, c10d.Aborted, c10d.Timeout, c10d.StoreLost):
            self.assertTrue(issubclass(kind, c10d.Error))
        self.assertTrue(issubclass(c10d.Timeout, TimeoutError))
        self.assertFalse(issubclass(c10d.InvalidArgument, c10d.Error))


if __name__ == "__main__":
    unittest.main()
