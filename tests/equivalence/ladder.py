#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The equivalence ladder: training must end in the same bits however it is spread.

Runs the training programs in PROGRAMS with one model, seed and global batch, in one process, as
threads, on several ranks, sharded, as a pipeline, over every backend that is there, and after
SIGKILL; compares the digests that they print. Without --all a part that takes a minute.
"""
import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEADLINE = 240  # of one run, in seconds
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v")
# Open MPI refuses root and more ranks than cores unless told; MPICH ignores these. Both keep memory
# of their own until the process ends.
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "ASAN_OPTIONS": "detect_leaks=0"}


class Ladder:
    def __init__(self, programs, model, steps):
        self.programs = Path(programs)
        self.task = ["--model", model, "--data", "text" if model == "gpt" else "digits",
                     "--global-batch-size", "30", "--epochs", "2", "--steps", str(steps),
                     "--shift", "0" if model == "gpt" else "1"]
        self.model, self.steps = model, steps
        self.wanted, self.failures, self.runs = None, [], 0

    def command(self, program, ranks=0, launcher=None, options=()):
        start = []
        if launcher:
            start = [launcher, "-n", str(ranks)]
        elif ranks:
            start = [str(self.programs / "c10d-run"), "-n", str(ranks), "--no-prefix"]
        return start + [str(self.programs / program)] + self.task + list(options)

    def digest(self, command, launcher):
        environment = dict(os.environ, **(MPI_ENVIRONMENT if launcher else {}))
        environment.pop("C10D_BACKEND", None)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=environment, stdin=subprocess.DEVNULL,
                              start_new_session=True) as run:
            try:
                out, err = run.communicate(timeout=DEADLINE)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)  # the ranks too
                return f"nothing within {DEADLINE} s"
        found = re.findall(r"^(?:\[0\] )?weights ([0-9a-f]{16})$", out, re.M)
        if run.returncode == 0 and len(found) == 1:
            return found[0]
        return f"exit status {run.returncode}:\n{out[-1000:]}{err[-2000:]}"

    def check(self, name, program, ranks=0, launcher=None, options=()):
        began = time.monotonic()
        found = self.digest(self.command(program, ranks, launcher, options), launcher)
        self.runs += 1
        if self.wanted is None:
            self.wanted = found
        same = found == self.wanted and re.fullmatch("[0-9a-f]{16}", found)
        print(f"{'ok  ' if same else 'FAIL'} {self.model:9} {name:36} {found[:16]} "
              f"{time.monotonic() - began:6.1f} s", flush=True)
        if not same:
            print(found)
            self.failures.append(f"{self.model} {name}")

    def check_resume(self, seed, interrupted, resumed):
        """Kills a rank with SIGKILL at a random moment after the run's first checkpoint."""
        chance = random.Random(seed)
        name = f"{interrupted[0]} {interrupted[1] or ''} killed, then {resumed[0]}"
        for _ in range(5):  # a run may be over before the signal comes
            with tempfile.TemporaryDirectory(prefix="c10d-ladder-") as folder:
                options = ["--checkpoint", f"{folder}/checkpoint", "--save-every", "3"]
                if not self.cut(chance, interrupted, options, Path(folder, "checkpoint", "latest")):
                    continue
                self.check(name, *resumed, options=options)
                return
        print(f"FAIL {self.model:9} {name}: five runs ended before they could be killed")
        self.failures.append(f"{self.model} {name}")

    def cut(self, chance, interrupted, options, saved):
        """Whether a run that had saved was cut short."""
        run = subprocess.Popen(self.command(*interrupted) + options, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               # On a busy machine it waits for who watches it, not the reverse.
                               preexec_fn=lambda: os.nice(5))
        end = time.monotonic() + DEADLINE
        while not saved.exists() and run.poll() is None and time.monotonic() < end:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        victims = ranks_of(run.pid, interrupted[0])
        if victims:
            try:
                os.kill(chance.choice(victims), signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was done
        # Not before all ranks are gone: one job at a time may write to a checkpoint.
        try:
            run.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        return run.returncode != 0 and saved.exists()


def ranks_of(launcher, program):
    """The processes that run `program`: the launcher itself, or its children."""
    children = []
    for task in Path(f"/proc/{launcher}/task").glob("*/children"):
        try:
            children += [int(pid) for pid in task.read_text().split()]
        except OSError:
            pass
    found = []
    for pid in [launcher] + children:
        try:
            if Path(os.readlink(f"/proc/{pid}/exe")).name == program:
                found.append(pid)
        except OSError:
            pass
    return found


def small(ladder, starts):
    ladder.check("one process", "train_single")
    ladder.check("2 threads", "train_data_parallel", options=["--ranks", "2"])
    ladder.check("3 spawned", "train_spawn", options=["--ranks", "3"])
    for ranks in (1, 2, 3):
        ladder.check(f"DDP, {ranks} ranks", "train_ddp", ranks)
    for backend, launcher, options in starts[1:]:
        ladder.check(f"DDP, 2 ranks, {backend}", "train_ddp", 2, launcher, options)
    for zero in ("1", "2", "3"):
        ladder.check(f"ZeRO-{zero}, 2 ranks", "train_fsdp", 2, options=["--zero", zero])
    ladder.check("ZeRO-3, 2 x 2 ranks", "train_fsdp", 4, options=["--replicas", "2"])
    for schedule in SCHEDULES:
        ladder.check(f"pipeline {schedule}, 2 ranks", "train_pipeline", 2,
                     options=["--pipeline-schedule", schedule])
    ladder.check_resume(1, ("train_ddp", 2), ("train_ddp", 3))


def everything(ladder, starts):
    ladder.check("one process", "train_single")
    for ranks in (2, 3, 8):
        ladder.check(f"{ranks} threads", "train_data_parallel", options=["--ranks", str(ranks)])
    ladder.check("2 spawned", "train_spawn", options=["--ranks", "2"])
    for backend, launcher, options in starts:
        for ranks in (1, 2, 3, 4, 8):
            ladder.check(f"DDP, {ranks} ranks, {backend}", "train_ddp", ranks, launcher, options)
        for ranks in (2, 3, 4):
            for zero in ("1", "2", "3"):
                ladder.check(f"ZeRO-{zero}, {ranks} ranks, {backend}", "train_fsdp", ranks,
                             launcher, options + ["--zero", zero])
        for ranks in (2, 4):
            for schedule in SCHEDULES if ladder.model != "mlp" else SCHEDULES[:2]:
                stages = ranks * (2 if schedule in ("interleaved", "zb-v") else 1)
                if ladder.model == "gpt" and stages > 7:
                    continue  # more than it can be cut into
                ladder.check(f"pipeline {schedule}, {stages} stages, {backend}", "train_pipeline",
                             ranks, launcher, options + ["--pipeline-schedule", schedule])
    for seed in range(6):
        chain = [("train_ddp", 2), ("train_fsdp", 3), ("train_single", 0), ("train_ddp", 4)]
        ladder.check_resume(seed, chain[seed % 4], chain[(seed + 1) % 4])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", metavar="PROGRAMS", help="folder of c10d-run and train_*")
    parser.add_argument("--all", action="store_true", help="every combination; many minutes")
    parser.add_argument("--gloo", action="store_true", help="the gloo backend is there")
    parser.add_argument("--mpirun", action="append", default=[], metavar="PATH",
                        help="the mpi backend is there for the MPI of this launcher (repeatable)")
    arguments = parser.parse_args()
    starts = [("native", None, [])]
    if arguments.gloo:
        starts.append(("gloo", None, ["--backend", "gloo"]))
    starts += [(Path(path).name, path, ["--backend", "mpi"]) for path in arguments.mpirun]
    failures, runs = [], 0
    plan = [("babycnn", 12, len(starts))]
    if arguments.all:
        plan = [("babycnn", 30, len(starts)), ("mlp", 30, 1), ("gpt", 30, 1), ("resnet18", 6, 1)]
    for model, steps, backends in plan:
        ladder = Ladder(arguments.programs, model, steps)
        (everything if arguments.all else small)(ladder, starts[:backends])
        failures += ladder.failures
        runs += ladder.runs
    print(f"{runs} runs, {len(failures)} differ")
    for failure in failures:
        print("  " + failure)
    return 1 if failures or runs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
