#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""without_kernels.py ROOT BUILD CMAKE CXX LIBRARIES OBJECT...: what a build without nvcc has.

Configures one. Only the library of the kernels differs from BUILD: it is built, and with it and the
OBJECTs and LIBRARIES (with commas between them) of BUILD the module nccl.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, BUILD, CMAKE, CXX, LIBRARIES = sys.argv[1:6]
OBJECTS = sys.argv[6:]
WHY = "C10D_WITH_CUDA is OFF"


def run(*command, **environment):
    """What the command prints, which must succeed."""
    done = subprocess.run(command, text=True, env={**os.environ, **environment}, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}")
    return done.stdout


def facts(fact, path=()):
    """Each answer of a backend, with where it stands."""
    if "ok" in fact:
        yield path, fact
    else:
        for name, below in fact.items():
            yield from facts(below, (*path, name))


def capabilities(**environment):
    known = json.loads(run(f"{BUILD}/bin/c10d-info", "--json", **environment))
    path = next(backend["path"] for backend in known["backends"] if backend["name"] == "nccl")
    return path, dict(facts(known["capabilities"]["nccl"]["cuda"]))


def needs_kernel(fact):
    how = fact.get("composed", "grouped")
    return not how.startswith("grouped") and how != "all_reduce of one number"


def main(work):
    said = run(CMAKE, "-S", ROOT, "-B", work, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={CXX}",
               "-DC10D_WITH_CUDA=OFF", "-DC10D_BUILD_TESTS=OFF", "-DC10D_INSTALL=OFF")
    if f"c10d: CUDA kernels: {WHY}\n" not in said:
        sys.exit(f"configure does not say what is missing:\n{said}")
    plan = run(CMAKE, "--build", work, "--", "-n")  # every target has all that it needs
    for product in ("libc10d_nccl.so", "c10d-bench", "19_gpu", "libc10d_parallel.so"):
        if product not in plan:
            sys.exit(f"{product} would not be built:\n{plan}")
    if "nvcc" in plan:
        sys.exit(f"nvcc would be called:\n{plan}")

    run(CMAKE, "--build", work, "--target", "c10d_cuda_kernels")
    module = work / "modules/libc10d_nccl.so"
    module.parent.mkdir()
    run(CXX, "-shared", "-o", module, *OBJECTS, work / "kernels/cuda/libc10d_cuda_kernels.a",
        *LIBRARIES.split(","))

    whole = capabilities()[1]
    path, without = capabilities(C10D_BACKEND_PATH=str(module.parent))
    if path != str(module):
        sys.exit(f"{path} was opened, not {module}")
    refused = {"ok": False, "reason": f"this build has no CUDA kernels: {WHY}"}
    expected = {at: refused if needs_kernel(fact) else fact for at, fact in whole.items()}
    for at, fact in without.items():
        if fact != expected[at]:
            sys.exit(f"{' '.join(at)}: {fact}, not {expected[at]}")
    if without.keys() != whole.keys() or refused not in without.values():
        sys.exit("not the same ops, or none that needs a kernel")

    # What needs none is right, and the rest is refused by ranks as well.
    ran = run(f"{BUILD}/bin/conformance", "--gtest_filter=*.ResultsAreRight/nccl_2", "--thin=4",
              C10D_BACKEND_PATH=str(module.parent))
    if refused["reason"] not in ran or "nccl, 2 ranks: cases:" not in ran:
        sys.exit(ran)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder).resolve())
