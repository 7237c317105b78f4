# SPDX-License-Identifier: BSD-3-Clause
"""The manual of the extension, from its stub: docs.py _c10d.pyi, prints rows of C++."""
import ast
import sys


def rows(body, owner=""):
    known = set()
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and owner + node.name not in known:
            text = ast.get_docstring(node)
            if text:
                known.add(owner + node.name)
                yield owner + node.name, text
        if isinstance(node, ast.ClassDef):
            yield from rows(node.body, node.name + ".")


with open(sys.argv[1], encoding="utf-8") as stub:
    for name, text in rows(ast.parse(stub.read()).body):
        print(f'{{"{name}", R"doc({text})doc"}},')
