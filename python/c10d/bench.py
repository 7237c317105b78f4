# SPDX-License-Identifier: BSD-3-Clause
"""`python -m c10d.bench` is c10d-bench."""
from ._program import become

if __name__ == "__main__":
    become("c10d-bench")
