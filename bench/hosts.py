#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""native beside MPI, Gloo and a plain loop over TCP, over two hosts that are network namespaces of
this machine, joined by a cable."""
import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import unittest
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/hosts"))
import test_bed  # noqa: E402
from perf import size_text  # noqa: E402

EPILOG = """
How it measures
  mpirun starts one rank or four on each of two network namespaces, which a veth cable joins. tbf
  limits what each host sends. All columns are measured in one run, a block of each in turns; a
  run is a new job on new namespaces. The passes take turns, so that a column of ratios is of
  different times.

How to read it
  native us     p50 of the slowest rank: the median of the runs
  native / X    time of native / time of X in each run: below 1 native is faster. raw:mpi and
                raw:gloo are the libraries, called directly; raw:tcp is one connection and a loop
  of the link   what all_reduce must send, by the rate of the link one way, in each run
  X - raw:X     in us: what the checks and the agreement of gloo and mpi cost. Without them a rank
                may begin its next op while the others end the last one
"""
BASE = "native"


class Setting(NamedTuple):
    """Two hosts, and what is measured on them."""
    name: str
    ranks: int  # of each host
    rate: str  # of the cable, as tc takes it; empty: no limit
    columns: str
    ops: str
    sizes: str


SETTINGS = (
    Setting("no-limit", 1, "", "native,raw:tcp,raw:mpi,mpi,raw:gloo,gloo", "all_reduce",
            "8,64K,1M,16M,64M"),
    Setting("10-gbit", 1, "10gbit", "native,raw:tcp,raw:mpi,raw:gloo", "all_reduce", "1M,16M,64M"),
    Setting("1-gbit", 1, "1gbit", "native,raw:tcp,raw:mpi,raw:gloo", "all_reduce", "1M,16M"),
    Setting("four-ranks", 4, "1gbit", "native,raw:mpi,raw:gloo",
            "all_reduce broadcast all_gather reduce_scatter all_to_all", "16M"),
)


class TwoHosts(test_bed.TwoHosts):
    """With a limit of what they send, and a congestion control, for all programs on them."""

    def limit(self, rate):
        for namespace in self.namespaces:
            namespace.do("tc", "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate,
                         "burst", "1mb", "latency", "50ms")

    def take_congestion_control(self, name):
        for namespace in self.namespaces:
            namespace.do("sh", "-c",
                         f"echo {name} > /proc/sys/net/ipv4/tcp_congestion_control")


def measure(programs, mpirun, setting, congestion, arguments, path):
    """One run, whose JSON lines it writes. Raises AssertionError with its output where it fails."""
    hosts = TwoHosts()
    try:
        hosts.setUp()
        hosts.take_congestion_control(congestion)
        if setting.rate:
            hosts.limit(setting.rate)
        run = hosts.open_mpi(
            programs, mpirun, hosts.hosts(setting.ranks, setting.ranks), programs / "c10d-bench",
            "compare", "-B", setting.columns, *setting.ops.split(), "-s", setting.sizes,
            "--control", "off", "--blocks", "3", "--time", arguments.time, "-q", "--json", path)
        if run.end() != 0:
            raise AssertionError(run.out[-2000:] + run.err[-2000:])
        return read(path)
    finally:
        hosts.doCleanups()


class Run(NamedTuple):
    us: dict  # {(op, bytes, column): p50 of the slowest rank}
    link: float  # GB/s one way


def read(path):
    blocks, link = {}, 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["t"] == "cell":
            key = record["op"], record["bytes"], record["backend"]
            blocks.setdefault(key, []).append(record["us"]["p50"])
            if record["wrong"]:
                raise AssertionError(f"{path}: wrong elements: {record}")
        elif record["t"] == "ceil" and record["level"] == "one way":
            link = max(link, record["gbps"])
    return Run({key: statistics.median(values) for key, values in blocks.items()}, link)


def each(values, form="{:.2f}"):
    return " ".join(form.format(value) for value in values)


def pairs(us, one, other):
    """Of two columns; none where one was not measured."""
    return [] if None in us(one) + us(other) else list(zip(us(one), us(other)))


def table(runs, others):
    """Lines of Markdown: the cells of the runs, which are alike."""
    cells = list(dict.fromkeys((op, size) for op, size, _ in runs[0].us))
    peers = [name for name in others if name.startswith("raw:")]
    wrappers = [name for name in others if f"raw:{name}" in peers]
    heads = ["", "native us", *(f"native / {peer}" for peer in peers), "of the link",
             *(f"{name} - raw:{name}" for name in wrappers)]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for op, size in cells:
        def us(column, cell=(op, size)):
            return [run.us.get((*cell, column)) for run in runs]

        ours = us(BASE)
        if None in ours:
            continue
        median = statistics.median(ours)
        row = [f"{op} {size_text(size)}", f"{median:,.0f}" if median >= 1000 else f"{median:.3g}"]
        row += [each(a / b for a, b in pairs(us, BASE, peer)) for peer in peers]
        is_bound = op == "all_reduce" and size >= 1 << 20 and all(run.link for run in runs)
        row.append(each(size * 1e-3 / run.link / a for run, a in zip(runs, ours))
                   if is_bound else "")
        row += [each((a - b for a, b in pairs(us, name, "raw:" + name)), "{:.0f}")
                for name in wrappers]
        yield f"| {' | '.join(row)} |"


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev hosts", usage="./dev hosts [-- options]",
                                     description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="NAME,..", default=",".join(s.name for s in SETTINGS),
                        help="settings (default %(default)s)")
    parser.add_argument("--congestion", metavar="NAME,..",
                        help="congestion controls of TCP (default: the system's, and reno)")
    parser.add_argument("--sizes", metavar="S,..", help="in place of those of each setting")
    parser.add_argument("--runs", type=int, default=3, help="of each (default %(default)s)")
    parser.add_argument("--time", default="0.1s", metavar="T",
                        help="of one block of one column (default %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/hosts"), metavar="DIR",
                        help="for the JSON lines of each run (default %(default)s)")
    parsed = parser.parse_args(arguments)
    known = {setting.name: setting for setting in SETTINGS}
    names = parsed.only.split(",")
    for name in names:
        if name not in known:
            parser.error(f"--only {name}: there are {', '.join(known)}")
    if parsed.runs < 1:
        parser.error("--runs: at least one")
    parsed.settings = [known[name]._replace(sizes=parsed.sizes or known[name].sizes)
                       for name in names]
    system = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    parsed.congestion = list(dict.fromkeys((parsed.congestion or f"{system},reno").split(",")))
    usable = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    for name in parsed.congestion:
        if name not in usable:
            parser.error(f"--congestion {name}: this kernel has {', '.join(usable)}")
    return parsed


def main(arguments):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that ranks end, too
    parsed = parse(arguments)
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        print("hosts: there is no mpirun.openmpi (package openmpi-bin)", file=sys.stderr)
        return 2
    parsed.folder.mkdir(parents=True, exist_ok=True)
    folder = parsed.folder.resolve()
    test_bed.DEADLINE = 900
    runs = {(setting, congestion): [] for congestion in parsed.congestion
            for setting in parsed.settings}
    try:
        for number in range(1, parsed.runs + 1):
            for (setting, congestion), done in runs.items():
                print(f"run {number} of {parsed.runs}: {setting.name}, {congestion}",
                      file=sys.stderr)
                path = folder / f"{setting.name}-{congestion}-{number}.jsonl"
                done.append(measure(parsed.programs.resolve(), mpirun, setting, congestion, parsed,
                                    path))
    except unittest.SkipTest as reason:
        print(f"skipped: {reason}")
        return test_bed.SKIPPED
    except AssertionError as failure:
        print(f"hosts: {failure}", file=sys.stderr)
        return 1
    for (setting, congestion), done in runs.items():
        print(f"\n{setting.name}: two hosts, {setting.ranks} rank(s) each, cable "
              f"{setting.rate or 'without a limit'}, {congestion}; the link one way "
              f"{each((run.link for run in done), '{:.3g}')} GB/s\n")
        for line in table(done, setting.columns.split(",")[1:]):
            print(line)
    print(f"\nruns: {os.path.relpath(folder)}/*.jsonl, which c10d-bench report prints")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
