# SPDX-License-Identifier: BSD-3-Clause
"""spack repo add tools/packaging/spack && spack install c10d: builds the checkout that it is in."""
import os

from spack.package import *

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage  # since Spack 1.0
except ImportError:
    pass

CHECKOUT = os.path.realpath(os.path.join(os.path.dirname(__file__), *[".."] * 5))


class C10d(CMakePackage):
    """Collective communication between processes, over shared memory, Gloo and MPI, with a
    benchmark that compares them and trainers that need no tensor framework."""

    git = "file://" + CHECKOUT
    license("BSD-3-Clause")
    version("main", branch="main")

    variant("shared", default=True, description="Shared libraries; static ones have native only")
    variant("tools", default=True, description="c10d-run, c10d-bench, c10d-info, c10d-checkpoint")
    variant("gloo", default=False, description="The backend gloo, with the Gloo of the system")
    variant("mpi", default=False, description="The backend mpi, with Open MPI or MPICH")
    conflicts("+gloo", when="~shared")
    conflicts("+mpi", when="~shared")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("cli11", type="build", when="+tools")
    for library in ("fmt", "openssl@3:", "libuv", "hwloc@2:"):
        depends_on(library)
    depends_on("mpi", when="+mpi")
    requires("^[virtuals=mpi] openmpi", "^[virtuals=mpi] mpich", policy="one_of", when="+mpi")
    conflicts("%gcc@:11", msg="C++20 as g++ 12 has it")
    conflicts("%clang@:13", msg="C++20 as clang 14 has it")

    def cmake_args(self):
        # mpicc.openmpi and mpicc.mpich are names of Debian.
        found = {name: self.spec.satisfies("+mpi ^" + name) for name in ("openmpi", "mpich")}
        arguments = [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("C10D_BUILD_PROGRAMS", "tools"),
            self.define_from_variant("C10D_WITH_GLOO", "gloo"),
            self.define("C10D_WITH_TRAINING", False),
            self.define("C10D_BUILD_EXAMPLES", False),
            self.define("C10D_BUILD_TESTS", False),
        ]
        for name, wanted in found.items():
            arguments.append(self.define("C10D_WITH_" + name.upper(), wanted))
            if wanted:
                arguments.append(self.define("C10D_MPICC_" + name, self.spec["mpi"].mpicc))
        return arguments
