# SPDX-License-Identifier: BSD-3-Clause
"""Data-parallel training: softmax regression on handwritten digits.

    c10d-run -n 2 python3 train_ddp.py

Every global batch is cut into four shards, whatever the number of ranks. A rank adds the gradients
of its shards in pairs, and `native` adds those of the ranks in pairs, too: the sum follows one
tree, and the weights have the same bits on 1, 2 and 4 ranks.
"""
import argparse
import gzip
import hashlib
from pathlib import Path

import c10d
import numpy as np

SHARDS = 4
DATA = Path(__file__).resolve().parent.parent / "data"


def read(name):
    """An array of bytes in the format idx, as MNIST has."""
    with gzip.open(DATA / name) as file:
        data = file.read()
    shape = np.frombuffer(data, ">u4", data[3], offset=4)
    return np.frombuffer(data, "u1", offset=4 + 4 * len(shape)).reshape(shape)


def load(part):
    images = read(f"{part}-images-idx3-ubyte.gz")
    pixels = images.reshape(len(images), -1).astype("f4") / np.float32(images.max())
    ones = np.ones((len(images), 1), "f4")  # for the bias
    return np.hstack([pixels, ones]), read(f"{part}-labels-idx1-ubyte.gz")


def gradient(weights, x, labels):
    """Of the sum of the losses."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return x.T @ p


def tree_sum(parts):
    """Adds neighbours, then their sums."""
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="samples of all ranks together")
    parser.add_argument("--lr", type=float, default=0.5)
    options = parser.parse_args()
    group = c10d.init_process_group()
    if SHARDS % group.size != 0 or options.batch % SHARDS != 0:
        parser.error(f"{group.size} ranks and a batch of {options.batch} do not share {SHARDS} "
                     "shards")
    mine = range(group.rank * SHARDS // group.size, (group.rank + 1) * SHARDS // group.size)
    x, labels = load("train")
    weights = np.zeros((x.shape[1], 10), "f4")
    order = np.random.default_rng(1)  # the same on every rank
    for _ in range(options.epochs):
        samples = order.permutation(len(x))
        for first in range(0, len(x) - options.batch + 1, options.batch):
            shards = samples[first:first + options.batch].reshape(SHARDS, -1)
            total = tree_sum([gradient(weights, x[shards[s]], labels[shards[s]]) for s in mine])
            group.all_reduce(total)
            weights -= np.float32(options.lr / options.batch) * total
    if group.rank == 0:
        x, labels = load("t10k")
        right = (np.argmax(x @ weights, axis=1) == labels).mean()
        print(f"{100 * right:.1f} % of the test digits")
        print("weights", hashlib.sha256(weights.tobytes()).hexdigest()[:16])
    group.shutdown()


if __name__ == "__main__":
    main()
