# SPDX-License-Identifier: BSD-3-Clause
"""conan create tools/packaging/conan: builds the checkout that it is in."""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.gnu import PkgConfigDeps

CHECKOUT = os.path.join("..", "..", "..")
LINKED = ("fmt::fmt", "openssl::crypto", "libuv::libuv", "hwloc::hwloc")


class C10d(ConanFile):
    name = "c10d"
    description = "Collective communication between processes, over shared memory, Gloo and MPI"
    license = "BSD-3-Clause"
    topics = ("collectives", "mpi", "shared-memory", "all-reduce")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    # gloo and mpi are those of the system.
    options = {name: [True, False] for name in ("shared", "tools", "gloo", "mpi")}
    default_options = {"shared": True, "tools": False, "gloo": False, "mpi": False}

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, CHECKOUT, "include", "c10d",
                                         "capability.h"))
        self.version = re.search(r'kVersion = "([\d.]+)"', header)[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "*.md", "bench/*", "cmake/*", "docs/*",
                        "examples/*", "include/*", "kernels/*", "src/*", "tools/*"):
            copy(self, pattern, os.path.join(self.recipe_folder, CHECKOUT),
                 self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("c10d runs on Linux only")
        if not self.options.shared and (self.options.gloo or self.options.mpi):
            raise ConanInvalidConfiguration("gloo and mpi need -o c10d/*:shared=True")
        check_min_cppstd(self, 20)

    def requirements(self):
        for library in ("fmt/[>=9 <12]", "openssl/[>=3 <4]", "libuv/[>=1.44 <2]",
                        "hwloc/[>=2.9 <3]", "nlohmann_json/[>=3.11 <4]"):
            self.requires(library)
        if self.options.tools:
            self.requires("cli11/[>=2.1 <3]")

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        PkgConfigDeps(self).generate()
        toolchain = CMakeToolchain(self)
        options = {"C10D_BUILD_PROGRAMS": self.options.tools, "C10D_WITH_GLOO": self.options.gloo,
                   "C10D_WITH_OPENMPI": self.options.mpi, "C10D_WITH_MPICH": self.options.mpi}
        for name in ("C10D_BUILD_EXAMPLES", "C10D_BUILD_TESTS", "C10D_WITH_TRAINING"):
            options[name] = False
        for name, value in options.items():
            toolchain.cache_variables[name] = bool(value)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for made_by_conan in (("lib", "cmake"), ("lib", "pkgconfig"), ("share", "doc")):
            rmdir(self, os.path.join(self.package_folder, *made_by_conan))

    def package_info(self):
        library = self.cpp_info.components["c10d"]
        library.set_property("cmake_target_name", "c10d::c10d")
        library.set_property("pkg_config_name", "c10d")
        library.libs = ["c10d"]
        library.requires = [*LINKED, "nlohmann_json::nlohmann_json"]
        library.system_libs = ["pthread", "dl"]
        trainers = self.cpp_info.components["parallel"]
        trainers.set_property("cmake_target_name", "c10d::parallel")
        trainers.set_property("pkg_config_name", "c10d_parallel")
        trainers.libs = ["c10d_parallel"]
        trainers.requires = ["c10d"]
        if self.options.tools:
            library.requires.append("cli11::cli11")
