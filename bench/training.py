#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Step times of training, ours and PyTorch's, in turns: training.py PROGRAMS [PYTHON...]

ResNet18 on 28x28 noise, batch 32 per rank, one thread per rank, SGD; alone and with two ranks. Each
PYTHON is an interpreter that has PyTorch (default: /usr/bin/python3).
"""
import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

PEER = Path(__file__).parent / "peers" / "torch_ddp.py"


def median_step(command):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600,
                           stdin=subprocess.DEVNULL)
    found = re.search(r"median step ([\d.]+) ms(?:, waits ([\d.]+) ms)?", ended.stdout)
    if ended.returncode != 0 or not found:
        lines = ended.stderr.strip().splitlines() or ["no output"]
        raise RuntimeError(f"{' '.join(map(str, command))}: {lines[-1]}")
    return float(found[1]), float(found[2] or 0)


def contenders(programs, pythons, ranks, steps):
    launcher = [programs / "c10d-run", "-n", str(ranks), "--no-prefix"] if ranks > 1 else []
    ours = [programs / ("train_ddp" if ranks > 1 else "train_single"), "--model", "resnet18",
            "--data", "random", "--optimizer", "sgd", "--epochs", "1", "--batch-size", "32",
            "--steps", str(steps), "--mode"]
    yield "c10d fast", launcher + ours + ["fast"]
    yield "c10d reproducible, G = 8", launcher + ours + ["reproducible"]
    for python in pythons:
        yield f"PyTorch of {python}", launcher + [python, PEER, "--steps", str(steps)]


def compare(programs, pythons, ranks, rounds, steps):
    entries = list(contenders(programs, pythons, ranks, steps))
    times = {name: [] for name, _ in entries}
    for _ in range(rounds):
        for name, command in entries:
            if times[name] is None:
                continue
            try:
                times[name].append(median_step(command))
            except RuntimeError as error:
                print(f"left out: {error}")
                times[name] = None
    base = times[entries[0][0]]
    print(f"\nResNet18, batch 32 per rank, {ranks} rank{'s' if ranks > 1 else ''}, {rounds} rounds "
          f"of {steps} steps, in turns")
    print(f"  {'':32} {'ms/step':>9} {'waits ms':>9} {'of c10d fast':>13}")
    for name, _ in entries:
        if not times[name] or not base:
            continue
        ratio = statistics.median(mine[0] / other[0] for mine, other in zip(times[name], base))
        print(f"  {name:32} {statistics.median(t[0] for t in times[name]):9.2f} "
              f"{statistics.median(t[1] for t in times[name]):9.2f} {ratio:13.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path, help="folder of c10d-run and train_*")
    parser.add_argument("python", nargs="*", default=["/usr/bin/python3"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    for ranks in (1, 2):
        compare(arguments.programs.resolve(), arguments.python, ranks, arguments.rounds,
                arguments.steps)


if __name__ == "__main__":
    sys.exit(main())
