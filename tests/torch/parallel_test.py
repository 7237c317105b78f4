# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's parallel trainers over c10d, against a process of its own. Every rank runs it."""
import shutil
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

if torch.__version__.startswith("1."):
    print("skipped: PyTorch 1 has none of these for the CPU")
    sys.exit(77)
dist.init_process_group("c10d")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
STEPS = 3


def mlp(width=8):
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(width, 16), torch.nn.ReLU(),
                               torch.nn.Linear(16, width))


def batch(step, width=8):
    return torch.randn(4 * size, width, generator=torch.Generator().manual_seed(step))


def mine(x):
    """The rows of this rank."""
    return x.chunk(size)[rank]


def train(model, x_of, optimizer=None):
    """The weights after some steps."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = x_of(batch(step))
        (model(x) - x).square().mean().backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]


class Parallel(unittest.TestCase):
    def close(self, got, expected):
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    def test_dtensor(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        mesh = init_device_mesh("cpu", (size,))
        torch.manual_seed(1)
        a, b = torch.randn(6 * size + 1, 8), torch.randn(8, 5)
        rows = distribute_tensor(a, mesh, [Shard(0)])
        product = rows @ distribute_tensor(b, mesh, [Replicate()])
        self.close([product.full_tensor()], [a @ b])
        inner = rows.redistribute(mesh, [Shard(1)])  # all_to_all
        self.close([(inner @ distribute_tensor(b, mesh, [Shard(0)])).full_tensor()], [a @ b])

    def test_fully_shard(self):
        from torch.distributed.fsdp import fully_shard
        model = mlp()
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        self.close(train(fully_shard(model), mine), train(mlp(), lambda x: x))

    def test_zero_1(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer
        model = torch.nn.parallel.DistributedDataParallel(mlp())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
        self.close(train(model, mine, optimizer), train(mlp(), lambda x: x))

    def test_tensor_parallel(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)
        model = parallelize_module(mlp(), init_device_mesh("cpu", (size,)),
                                   {"0": ColwiseParallel(), "2": RowwiseParallel()})
        self.close(train(model, lambda x: x), train(mlp(), lambda x: x))

    def test_pipelining(self):
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        layers = torch.nn.Sequential(*[mlp() for _ in range(size)])
        stage = PipelineStage(layers[rank], rank, size, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=4,
                                 loss_fn=torch.nn.functional.mse_loss)
        x = batch(0)
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=x, losses=losses)
        else:
            schedule.step()
        whole = torch.nn.Sequential(*[mlp() for _ in range(size)])
        loss = torch.nn.functional.mse_loss(whole(x), x)
        loss.backward()
        if rank == size - 1:
            self.close([torch.stack(losses).mean()], [loss])
        self.close([p.grad for p in layers[rank].parameters()],
                   [p.grad for p in whole[rank].parameters()])

    def test_checkpoint(self):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.fsdp import fully_shard
        folder = [tempfile.mkdtemp() if rank == 0 else None]
        dist.broadcast_object_list(folder)
        try:
            saved = fully_shard(mlp())
            train(saved, mine)
            dcp.save({"model": saved.state_dict()}, checkpoint_id=folder[0])
            loaded = fully_shard(mlp())
            state = {"model": loaded.state_dict()}
            dcp.load(state, checkpoint_id=folder[0])
            loaded.load_state_dict(state["model"])
            for a, b in zip(loaded.parameters(), saved.parameters()):
                self.assertTrue(torch.equal(a.full_tensor(), b.full_tensor()))
        finally:
            dist.barrier()
            if rank == 0:
                shutil.rmtree(folder[0])


unittest.main()
