#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The training programs from outside: programs_test.py PROGRAMS SOURCE"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = SOURCE = None
QUICK = ["--model", "mlp", "--epochs", "1"]


def run(*command, environment=None):
    inherited = {name: value for name, value in os.environ.items() if name != "C10D_BACKEND"}
    command = [str(word) for word in command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, start_new_session=True,
                          env={**inherited, **(environment or {})}) as process:
        try:
            out, err = process.communicate(timeout=300)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def program(name, *options):
    return run(PROGRAMS / name, *options)


def ranks(count, name, *options):
    return run(PROGRAMS / "c10d-run", "-n", count, "--no-prefix", PROGRAMS / name, *options)


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
        text = self.text_of(run(PROGRAMS / "c10d-run", "--nproc_per_node=4", PROGRAMS / "train_ddp",
                                "--epochs", "3", "--batch-size", "128", "--lr", "0.001"))
        self.assertEqual(len(re.findall(r"^\[0\] epoch \d/3 ", text, re.M)), 3)
        self.assertIn("[0] weights ", text)

    def test_every_model_trains_on_two_ranks(self):
        for model, data in (("mlp", "digits"), ("babycnn", "digits"), ("resnet18", "digits"),
                            ("gpt", "text")):
            task = ["--model", model, "--data", data, "--steps", "2", "--global-batch-size", "32"]
            self.assertEqual(self.digest(ranks(2, "train_ddp", *task)),
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

    def test_the_trace_holds_all_ranks_and_both_tracks(self):
        with tempfile.TemporaryDirectory(prefix="c10d-nn-") as folder:
            for name in ("train_ddp", "train_pipeline"):
                self.digest(ranks(2, name, *QUICK, "--steps", "3", "--trace", folder + "/t.json"))
                events = json.loads(Path(folder, "t.json").read_text())["traceEvents"]
                spans = [event for event in events if event["ph"] == "X"]
                self.assertEqual({(event["pid"], event["tid"]) for event in spans},
                                 {(0, 0), (0, 1), (1, 0), (1, 1)}, name)
                self.assertTrue(all(event["dur"] >= 0 for event in spans))

    def test_the_plan_counts_the_parameters(self):
        text = self.text_of(program("train_single", *QUICK, "--plan"))
        parameters = 64 * 128 + 128 + 128 * 10 + 10
        self.assertIn(f"{parameters} parameters", text)
        # One process adds eight shards up in four buffers, two with four shards each in three.
        self.assertRegex(text, r"DDP +0\.04 +0\.15 +0\.07 +0\.00 +0\.26")
        text = self.text_of(ranks(2, "train_ddp", *QUICK, "--steps", "1", "--plan"))
        self.assertRegex(text, r"DDP +0\.04 +0\.11 +0\.07 +0\.00 +0\.22")

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
        for name in ("run_ddp.sh", "run_fsdp.sh", "run_pipeline.sh"):
            for count in ("2", "4") if name != "run_pipeline.sh" else ("2",):
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
                (["--lr", "nan"], "nan is no learning rate"),
                (["--lr", "-0.1"], "-0.1 is no learning rate"),
                (QUICK + ["--trace", "/nonexistent/t"], "--trace /nonexistent/t: cannot be"),
                (QUICK + ["--lr", "1e30", "--optimizer", "sgd"], "try less than --lr 1e+30"),
                (["--colour"], "--colour")):
            ended = program("train_single", *options)
            self.assertNotEqual(ended.returncode, 0, options)
            self.assertIn(expected, ended.stdout + ended.stderr)
        ended = ranks(4, "train_pipeline", "--model", "mlp", "--pipeline-schedule", "zb-v")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("model mlp can be cut into 4 stages, not into 8", ended.stderr)

    def test_help_teaches(self):
        for name in ("train_single", "train_data_parallel", "train_spawn", "train_ddp",
                     "train_fsdp", "train_pipeline"):
            text = self.text_of(program(name, "--help"))
            self.assertIn("--global-batch-size", text)
            self.assertIn("print the same `weights` line", text)


if __name__ == "__main__":
    PROGRAMS, SOURCE = Path(sys.argv.pop(1)).resolve(), Path(sys.argv.pop(1)).resolve()
    unittest.main()
