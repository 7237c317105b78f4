#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A plain loop around torch.distributed.all_reduce on gloo, for c10d-bench doctor --cross-check.

Started as one rank by any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0
prints a line per size: bytes, and the median time of the slowest rank in microseconds.
"""
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("torch_loop.py: no PyTorch for this Python; Debian: apt-get install python3-torch, or "
          "pip install torch numpy", file=sys.stderr)
    sys.exit(3)


def loop(data, seconds):
    """Microseconds of each call on this rank, for about so long after a tenth of it to warm up."""
    def run(count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            dist.all_reduce(data)
            times.append((time.perf_counter() - start) * 1e6)
        return times

    each = torch.tensor(statistics.median(run(5)[1:]))
    dist.all_reduce(each, dist.ReduceOp.MAX)
    count = int(min(20000, max(20, seconds * 1e6 / each.item())))
    run(count // 10)
    return run(count)


def main():
    seconds = float(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in (int(word) for word in sys.argv[2:]):
        times = torch.tensor(loop(torch.zeros(size // 4), seconds), dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(f"{size} {statistics.median(times.tolist()):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
