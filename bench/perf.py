#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares two builds of c10d-bench: launches of both in turns, and the cells that differ."""
import argparse
import json
import math
import statistics
import subprocess
import sys
from typing import NamedTuple

CONFIDENCE = 0.95  # that all intervals hold at once
DEADLINE = 300  # of one launch, in seconds
KEY = ("op", "backend", "dtype", "redop", "root", "place", "bytes")
EPILOG = """
How it measures
  The same cell can take different times in different launches, even of one program. So each build
  is launched --pairs times, in the order base head, head base, base head, ...; a launch is a set of
  fresh processes, and its time for a cell is the median over its blocks. What slows the machine
  down for a while slows down both sides of a pair. No time is compared with one of another day.

How to read it
  base us   the median of the launches
  ratio     time of head / time of base: the middle of the ratios of the pairs (Hodges-Lehmann)
  interval  of that ratio (Wilcoxon's signed ranks). With c cells each interval has a confidence of
            1 - 0.05/c, so that all of them hold at once in 95 of 100 runs: a build against itself
            shows a cell once in twenty runs, however many cells there are
  slower    the interval is above 1 and the ratio is 1 + --effect or more; faster: the reverse
  same      the whole interval is within --effect of 1
  open      neither: this run cannot tell. More --pairs, or a machine with less to do, can

  "other bits" marks a cell whose result differs between the builds. "algorithm" says that the two
  builds chose different ones; --algo makes both take the same.

Exit status: 0 no cell is slower, 1 some are, 2 usage, 3 a launch failed.
"""


class Cell(NamedTuple):
    """A cell in one launch."""
    us: float
    algo: str
    hash: str


class Difference(NamedTuple):
    key: tuple
    base_us: float
    head_us: float
    ratio: float
    low: float
    high: float
    verdict: str
    algos: tuple  # of base, of head
    same_bits: bool
    ratios: list  # of each pair

    def name(self):
        op, backend, dtype, redop, root, place, size = self.key
        words = [op, backend, dtype, redop, None if root is None else f"root {root}",
                 "in place" if place == "in" else None, size_text(size)]
        return " ".join(str(word) for word in words if word is not None)


def size_text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or size % 1024:
            return f"{size} {unit}"
        size //= 1024
    return f"{size} GiB"


def cells_of(lines):
    """{key: Cell} of the JSON lines of one launch."""
    blocks = {}
    for line in lines:
        record = json.loads(line)
        if record["t"] == "cell":
            blocks.setdefault(tuple(record[name] for name in KEY), []).append(record)
    return {key: Cell(statistics.median(record["us"]["p50"] for record in records),
                      records[0]["algo"], records[0]["hash"]) for key, records in blocks.items()}


def rank_sums(count):
    """In how many of the 2^count ways to give signs the ranks with a plus have the sum 0, 1, ..."""
    ways = [1]
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    return ways


def middle_and_interval(values, confidence):
    """The median of the averages of all pairs of values, and the interval that the signed-rank test
    does not refuse; None without enough values for that confidence."""
    averages = sorted((values[i] + values[j]) / 2
                      for i in range(len(values)) for j in range(i, len(values)))
    most = (1 - confidence) / 2 * 2 ** len(values)
    cut, sum_of_ways = 0, 0  # how many averages may be left out at each end, and one
    for ways in rank_sums(len(values)):
        sum_of_ways += ways
        if sum_of_ways > most:
            break
        cut += 1
    if cut == 0:
        return None
    return statistics.median(averages), averages[cut - 1], averages[-cut]


def least_pairs(cells):
    return math.ceil(math.log2(2 * cells / (1 - CONFIDENCE)))


def verdict_of(ratio, low, high, effect):
    if low > 1 and ratio >= 1 + effect:
        return "slower"
    if high < 1 and ratio <= 1 / (1 + effect):
        return "faster"
    return "same" if low >= 1 / (1 + effect) and high <= 1 + effect else "open"


def common_keys(pairs):
    launches = [launch for pair in pairs for launch in pair]
    return [key for key in launches[0] if all(key in launch for launch in launches)]


def compare(pairs, effect):
    """A Difference for each cell that every launch has. `pairs`: ({key: Cell}, {key: Cell}) of base
    and head."""
    keys = common_keys(pairs)
    differences = []
    for key in keys:
        base, head = [pair[0][key] for pair in pairs], [pair[1][key] for pair in pairs]
        ratios = [h.us / b.us for b, h in zip(base, head)]
        found = middle_and_interval([math.log(ratio) for ratio in ratios],
                                    1 - (1 - CONFIDENCE) / len(keys))
        if found is None:
            raise ValueError(f"{len(keys)} cells need --pairs {least_pairs(len(keys))} at least, "
                             f"not {len(pairs)}: with fewer no difference could be told")
        ratio, low, high = (math.exp(value) for value in found)
        differences.append(Difference(
            key, *(statistics.median(cell.us for cell in side) for side in (base, head)),
            ratio, low, high, verdict_of(ratio, low, high, effect), (base[0].algo, head[0].algo),
            {cell.hash for cell in base} == {cell.hash for cell in head}, ratios))
    return differences


def left_out(pairs):
    """The cells that some launches have and others have not."""
    common = set(common_keys(pairs))
    return sorted({key for pair in pairs for launch in pair for key in launch} - common, key=str)


def launch(program, options):
    """The JSON lines of one set of processes."""
    command = [program, "run", "--launches", "1", "--json", "-", "-q", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its ranks
            out, err = process.communicate()
            err += f"perf: did not end within {DEADLINE} s\n"
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{err}perf: exit status {process.returncode}")
    return out.splitlines()


def measure(base, head, count, options):
    pairs = []
    for number in range(count):
        programs = (base, head) if number % 2 == 0 else (head, base)
        first, second = (cells_of(launch(program, options)) for program in programs)
        pairs.append((first, second) if number % 2 == 0 else (second, first))
        if number == 0:
            cells = len(common_keys(pairs))
            if cells == 0:
                raise ValueError("the builds have no measured cell in common")
            if count < least_pairs(cells):  # said now, not after all launches
                raise ValueError(f"{cells} cells need --pairs {least_pairs(cells)} at least")
        if sys.stderr.isatty():
            print(f"\rpair {number + 1} of {count}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return pairs


def table(differences, effect, everything):
    shown = [one for one in differences if everything or one.verdict in ("slower", "faster")]
    if not shown:
        yield f"no cell differs by {effect:.3g} % or more"
        return
    width = max(len(one.name()) for one in shown)
    yield f"{'cell':{width}}   base us   head us  ratio [interval]"
    for one in shown:
        line = (f"{one.name():{width}}  {one.base_us:8.4g}  {one.head_us:8.4g}  "
                f"{one.ratio:5.3f} [{one.low:.3f}, {one.high:.3f}]  {one.verdict}")
        if one.algos[0] != one.algos[1]:
            line += f"  algorithm {one.algos[0]} -> {one.algos[1]}"
        yield line


def report(differences, missing, arguments):
    print(f"base       {arguments.base_name}\nhead       {arguments.head_name}")
    print(f"launches   {arguments.pairs} pairs in turns, {len(differences)} cells, "
          f"{CONFIDENCE:.0%} for all intervals together\n")
    for line in table(differences, 100 * arguments.effect, arguments.all):
        print(line)
    count = {verdict: sum(one.verdict == verdict for one in differences)
             for verdict in ("slower", "faster", "same", "open")}
    print("\nverdicts   " + ", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    if count["open"]:
        worst = max((one for one in differences if one.verdict == "open"),
                    key=lambda one: one.high / one.low)
        print(f"           widest: {worst.name()} [{worst.low:.3f}, {worst.high:.3f}]; "
              "more --pairs narrow it")
    other = [one.name() for one in differences if not one.same_bits]
    print("results    " + (f"other bits: {'; '.join(other)}" if other else "the same bits"))
    for key in missing:
        print(f"left out   {' '.join(str(part) for part in key)}: not in every launch")


def write_json(path, differences, arguments):
    fields = {"base": arguments.base_name, "head": arguments.head_name, "pairs": arguments.pairs,
              "effect": arguments.effect, "confidence": CONFIDENCE,
              "cells": [dict(zip(KEY, one.key)) | {
                  name: getattr(one, name) for name in Difference._fields if name != "key"}
                  for one in differences]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)
        file.write("\n")


def percentage(text):
    value = float(text.removesuffix("%")) / 100
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 100 %")
    return value


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="./dev perf", usage="./dev perf BASE [HEAD] [-- [OP...] [options]]",
        description=__doc__, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", metavar="OP",
                        default=["all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                 "all_to_all"], help="as c10d-bench list ops (default: five)")
    parser.add_argument("--base", required=True, metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("--head", required=True, metavar="PROGRAM", help=argparse.SUPPRESS)
    parser.add_argument("--base-name", help=argparse.SUPPRESS)
    parser.add_argument("--head-name", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, default=50, help="pairs of launches (default 50)")
    parser.add_argument("--effect", type=percentage, default=0.03, metavar="P",
                        help="the least difference that counts (default 3%%)")
    parser.add_argument("--all", action="store_true", help="print every cell")
    parser.add_argument("--json", metavar="FILE", help="every cell, with the ratio of each pair")
    bench = parser.add_argument_group("handed to c10d-bench run, which explains them")
    options = {"-n": ("--ranks", "2"), "-B": ("--backends", "native"),
               "-s": ("--sizes", "8,1K,32K,1M,8M"), "-d": ("--dtype", "f32"),
               "--time": (None, "50ms"), "--blocks": (None, "2"), "--algo": (None, None)}
    for name, (long, value) in options.items():
        bench.add_argument(*filter(None, (name, long)), default=value,
                           help=f"(default {value})" if value else None)
    parsed = parser.parse_args(arguments)
    parsed.base_name = parsed.base_name or parsed.base
    parsed.head_name = parsed.head_name or parsed.head
    names = [(long or name).strip("-") for name, (long, _) in options.items()]
    parsed.options = [*parsed.ops, *(f"--{name}={getattr(parsed, name)}" for name in names
                                     if getattr(parsed, name) is not None)]
    return parsed


def main(arguments):
    parsed = parse(arguments)
    try:
        pairs = measure(parsed.base, parsed.head, parsed.pairs, parsed.options)
        differences = compare(pairs, parsed.effect)
    except ValueError as error:
        print(f"perf: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 3
    report(differences, left_out(pairs), parsed)
    if parsed.json:
        write_json(parsed.json, differences, parsed)
    return 1 if any(one.verdict == "slower" for one in differences) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
