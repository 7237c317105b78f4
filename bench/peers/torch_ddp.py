#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of ResNet18 (MNIST's 28x28 stem) in PyTorch: the model, batches and optimizer of
train_single and train_ddp --model resnet18 --data random --optimizer sgd.

Alone, or as rank RANK of WORLD_SIZE under DistributedDataParallel over gloo, e.g. started by
c10d-run. Rank 0 prints one line: median step T ms.
"""
import argparse
import os
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("torch_ddp.py: this Python has no PyTorch (Debian: python3-torch libopenblas0-pthread,"
             " and /usr/bin/python3 to run it)")


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False),
                                            nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet18():
    layers = [nn.Conv2d(1, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for outer, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
                          (512, 1)):
        layers.append(Block(channels, outer, stride))
        channels = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    model = resnet18()
    if size > 1:
        torch.distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    images = torch.rand(16, arguments.batch_size, 1, 28, 28) * 2 - 1
    labels = torch.randint(0, 10, (16, arguments.batch_size))
    times = []
    for step in range(arguments.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss(model(images[step % 16]), labels[step % 16]).backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    if rank == 0:
        print(f"PyTorch {torch.__version__}: median step {1000 * statistics.median(times):.2f} ms")
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
