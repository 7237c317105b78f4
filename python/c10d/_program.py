# SPDX-License-Identifier: BSD-3-Clause
"""Becomes a program that the package carries."""
import os
import shutil
import sys
from pathlib import Path


def become(name):
    carried = Path(__file__).parent / "bin" / name
    path = str(carried) if carried.exists() else shutil.which(name)
    if path is None:
        sys.exit(f"{name}: not in this package, and not on PATH: install c10d-tools, or build the "
                 "package from its repository")
    # A script without a program before it runs with this Python.
    folder = os.path.dirname(sys.executable)
    os.environ["PATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PATH")]))
    os.execv(path, [path, *sys.argv[1:]])
