#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The training programs from outside: programs_test.py PROGRAMS SOURCE [CLASS...]"""
import fcntl
import json
import os
import re
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAMS = SOURCE = None
QUICK = ["--model", "mlp", "--epochs", "1"]


def run(*command, environment=None, timeout=300):
    inherited = {name: value for name, value in os.environ.items() if name != "C10D_BACKEND"}
    command = [str(word) for word in command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, start_new_session=True,
                          env={**inherited, **(environment or {})}) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def program(name, *options):
    return run(PROGRAMS / name, *options)


def ranks(count, name, *options):
    return run(PROGRAMS / "c10d-run", "-n", count, "--no-prefix", PROGRAMS / name, *options)


def two_ranks(name, options, of_rank_1):
    """Rank 1 has options of its own besides, or instead."""
    def line(values):
        words = [word for item in values.items() for word in item]
        return shlex.join([str(PROGRAMS / name), *words])
    script = f'if [ "$RANK" = 1 ]; then exec {line({**options, **of_rank_1})}; fi; '
    return run(PROGRAMS / "c10d-run", "-n", 2, "--no-prefix", "sh", "-c",
               script + f"exec {line(options)}")


def write_images(folder, count, side, shade=0):
    """Images of side x side, as MNIST's files have them: labels 0 to 9 in turn."""
    folder.mkdir(exist_ok=True)
    for part, size in (("train", count), ("t10k", 32)):
        pixels = bytes((i * 37 + shade) % 256 for i in range(size * side * side))
        Path(folder, f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, size, side, side) + pixels)
        Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, size) + bytes(i % 10 for i in range(size)))
    return str(folder)


def rank_1_of(launcher, saved):
    """Its process, once there is a checkpoint."""
    while not saved.exists() and launcher.poll() is None:
        time.sleep(0.002)
    for children in Path(f"/proc/{launcher.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes():
                return int(pid)
    raise AssertionError("there is no rank 1")


class Training(unittest.TestCase):
    def text_of(self, ended):
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def digest(self, ended):
        found = re.findall(r"^(?:\[0\] )?weights ([0-9a-f]{16})$", self.text_of(ended), re.M)
        self.assertEqual(len(found), 1, ended.stdout)
        return found[0]

    def test_the_loss_falls_and_digits_are_told_apart(self):
        text = self.text_of(program("train_single", "--epochs", "4", "--optimizer", "sgd",
                                    "--lr", "0.05"))
        losses = [float(loss) for loss in re.findall(r"  loss ([\d.]+)", text)]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[3], losses[0] / 4)
        self.assertGreater(float(re.findall(r"accuracy ([\d.]+)", text)[-1]), 85)

    def test_the_command_of_the_readme(self):
        ended = run(PROGRAMS / "c10d-run", "--nproc_per_node=4", PROGRAMS / "train_ddp",
                    "--epochs", "3", "--batch-size", "128", "--lr", "0.001")
        self.assertEqual(len(re.findall(r"^\[0\] epoch \d/3 ", self.text_of(ended), re.M)), 3)
        alone = program("train_single", "--epochs", "3", "--global-batch-size", "512",
                        "--lr", "0.001")
        self.assertEqual(self.digest(ended), self.digest(alone))

    def test_digits_are_told_apart_after_twenty_epochs(self):
        for model, least in (("mlp", 95.5), ("babycnn", 97)):
            text = self.text_of(program("train_single", "--model", model, "--optimizer", "sgd",
                                        "--lr", "0.05", "--epochs", "20"))
            accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+)", text)]
            self.assertEqual(len(accuracies), 20)
            self.assertGreaterEqual(accuracies[-1], least, model)

    def test_a_checkpoint_is_made_after_every_epoch_or_some_steps(self):
        # The newest two are kept; they are numbered.
        for saves, wanted in (([], ["000001-step-45", "000002-step-90"]),
                              (["--save-every", "30"], ["000002-step-60", "000003-step-90"])):
            with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
                self.digest(program("train_single", "--model", "mlp", "--epochs", "2",
                                    "--checkpoint", folder + "/checkpoint", *saves))
                self.assertEqual(sorted(os.listdir(folder + "/checkpoint")), [*wanted, "latest"])

    def test_a_program_that_starts_its_ranks_says_what_the_first_threw(self):
        ended = program("train_spawn", *QUICK, "--ranks", "4", "--lr", "1e30", "--optimizer", "sgd")
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"rank \d was the first to fail, with exit code 1:\n"
                                       r"(.*\n)*.*try less than --lr 1e\+30")

    def test_the_launchers_terminal_shows_a_bar(self):
        controller, terminal = os.openpty()
        words = [str(PROGRAMS / "c10d-run"), "-n", "2", str(PROGRAMS / "train_ddp"), *QUICK]
        ended = subprocess.run([*words, "--steps", "2"], stdin=subprocess.DEVNULL, timeout=300,
                               stdout=subprocess.PIPE, stderr=terminal, check=False,
                               env={**os.environ, "TERM": "xterm", "CI": ""})
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(controller, 4096):
                shown += part
        except OSError:  # the end
            pass
        os.close(controller)
        self.assertEqual(ended.returncode, 0, shown)
        self.assertRegex(shown, rb"\repoch 1/1 \[=* *\] 1/\d+  loss \d.*  ETA \d+ s\x1b\[K\r")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown)  # rank 0 alone has one
        self.assertRegex(ended.stdout, rb"(?m)^\[0\] epoch 1/1 ")

    def test_every_model_trains_on_two_ranks(self):
        for model, data in (("mlp", "digits"), ("babycnn", "digits"), ("resnet18", "digits"),
                            ("gpt", "text")):
            task = ["--model", model, "--data", data, "--steps", "2", "--global-batch-size", "32"]
            for count in (2, 4) if model == "babycnn" else (2,):
                self.assertEqual(self.digest(ranks(count, "train_ddp", *task)),
                                 self.digest(program("train_single", *task)), model)

    def test_the_mode_fast_makes_one_shard_per_rank(self):
        fast = QUICK + ["--global-batch-size", "32", "--mode", "fast"]
        two_shards = QUICK + ["--global-batch-size", "32", "--shards", "2"]
        self.assertEqual(self.digest(ranks(2, "train_ddp", *fast)),
                         self.digest(program("train_single", *two_shards)))

    def test_batch_size_is_that_of_a_rank(self):
        self.assertEqual(self.digest(ranks(2, "train_ddp", *QUICK, "--batch-size", "16")),
                         self.digest(program("train_single", *QUICK, "--batch-size", "32")))

    def test_a_finished_run_starts_again_with_the_same_figures(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            task = ["--model", "mlp", "--checkpoint", folder + "/checkpoint"]
            first = program("train_single", *task, "--epochs", "2")
            wanted = self.digest(first)
            self.assertEqual(sorted(os.listdir(folder + "/checkpoint"))[-1], "latest")
            again = program("train_single", *task, "--epochs", "2")
            self.assertEqual(self.digest(again), wanted)
            self.assertIn("after step 90", again.stdout)
            # One more epoch from there, and three at once.
            more = program("train_single", *task, "--epochs", "3")
            whole = program("train_single", "--model", "mlp", "--epochs", "3")
            self.assertEqual(re.findall(r"epoch 3/3 .*accuracy [\d.]+", more.stdout),
                             re.findall(r"epoch 3/3 .*accuracy [\d.]+", whole.stdout))
            self.assertEqual(self.digest(more), self.digest(whole))

    def test_a_run_saves_where_it_stops(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            saves = ["--checkpoint", folder + "/checkpoint", "--save-every", "4"]
            self.digest(program("train_single", *QUICK, *saves, "--steps", "6"))
            self.assertIn("step-6", Path(folder, "checkpoint", "latest").read_text())

    def test_a_checkpoint_of_another_run_is_refused_on_every_rank(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            self.digest(program("train_single", *QUICK, "--checkpoint", folder + "/checkpoint"))
            ended = ranks(2, "train_ddp", *QUICK, "--global-batch-size", "32", "--seed", "9",
                          "--checkpoint", folder + "/checkpoint")
            self.assertEqual(ended.returncode, 1)
            self.assertIn("has seed 1, this run has 9", ended.stderr)

    def test_a_run_does_not_go_on_with_other_bits(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            task = [*QUICK, "--checkpoint", folder + "/checkpoint"]
            self.digest(program("train_single", *task, "--steps", "3"))
            for ended, expected in (
                    (program("train_single", *task, "--shards", "4"), "shards 8, this run has 4"),
                    (program("train_single", *task, "--mode", "fast"),
                     "mode reproducible, this run has fast"),
                    (ranks(2, "train_pipeline", *task, "--chunks", "2"),
                     "shards 8, this run has 2")):
                self.assertEqual(ended.returncode, 1)
                self.assertIn(expected, ended.stderr)
            # Chunks are shards, and the rate may change.
            ended = ranks(2, "train_pipeline", *task, "--steps", "4", "--lr", "0.01")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertIn("with --lr 0.01 --schedule constant, not --lr 0.001 --schedule constant",
                          ended.stdout)
            self.assertIn("step-4", Path(folder, "checkpoint", "latest").read_text())

    def test_ruined_weights_are_not_saved(self):
        # The loss of the step that ruins them is still finite.
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            task = ["--model", "mlp", "--global-batch-size", "32"]
            kept = ["--checkpoint", folder + "/checkpoint"]
            self.digest(program("train_single", *task, *kept, "--steps", "1"))
            saved = Path(folder, "checkpoint", "latest").read_text()
            for optimizer, rate in (("adamw", "1e30"), ("sgd", "3e38")):
                for name in ("train_single", "train_ddp", "train_fsdp", "train_pipeline"):
                    start = program if name == "train_single" else lambda *line: ranks(2, *line)
                    fresh = [*task, "--checkpoint", f"{folder}/{name}", "--optimizer", optimizer]
                    ended = start(name, *fresh, "--lr", rate, "--steps", "1")
                    self.assertEqual(ended.returncode, 1, ended.stdout)
                    self.assertIn("after step 1 is ", ended.stderr)
                    self.assertIn("try less than --lr", ended.stderr)
                    # The launcher may end rank 0 before that has taken its lock away.
                    self.assertLessEqual(set(os.listdir(f"{folder}/{name}")), {"lock"})
            ended = program("train_single", *task, *kept, "--steps", "2", "--lr", "1e30")
            self.assertEqual(ended.returncode, 1, ended.stdout)
            self.assertEqual(Path(folder, "checkpoint", "latest").read_text(), saved)

    def test_a_folder_without_room_for_checkpoints_is_named_before_the_training(self):
        for folder in ("/nonexistent/c", "/dev/null", "/proc"):
            for ended in (program("train_single", *QUICK, "--checkpoint", folder),
                          ranks(2, "train_fsdp", *QUICK, "--checkpoint", folder)):
                self.assertEqual(ended.returncode, 1)
                self.assertIn(f"--checkpoint {folder}: rank 0 can make no file", ended.stderr)
                self.assertNotIn("epoch", ended.stdout)

    def test_a_folder_of_another_job_is_named_before_the_training(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            with open(Path(folder, "lock"), "w", encoding="ascii") as lock:
                lock.write("host there, pid 7")
                lock.flush()
                fcntl.flock(lock, fcntl.LOCK_EX)
                for ended in (program("train_single", *QUICK, "--checkpoint", folder),
                              ranks(2, "train_fsdp", *QUICK, "--checkpoint", folder)):
                    self.assertEqual(ended.returncode, 1)
                    self.assertIn(f"{folder}: another job (host there, pid 7) writes to this "
                                  "checkpoint folder", ended.stderr)
                    self.assertNotIn("epoch", ended.stdout)

    def disturb_while_saving(self, folder, task, disturb, environment=None):
        """What two ranks of train_fsdp say when something befalls rank 1 while they save."""
        command = [PROGRAMS / "c10d-run", "-n", "2", "--no-prefix", PROGRAMS / "train_fsdp", *task,
                   "--checkpoint", folder + "/checkpoint", "--save-every", "1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              start_new_session=True, env={**os.environ, **(environment or {})},
                              restore_signals=False) as started:  # SIGXFSZ stays ignored
            try:
                disturb(rank_1_of(started, Path(folder, "checkpoint", "latest")))
                err = started.communicate(timeout=300)[1]
            except BaseException:
                os.killpg(started.pid, signal.SIGKILL)
                raise
        self.assertEqual(started.returncode, 1, err)
        return err

    def test_a_save_that_fails_in_the_background_ends_the_run_and_loses_nothing(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            task = ["--model", "mlp", "--global-batch-size", "32", "--epochs", "1000000"]
            saves = ["--checkpoint", folder + "/checkpoint"]
            latest = Path(folder, "checkpoint", "latest")
            err = self.disturb_while_saving(
                folder, task, lambda rank_1: resource.prlimit(  # as if its disk were full
                    rank_1, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY)))
            self.assertRegex(err, "train_fsdp: rank 1: .*/rank-00001.safetensors: write failed: "
                                  "File too large")
            # As if nothing had been.
            stop = int(re.findall(r"-step-(\d+) ", latest.read_text())[0]) + 2
            straight = program("train_single", *task, "--steps", stop)
            resumed = program("train_single", *task, *saves, "--steps", stop)
            self.assertIn(f"after step {stop - 2}", resumed.stdout)
            self.assertEqual(self.digest(resumed), self.digest(straight))

    def test_the_trace_holds_all_ranks_and_both_tracks(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            for name in ("train_ddp", "train_pipeline"):
                self.digest(ranks(2, name, *QUICK, "--steps", "3", "--trace", folder + "/t.json"))
                events = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
                spans = [event for event in events if event["ph"] == "X"]
                self.assertEqual({(event["pid"], event["tid"]) for event in spans},
                                 {(0, 0), (0, 1), (1, 0), (1, 1)}, name)
                self.assertTrue(all(event["dur"] >= 0 for event in spans))

    def test_a_run_ends_when_a_rank_is_stopped_while_it_saves(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            err = self.disturb_while_saving(folder, ["--model", "mlp", "--epochs", "1000000"],
                                            lambda rank_1: os.kill(rank_1, signal.SIGSTOP),
                                            {"C10D_TIMEOUT": "20"})
            # In the training or in the checkpoint, whichever came to rank 1 first.
            self.assertRegex(err, "train_fsdp: .*timed_out")

    def test_a_sharded_step_gathers_twice_and_scatters_the_sum(self):
        wanted = ["all_gather", "forward", "all_gather", "backward", "reduce_scatter"] * 3
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            self.digest(ranks(2, "train_fsdp", *QUICK, "--steps", "3", "--trace",
                              folder + "/t.json"))
            events = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
        found = {}
        for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
            kind, _, unit = event["name"].partition(" ")
            if kind in wanted:
                found.setdefault((event["pid"], unit), []).append(event)
        self.assertEqual(len(found), 2 * 2)  # ranks and units
        for spans in found.values():
            kinds = [span["name"].partition(" ")[0] for span in spans]
            self.assertEqual(kinds[:len(wanted)], wanted)
            self.assertEqual(set(kinds[len(wanted):]), {"all_gather"})  # tests, and the digest
            for before, after in zip(spans, spans[1:]):  # to the nanosecond
                self.assertLess(before["ts"] + before["dur"], after["ts"] + 0.0005)

    def test_the_trace_of_a_pipeline_shows_stages_at_work_while_others_wait(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            self.digest(ranks(4, "train_pipeline", *QUICK, "--steps", "3", "--chunks", "8",
                              "--trace", folder + "/t.json"))
            events = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
            spans = [event for event in events if event["ph"] == "X"]
            for rank in range(4):
                for kind in "FB":
                    own = [event["name"] for event in spans
                           if event["pid"] == rank and event["name"].startswith(f"{rank}{kind}")]
                    self.assertEqual(sorted(own), sorted(
                        [f"{rank}{kind}{chunk}" for chunk in range(8)] * 3))
            computing = [event for event in spans if event["tid"] == 0]
            waiting = [event for event in spans if event["tid"] == 1]
            for rank in range(4):  # it computes while another one waits for it
                self.assertTrue(any(one["pid"] == rank != other["pid"] and
                                    one["ts"] < other["ts"] + other["dur"] and
                                    other["ts"] < one["ts"] + one["dur"]
                                    for one in computing for other in waiting), rank)

    def test_the_plan_counts_the_parameters(self):
        text = self.text_of(program("train_single", *QUICK, "--plan"))
        parameters = 64 * 128 + 128 + 128 * 10 + 10
        self.assertIn(f"{parameters} parameters", text)
        # One process adds eight shards up in four buffers, two with four shards each in three.
        self.assertRegex(text, r"DDP +0\.04 +0\.15 +0\.07 +0\.00 +0\.26 +0\.11")
        text = self.text_of(ranks(2, "train_ddp", *QUICK, "--steps", "1", "--plan"))
        self.assertRegex(text, r"DDP +0\.04 +0\.11 +0\.07 +0\.00 +0\.22 +0\.11")

    def test_replicas_have_tracks_of_their_own(self):
        # They run at the same time, and spans of one track may not overlap.
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            self.digest(program("train_data_parallel", *QUICK, "--steps", "3", "--ranks", "2",
                                "--trace", folder + "/t.json"))
            events = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
            tracks = {(event["name"], event["tid"]) for event in events if event["ph"] == "X"}
            self.assertEqual(tracks, {("optimizer", 0), ("replica 0", 2), ("replica 1", 3)})
            names = {event["tid"]: event["args"]["name"] for event in events
                     if event["name"] == "thread_name"}
            self.assertEqual((names[2], names[3]), ("replica 0", "replica 1"))

    def test_torchruns_variables_are_enough(self):
        # Bound but not listening: nobody else gets the port, and rank 0 can still listen there.
        held = socket.socket()
        self.addCleanup(held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [str(PROGRAMS / "train_ddp"), *QUICK, "--global-batch-size", "32"]
        started = [subprocess.Popen(command, env={**os.environ, **environment, "RANK": rank},
                                    stdout=subprocess.PIPE, text=True) for rank in "01"]
        for process in started:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        out = [process.communicate(timeout=300)[0] for process in started]
        self.assertEqual([process.returncode for process in started], [0, 0])
        self.assertIn(self.digest(program("train_single", *QUICK, "--global-batch-size", "32")),
                      out[0])
        self.assertEqual(out[1], "")

    def test_the_scripts_run(self):
        for name in ("run_ddp.sh", "run_fsdp.sh", "run_pipeline.sh", "run_pippy.sh"):
            for count in ("2", "4") if name != "run_pippy.sh" else ("3",):
                ended = run(SOURCE / "examples" / name, count, *QUICK,
                            environment={"PROGRAMS": str(PROGRAMS)})
                self.digest(ended)

    def test_mistakes_are_named(self):
        for options, expected in (
                (["--data", "/nonexistent"], "--data /nonexistent: no such folder"),
                (["--model", "transformer"], "--model"),
                (["--model", "gpt"], "model gpt takes text"),
                (["--optimizer", "adam"], "--optimizer"),
                (["--batch-size", "0"], "--batch-size"),
                (["--lr", "nan"], "nan is not a learning rate"),
                (["--lr", "-0.1"], "-0.1 is not a learning rate"),
                (["--lr", "1e50"], "1e50 is not a learning rate"),  # infinite as a float
                (["--seed", "-1"], "-1 is not a seed"),
                (QUICK + ["--trace", "/nonexistent/t"], "--trace /nonexistent/t: cannot be"),
                (QUICK + ["--lr", "1e30", "--optimizer", "sgd"], "try less than --lr 1e+30"),
                (["--colour"], "--colour")):
            ended = program("train_single", *options)
            self.assertNotEqual(ended.returncode, 0, options)
            self.assertIn(expected, ended.stdout + ended.stderr)
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            data = write_images(Path(folder, "small"), 32, 2)
            text = Path(folder, "text")
            text.write_text("short")
            ended = program("train_single", "--model", "gpt", "--data", text)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(f"--data {text}: 5 bytes of text are too few", ended.stderr)
            for model in ("babycnn", "resnet18"):
                ended = program("train_single", "--data", data, "--model", model)
                self.assertEqual(ended.returncode, 1)
                self.assertIn(f"{model} takes images of at least 4x4, not 2x2", ended.stderr)
        ended = program("train_pipeline", "--mode", "fast")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("a pipeline has no mode fast", ended.stderr)
        ended = ranks(2, "train_fsdp", *QUICK, "--replicas", "3")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("--replicas 3 does not divide the 2 ranks", ended.stderr)
        ended = ranks(2, "train_spawn", *QUICK, "--ranks", "4")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("--ranks 4, but c10d started 2", ended.stderr)
        ended = ranks(4, "train_pipeline", "--model", "mlp", "--pipeline-schedule", "zb-v")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("model mlp can be cut into 4 stages, not into 8", ended.stderr)

    def test_ranks_that_were_told_different_things_say_so(self):
        # Elsewhere they would wait for each other, or train on with other weights.
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            data = [write_images(Path(folder, name), count, 8, shade)
                    for name, count, shade in (("a", 256, 0), ("b", 192, 0), ("c", 256, 1))]
            common = {"--model": "mlp", "--epochs": "1", "--data": data[0], "--steps": "4",
                      "--checkpoint": folder + "/checkpoint"}
            for option, value, expected in (
                    ("--steps", "5", "--steps (0: all): rank 0 has 4, rank 1 has 5;"),
                    ("--lr", "0.1", "--lr: rank 0 has 0.001, rank 1 has 0.1;"),
                    ("--seed", "2", "--seed: rank 0 has 1, rank 1 has 2;"),
                    ("--save-every", "3",
                     "--save-every (0: epochs): rank 0 has 0, rank 1 has 3;"),
                    ("--batch-size", "16", "global batch: rank 0 has 64, rank 1 has 32;"),
                    ("--data", data[1], "training samples of --data: rank 0 has 256 of [1, 8, "
                     "8], rank 1 has 192 of [1, 8, 8];"),
                    ("--data", data[2], "training samples of --data differ: ranks 1 do not")):
                ended = two_ranks("train_ddp", common, {option: value})
                self.assertEqual(ended.returncode, 1, option)
                self.assertIn(expected, ended.stderr)
            ended = two_ranks("train_fsdp", common, {"--replicas": "2"})
            self.assertEqual(ended.returncode, 1)
            self.assertIn("--replicas", ended.stderr)
            self.assertFalse(Path(folder, "checkpoint").exists())

    def test_help_teaches(self):
        for name in ("train_single", "train_data_parallel", "train_spawn", "train_ddp",
                     "train_fsdp", "train_pipeline"):
            text = self.text_of(program(name, "--help"))
            self.assertIn("--global-batch-size", text)
            self.assertIn("print the same `weights` line", text)


class Mnist(unittest.TestCase):
    """Accuracy on MNIST, or 10,000 images of it, in the folder $MNIST; takes minutes."""

    def accuracies(self, *options):
        data = os.environ.get("MNIST")
        if not data:
            self.skipTest("set MNIST to the folder that tools/get_mnist has filled")
        ended = run(*options, "--data", data, timeout=1200)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return [float(value) for value in re.findall(r"accuracy ([\d.]+)", ended.stdout)]

    def test_babycnn_in_three_epochs(self):
        last = self.accuracies(PROGRAMS / "train_single", "--epochs", "3", "--batch-size", "128")
        self.assertGreaterEqual(last[2], 94)

    def test_babycnn_in_five_epochs(self):
        last = self.accuracies(PROGRAMS / "train_single", "--epochs", "5", "--schedule", "cosine",
                               "--shift", "1")
        self.assertGreaterEqual(last[4], 98)

    def test_resnet18_on_four_ranks(self):
        every = self.accuracies(PROGRAMS / "c10d-run", "-n", "4", "--no-prefix",
                                PROGRAMS / "train_ddp", "--model", "resnet18", "--epochs", "3",
                                "--batch-size", "32", "--lr", "0.001")
        self.assertGreaterEqual(max(every), 95)


if __name__ == "__main__":
    PROGRAMS, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
    unittest.main()
