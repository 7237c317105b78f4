# SPDX-License-Identifier: BSD-3-Clause
"""What each rank of failures_test.py runs: failing_ranks.py CASE FOLDER [BACKEND]."""
import datetime
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import c10d_torch

CASE, FOLDER = sys.argv[1], Path(sys.argv[2])
BACKEND = sys.argv[3] if len(sys.argv) > 3 else "c10d"


def killed():
    """A rank is killed under DDP; the others say when they raise and what."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    when = FOLDER / "when"
    try:
        for step in range(1000):
            if rank == 1 and step == 5:
                when.write_text(repr(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            model(torch.ones(4, 8)).sum().backward()
    except RuntimeError as error:
        took = time.time() - float(when.read_text())
        print(f"raised after {took:.3f} s: {error}", flush=True)
        sys.exit(0)


class Touching(torch.utils.data.Dataset):
    """A data set whose items use the group."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        x = torch.ones(1)
        dist.all_reduce(x)
        return x


def forked():
    try:
        list(torch.utils.data.DataLoader(Touching(), num_workers=1))
    except Exception as error:
        print(f"worker: {error}", flush=True)
    x = torch.ones(2)
    dist.all_reduce(x)
    print(f"parent: {x.tolist()}", flush=True)


def pending():
    """The interpreter ends while ops, and what hangs on them, are pending."""
    if rank == 0:
        global kept
        kept = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(3)]
        kept.append(kept[-1].get_future().then(lambda done: done.wait()))
        dist.irecv(torch.ones(3), 1, tag=7)
    print("end", flush=True)


def futures():
    """A forked child has none of the threads that serve futures."""
    def pass_on():
        if dist.get_rank() == 1:
            time.sleep(0.2)  # so that what hangs on the future of rank 0 needs a thread
        done = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: f.value())
        return done.wait()[0].tolist()

    pass_on()
    dist.destroy_process_group()
    child = os.fork()
    if child == 0:
        dist.init_process_group(BACKEND, init_method=f"file://{FOLDER}/second", rank=rank,
                                world_size=2)
        print(f"child: {pass_on()}", flush=True)
        dist.destroy_process_group()
        os._exit(0)
    os.waitpid(child, 0)


def dropped():
    """Nobody waits for an op that fails."""
    dist.all_reduce(torch.ones(4, dtype=torch.float32 if rank else torch.float64), async_op=True)


def aborted():
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    if rank == 0:
        dist.barrier()
        backend.abort()
    try:
        while True:
            dist.barrier()
    except c10d_torch.Error as error:
        print(f"aborted: {error.code} {error}", flush=True)


def shrunk():
    """A rank dies; the others go on in a smaller group."""
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.barrier()
    except c10d_torch.Error as error:
        print(f"lost {error.rank}", flush=True)
    dist.shrink_group([1])
    x = torch.ones(2)
    dist.all_reduce(x)
    print(f"left: {dist.get_world_size()} ranks, {x.tolist()}", flush=True)


def dtypes():
    try:
        dist.all_reduce(torch.ones(4, dtype=torch.float32 if rank else torch.float64))
    except c10d_torch.Error as error:
        print(f"{error.code}: {error}", flush=True)


def file_store():
    """The default group meets by a file that is not there yet."""
    x = torch.ones(2)
    dist.all_reduce(x)
    print(f"met: {x.tolist()}", flush=True)


by_file = {"init_method": f"file://{FOLDER}/store", "rank": int(os.environ["RANK"]),
           "world_size": int(os.environ["WORLD_SIZE"])} if CASE == "file_store" else {}
dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=60), **by_file)
rank = dist.get_rank()
globals()[CASE]()
