#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The models of examples/training/nn, trained by PyTorch's DistributedDataParallel.

Started as one rank by any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or
alone as a single process. Rank 0 prints the median step time of the slowest rank. Needs PyTorch
(Debian: python3-torch libopenblas0-pthread, and /usr/bin/python3 to run it; pip: torch).
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    import torch.distributed as dist
except ImportError:
    print("torch_ddp.py: no PyTorch for this Python; Debian: apt-get install python3-torch "
          "libopenblas0-pthread, or pip install torch", file=sys.stderr)
    sys.exit(3)


def mlp():
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, (1, 28, 28)


def babycnn():
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, (1, 28, 28)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                          nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18():
    layers = [nn.Conv2d(1, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), (1, 28, 28)


MODELS = {"mlp": mlp, "babycnn": babycnn, "resnet18": resnet18}


def train(model, shape, options):
    """Milliseconds of each step on this rank."""
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    milliseconds = []
    for step in range(options.warm_up + options.steps):
        images = torch.rand(options.batch_size, *shape)
        labels = torch.randint(0, 10, (options.batch_size,))
        if dist.is_initialized():
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(model(images), labels).backward()
        optimizer.step()
        if step >= options.warm_up:
            milliseconds.append((time.perf_counter() - start) * 1e3)
    return milliseconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="resnet18")
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--threads", type=int, default=1, help="of one rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("gloo", "c10d"), default="gloo")
    options = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed + rank)
    model, shape = MODELS[options.model]()
    if ranks > 1:
        if options.backend == "c10d":
            sys.path.append(str(pathlib.Path(__file__).parents[1] / "python"))  # of a build
            import c10d_torch  # noqa: F401
        dist.init_process_group(options.backend)
        model = nn.parallel.DistributedDataParallel(model)
    slowest = torch.tensor(train(model, shape, options), dtype=torch.float64)
    if ranks > 1:
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        dist.destroy_process_group()
    if rank == 0:
        middle = statistics.median(slowest.tolist())
        where = f" on {options.backend}" if ranks > 1 else ""
        print(f"PyTorch {torch.__version__}{where}: median step {middle:.2f} ms")


if __name__ == "__main__":
    main()
