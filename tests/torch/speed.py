# SPDX-License-Identifier: BSD-3-Clause
"""Times of dist.all_reduce on gloo and on c10d, in turns. Every rank runs it.

Prints a line per size: the median times in microseconds, and c10d's part of gloo's.
"""
import statistics
import time

import torch
import torch.distributed as dist

import c10d_torch  # noqa: F401

SIZES = {8: 50, 64 << 10: 20, 1 << 20: 5, 64 << 20: 1}  # bytes, calls in a turn
TURNS = 41

dist.init_process_group("gloo")
groups = {"gloo": dist.new_group(backend="gloo"), "c10d": dist.new_group(backend="c10d")}
for size, calls in SIZES.items():
    x = torch.zeros(size // 4)
    times = {name: [] for name in groups}
    for turn in range(TURNS + 1):
        for name, group in groups.items():
            dist.barrier(group=group)
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x, group=group)
            if turn > 0:
                times[name].append((time.perf_counter() - start) / calls * 1e6)
    gloo, ours = (statistics.median(times[name]) for name in groups)
    if dist.get_rank() == 0:
        print(f"{size:>10} B  gloo {gloo:10.1f} us  c10d {ours:10.1f} us  {ours / gloo:.3f}",
              flush=True)
dist.destroy_process_group()
