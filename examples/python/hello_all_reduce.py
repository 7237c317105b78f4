# SPDX-License-Identifier: BSD-3-Clause
"""A sum over the ranks: c10d-run -n 4 python3 hello_all_reduce.py"""
import c10d
import numpy as np

with c10d.init_process_group() as group:
    x = np.full(3, group.rank + 1.0)
    group.all_reduce(x)  # in place

    expected = sum(range(1, group.size + 1))
    assert (x == expected).all(), x
    print(f"rank {group.rank} of {group.size}: {x}")
