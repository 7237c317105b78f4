# SPDX-License-Identifier: BSD-3-Clause
"""`python -m c10d.run` is c10d-run."""
from ._program import become

if __name__ == "__main__":
    become("c10d-run")
