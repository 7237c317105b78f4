#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A plain loop around torch.distributed.all_reduce, for c10d-bench doctor --cross-check.

On memory of the host with gloo; with --device cuda on GPUs with nccl, where CUDA events time
batches. Started as one rank by any launcher that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
MASTER_PORT. Rank 0 prints its versions, then a line per size: bytes, and the median time of an op
on the slowest rank in microseconds.
"""
import argparse
import os
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

BATCH = 20  # ops between two events


class HostClock:
    ops = 1

    def __init__(self, barrier):
        self.device = torch.device("cpu")
        self.before = dist.barrier if barrier else lambda: None

    def time(self, data):
        """Microseconds of one op."""
        self.before()
        start = time.perf_counter()
        dist.all_reduce(data)
        return (time.perf_counter() - start) * 1e6


class GpuClock:
    ops = BATCH

    def __init__(self):
        index = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
        torch.cuda.set_device(index)
        self.device = torch.device("cuda", index)
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time(self, data):
        """Microseconds of an op in a batch, as the GPU takes it."""
        self.start.record()
        for _ in range(BATCH):
            dist.all_reduce(data)
        self.stop.record()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) * 1e3 / BATCH


def slowest(times, device):
    """Each time, as the slowest rank has it."""
    times = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def loop(clock, data, seconds):
    """Microseconds of each op on this rank, for about so long after a tenth of it to warm up."""
    def run(count):
        return [clock.time(data) for _ in range(count)]

    each, = slowest([statistics.median(run(5)[1:])], clock.device)
    count = int(min(20000, max(20, seconds * 1e6 / (each * clock.ops))))
    run(count // 10)
    return run(count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=float, help="for one size")
    parser.add_argument("sizes", type=int, nargs="+", help="bytes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--barrier", action="store_true", help="before each op, not timed")
    options = parser.parse_args()
    cuda = options.device == "cuda"
    if cuda and not torch.cuda.is_available():
        print(f"torch_loop.py: PyTorch {torch.__version__} finds no GPU here: it has no CUDA, or "
              "its driver is missing", file=sys.stderr)
        sys.exit(3)
    torch.set_num_threads(1)
    clock = GpuClock() if cuda else HostClock(options.barrier)
    dist.init_process_group("nccl" if cuda else "gloo")
    if dist.get_rank() == 0:
        nccl = ", NCCL " + ".".join(map(str, torch.cuda.nccl.version())) if cuda else ""
        print(f"PyTorch {torch.__version__}{nccl}", flush=True)
    for size in options.sizes:
        data = torch.zeros(size // 4, device=clock.device)
        times = slowest(loop(clock, data, options.seconds), clock.device)
        if dist.get_rank() == 0:
            print(f"{size} {statistics.median(times):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
