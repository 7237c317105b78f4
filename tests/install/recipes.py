#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""recipes.py ROOT CMAKE: what can be said of the recipes in tools/packaging without Spack, conan
and vcpkg: they can be read, their options are those of CMakeLists.txt, their version is ours."""
import ast
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace

ROOT, CMAKE = Path(sys.argv[1]), sys.argv[2]
RECIPES = ROOT / "tools/packaging"


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


class Recipes(unittest.TestCase):
    def test_options_are_known(self):
        known = set(re.findall(r"option\((\w+)", read("CMakeLists.txt")))
        for path in RECIPES.rglob("*"):
            if path.name in ("package.py", "conanfile.py", "portfile.cmake"):
                for name in re.findall(r"\bC10D_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")):
                    self.assertIn(name, known, path)

    def test_version(self):
        version = re.search(r'kVersion = "([\d.]+)"', read("include/c10d/capability.h"))[1]
        port = json.loads((RECIPES / "vcpkg/c10d/vcpkg.json").read_text(encoding="utf-8"))
        self.assertEqual(port["version"], version)

    def test_conan_parses(self):
        for path in RECIPES.rglob("conanfile.py"):
            ast.parse(path.read_text(encoding="utf-8"), str(path))

    def test_vcpkg_configures_this_checkout(self):
        """The functions of vcpkg print their arguments."""
        port = RECIPES / "vcpkg/c10d/portfile.cmake"
        names = set(re.findall(r"^ *(vcpkg_\w+)\(", port.read_text(encoding="utf-8"), re.M))
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "port.cmake")
            script.write_text("cmake_minimum_required(VERSION 3.25)\n" + "".join(
                f'macro({name})\nmessage("{name} ${{ARGN}}")\nendmacro()\n' for name in names) +
                f"set(CURRENT_PACKAGES_DIR {folder})\nset(FEATURES tools)\n" +
                f"include({port.resolve()})\n", encoding="utf-8")
            said = subprocess.run([CMAKE, "-P", script], text=True, check=True,
                                  stderr=subprocess.PIPE).stderr
        self.assertIn(f"vcpkg_cmake_configure SOURCE_PATH;{ROOT.resolve()};OPTIONS", said)
        self.assertIn("vcpkg_copy_tools TOOL_NAMES;c10d-run", said)

    def spack_arguments(self, *variants):
        """What the recipe gives CMake, with as much of Spack as it uses."""
        spack = ModuleType("spack.package")
        for name in ("license", "version", "variant", "conflicts", "depends_on", "requires"):
            setattr(spack, name, lambda *_, **__: None)
        spec = type("Spec", (), {
            "satisfies": lambda self, what: set(what.split()) <= set(variants),
            "__getitem__": lambda self, name: SimpleNamespace(mpicc=f"mpicc of {name}")})()
        spack.CMakePackage = type("CMakePackage", (), {
            "spec": spec,
            "define": lambda self, name, value: (name, value),
            "define_from_variant": lambda self, name, variant: (name, "+" + variant in variants)})
        sys.modules.update({"spack": ModuleType("spack"), "spack.package": spack})
        recipe = RECIPES / "spack/packages/c10d/package.py"
        names = {"__file__": str(recipe)}
        exec(compile(recipe.read_text(encoding="utf-8"), str(recipe), "exec"), names)
        self.assertEqual(names["C10d"].git, f"file://{ROOT.resolve()}")
        return dict(names["C10d"]().cmake_args())

    def test_spack_says_which_mpi(self):
        plain = self.spack_arguments("+shared")
        self.assertTrue(plain["BUILD_SHARED_LIBS"])
        self.assertFalse(plain["C10D_WITH_OPENMPI"] or plain["C10D_WITH_MPICH"])
        mpich = self.spack_arguments("+shared", "+mpi", "^mpich")
        self.assertFalse(mpich["C10D_WITH_OPENMPI"])
        self.assertTrue(mpich["C10D_WITH_MPICH"])
        self.assertEqual(mpich["C10D_MPICC_mpich"], "mpicc of mpi")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
