#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The equivalence ladder: training must end in the same bits however it is spread.

Runs the training programs in PROGRAMS with one model, seed and global batch, in one process, as
threads, on several ranks, sharded, as a pipeline, over the backends given, and after SIGKILL;
compares the digests that they print. A run that starts again from nothing ends in the same bits, so
one that resumes must also say from where, and save no step twice. Without --model a part that takes
a minute. In slices:

    ladder.py PROGRAMS --model resnet18 --gloo --only 'DDP, [1-3]' --digest 66157e78ffd27f28
"""
import argparse
import os
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

DEADLINE = 240  # of one run, in seconds
SAVE_EVERY = 3
STRATEGIES = ("train_ddp", "train_fsdp", "train_pipeline")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v")
TWO_PER_RANK = ("interleaved", "zb-v")  # stages
MOST_STAGES = {"mlp": 4, "gpt": 7}  # that a model can be cut into
# Open MPI refuses root and more ranks than cores unless told; MPICH ignores these. Both keep memory
# of their own until the process ends.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "ASAN_OPTIONS": "detect_leaks=0"}
# What the GPT learns: a text that is the same in every version of this project. The 30 steps read
# it one time and a half.
SUMS = "".join(f"{a} + {b} = {a + b}\n" for a in range(40) for b in range(40))


class Backend(NamedTuple):
    name: str
    launcher: str = ""  # the mpirun to start ranks with; else c10d-run
    options: tuple = ()


NATIVE = Backend("native")


class Run(NamedTuple):
    program: str
    ranks: int = 0  # 0: started without a launcher
    backend: Backend = NATIVE
    options: tuple = ()

    def __str__(self):
        return f"{self.program} {self.ranks} {self.backend.name}" if self.ranks else self.program


class Ladder:
    def __init__(self, programs, folder, model, steps, only, wanted):
        self.programs, self.folder, self.only = Path(programs), Path(folder), only
        data = "digits"
        if model == "gpt":
            data = self.folder / "sums"
            data.write_text(SUMS)
        self.task = ["--model", model, "--data", str(data), "--global-batch-size", "30",
                     "--shift", "0" if model == "gpt" else "1", "--epochs", "100000"]
        self.model, self.steps = model, steps
        self.wanted, self.failures, self.runs = wanted, [], 0

    def start(self, run, steps, output, more=()):
        """Runs to step `steps`; for 0 without end."""
        begin = []
        if run.ranks and run.backend.launcher:
            begin = [run.backend.launcher, "-n", str(run.ranks)]
        elif run.ranks:
            begin = [str(self.programs / "c10d-run"), "-n", str(run.ranks), "--no-prefix"]
        environment = dict(os.environ, **(MPI_ENVIRONMENT if run.backend.launcher else {}))
        environment.pop("C10D_BACKEND", None)
        return subprocess.Popen(
            [*begin, str(self.programs / run.program), *self.task, *run.options, *more,
             *(run.backend.options if run.ranks else ()),
             *(("--steps", str(steps)) if steps else ())],
            stdout=output, stderr=output, env=environment, stdin=subprocess.DEVNULL,
            start_new_session=True)

    def outcome(self, run, steps, more=()):
        """The digest, or why there is none; and what the run said."""
        with tempfile.TemporaryFile("w+") as output:
            with self.start(run, steps, output, more) as process:
                try:
                    process.wait(DEADLINE)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)  # the ranks too
                    return f"nothing within {DEADLINE} s", ""
            output.seek(0)
            text = output.read()
        found = re.findall(r"^(?:\[0\] )?weights ([0-9a-f]{16})$", text, re.M)
        if process.returncode == 0 and len(found) == 1:
            return found[0], text
        return f"exit status {process.returncode}:\n{text[-20000:]}", text

    def digest(self, run, steps):
        return self.outcome(run, steps)[0]

    def digest_of_rest(self, run, steps, folder):
        """The digest of a run that resumes from the newest checkpoint in `folder`, or what shows
        that it did not: it says so, and every later step that is due is saved, none before it."""
        name = newest(folder)
        missing = -(-steps // SAVE_EVERY) - step_of(name) // SAVE_EVERY
        last = f"{max(map(sequence_of, folder.glob('[0-9]*-step-*'))) + missing:06}-step-{steps}"
        found, text = self.outcome(run, steps, saves(folder))
        line = f"resumes from {folder}/{name} after step {step_of(name)}"
        if not is_digest(found):
            return found
        if not re.search(rf"^(?:\[0\] )?{re.escape(line)}$", text, re.M):
            return f"does not say '{line}':\n{text[-20000:]}"
        if newest(folder) != last:
            return f"saved {newest(folder)} last, which resuming from {name} is {last}"
        return found

    def report(self, name, found, wanted, began):
        self.runs += 1
        same = found == wanted and is_digest(found)
        print(f"{'ok  ' if same else 'FAIL'} {self.model:9} {name:50} {found[:16]} "
              f"{time.monotonic() - began:6.1f} s", flush=True)
        if not same:
            print(found)
            self.failures.append(f"{self.model} {name}")

    def one_process(self):
        """The digest that all others must have."""
        if self.wanted is None:
            began = time.monotonic()
            self.wanted = self.digest(Run("train_single"), self.steps)
            self.report("one process", self.wanted, self.wanted, began)

    def check(self, name, run):
        if re.search(self.only, name):
            began = time.monotonic()
            self.report(name, self.digest(run, self.steps), self.wanted, began)

    def check_resume(self, chance, interrupted, resumed):
        """Kills a rank at a random moment of a run, and lets another run resume."""
        if not re.search(self.only, f"{interrupted}, killed, {resumed}"):
            return
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            folder = Path(folder)
            try:
                rank = self.cut(chance, interrupted, folder)
            except (RuntimeError, OSError) as error:
                self.report(f"{interrupted}, to be killed", str(error), self.wanted, began)
                return
            # On a busy machine the signal may come when the run is far beyond the last step.
            step = step_of(newest(folder))
            steps = max(self.steps, step + 1)
            wanted = self.wanted
            if steps > self.steps:
                wanted = self.digest(Run("train_single"), steps)
            self.report(f"{interrupted}, {rank} killed, {resumed} from {step}",
                        self.digest_of_rest(resumed, steps, folder), wanted, began)

    def cut(self, chance, run, folder):
        """Which rank of how many was killed, when there were checkpoints in `folder`."""
        planned = SAVE_EVERY * chance.randrange(2, self.steps // SAVE_EVERY)
        with tempfile.TemporaryFile("w+") as output, \
                self.start(run, 0, output, saves(folder)) as process:
            end = time.monotonic() + DEADLINE
            seen, at, interval, fds = 0, time.monotonic(), 0.0, []
            while seen < planned and process.poll() is None and time.monotonic() < end:
                time.sleep(0.002)
                step = step_of(newest(folder))
                if step != seen:
                    seen, interval, at = step, time.monotonic() - at, time.monotonic()
            try:
                if seen >= planned:
                    time.sleep(chance.uniform(0, interval))
                    for pid in [*processes_of(process.pid, run.program), process.pid]:
                        fds.append(os.pidfd_open(pid))
                ranks, victim = len(fds) - 1, chance.randrange(max(run.ranks, 1))
                if victim < ranks:
                    signal.pidfd_send_signal(fds[victim], signal.SIGKILL)
                    # Not before all are gone: one job at a time may write to a checkpoint.
                    if gone(fds):
                        return f"{victim + 1} of {ranks}"
                output.seek(0)
                raise RuntimeError(f"step {seen} of {planned} saved, {max(ranks, 0)} ranks; "
                                   f"or they stayed when one was killed:\n{output.read()[-3000:]}")
            finally:
                for fd in fds:
                    end_process(fd)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def is_digest(text):
    return re.fullmatch("[0-9a-f]{16}", text)


def saves(folder):
    return "--checkpoint", str(folder), "--save-every", str(SAVE_EVERY)


def newest(folder):
    """The name of the newest checkpoint; empty: there is none."""
    latest = folder / "latest"
    return latest.read_text().split()[0] if latest.exists() else ""


def step_of(name):
    return int(name.split("-step-")[1]) if name else 0


def sequence_of(checkpoint):
    return int(checkpoint.name.split("-step-")[0])


def processes_of(launcher, program):
    """Those that run `program`: the launcher itself, or its descendants; by number."""
    found, ahead = [], [launcher]
    while ahead:
        pid = ahead.pop()
        try:
            if Path(os.readlink(f"/proc/{pid}/exe")).name == program:
                found.append(pid)
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                ahead += [int(child) for child in task.read_text().split()]
        except OSError:
            pass  # it has ended
    return sorted(found)


def gone(processes):
    """Whether all these pidfds are of ended processes before the deadline."""
    end = time.monotonic() + DEADLINE
    return all(select.select([fd], [], [], max(0, end - time.monotonic()))[0] for fd in processes)


def end_process(fd):
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.close(fd)


def small(ladder, backends, chance):
    ladder.one_process()
    for ranks in ("2", "3", "8"):
        ladder.check(f"{ranks} threads", Run("train_data_parallel", options=("--ranks", ranks)))
    ladder.check("3 spawned", Run("train_spawn", options=("--ranks", "3")))
    for ranks in (1, 2, 3, 4, 8):
        ladder.check(f"DDP, {ranks} ranks", Run("train_ddp", ranks))
    for ranks in (2, 3):
        for zero in ("1", "2", "3"):
            ladder.check(f"ZeRO-{zero}, {ranks} ranks",
                         Run("train_fsdp", ranks, options=("--zero", zero)))
    ladder.check("ZeRO-3, 2 x 2 ranks", Run("train_fsdp", 4, options=("--replicas", "2")))
    for schedule in SCHEDULES:
        for ranks in (1, 2, 4) if schedule in TWO_PER_RANK else (2, 4):
            ladder.check(f"pipeline {schedule}, {ranks} ranks",
                         Run("train_pipeline", ranks, options=("--pipeline-schedule", schedule)))
    for backend in backends[1:]:
        for program in STRATEGIES:
            ladder.check(f"{program}, 2 ranks, {backend.name}", Run(program, 2, backend))
    # Every strategy on every backend, killed: to another number of ranks, and to the next of all.
    for i, backend in enumerate(backends):
        for k, program in enumerate(STRATEGIES):
            killed = Run(program, 2, backend)
            ladder.check_resume(chance, killed, Run(program, 3, backend))
            ladder.check_resume(chance, killed, Run(STRATEGIES[(k + 1) % len(STRATEGIES)], 3,
                                                    backends[(i + 1) % len(backends)]))


def everything(ladder, backends, chance):
    ladder.one_process()
    if NATIVE in backends:
        for ranks in ("2", "3", "8"):
            ladder.check(f"{ranks} threads",
                         Run("train_data_parallel", options=("--ranks", ranks)))
        ladder.check("2 spawned", Run("train_spawn", options=("--ranks", "2")))
    for backend in backends:
        for ranks in (1, 2, 3, 4, 8):
            ladder.check(f"DDP, {ranks} ranks, {backend.name}", Run("train_ddp", ranks, backend))
        for ranks in (2, 3, 4):
            for zero in ("1", "2", "3"):
                ladder.check(f"ZeRO-{zero}, {ranks} ranks, {backend.name}",
                             Run("train_fsdp", ranks, backend, ("--zero", zero)))
        for schedule in SCHEDULES:
            per_rank = 2 if schedule in TWO_PER_RANK else 1
            for stages in (2, 4, 8) if per_rank == 2 else (2, 4):
                if stages > MOST_STAGES.get(ladder.model, 8):
                    continue
                ladder.check(f"pipeline {schedule}, {stages} stages, {backend.name}",
                             Run("train_pipeline", stages // per_rank, backend,
                                 ("--pipeline-schedule", schedule)))
        chain = [Run("train_ddp", 2, backend), Run("train_fsdp", 3, backend), Run("train_single"),
                 Run("train_pipeline", 2, backend), Run("train_ddp", 4, backend)]
        for i, run in enumerate(chain):
            ladder.check_resume(chance, run, chain[(i + 1) % len(chain)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", metavar="PROGRAMS", help="folder of c10d-run and train_*")
    parser.add_argument("--model", help="every combination for this model; many minutes")
    parser.add_argument("--native", dest="backends", action="append_const", const=NATIVE,
                        default=[], help="run it on this backend")
    parser.add_argument("--gloo", dest="backends", action="append_const",
                        const=Backend("gloo", options=("--backend", "gloo")))
    parser.add_argument("--mpirun", dest="backends", action="append", metavar="PATH",
                        type=lambda path: Backend(Path(path).name, path, ("--backend", "mpi")),
                        help="the mpi backend for the MPI of this launcher (repeatable)")
    parser.add_argument("--left-out", action="append", default=[], metavar="BACKEND: WHY",
                        help="print that it is not run (repeatable)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000),
                        help="of the moments at which runs are killed")
    parser.add_argument("--only", metavar="REGEX", default="",
                        help="the runs whose line matches, and one process")
    parser.add_argument("--digest", help="of one process, which is not run then")
    arguments = parser.parse_args()
    for backend in arguments.left_out:
        print(f"skip {backend}")
    print(f"killed as --seed {arguments.seed} says", flush=True)
    with tempfile.TemporaryDirectory(prefix="c10d-ladder-") as folder:
        ladder = Ladder(arguments.programs, folder, arguments.model or "babycnn",
                        30 if arguments.model else 12, arguments.only, arguments.digest)
        (everything if arguments.model else small)(ladder, arguments.backends,
                                                   random.Random(arguments.seed))
    print(f"{ladder.runs} runs, {len(ladder.failures)} differ, "
          f"{len(arguments.left_out)} backends left out")
    for failure in ladder.failures:
        print("  " + failure)
    return 1 if ladder.failures or ladder.runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
