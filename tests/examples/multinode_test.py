#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training over several hosts: multinode_test.py PROGRAMS {loopback,namespaces,deaths}

Types what train_multinode --print-commands prints, a shell per host. In `loopback` the hosts are
names of this one; else they are network namespaces, joined by a cable that the test lays: trained
on in `namespaces`, and in `deaths` ended. Exits with 77 where it may not.
"""
import re
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hosts"))
import test_bed  # noqa: E402

PROGRAMS = None


def task(steps=40, epochs=2):
    return ["--model", "mlp", "--epochs", str(epochs), "--steps", str(steps),
            "--global-batch-size", "30"]


class Case(test_bed.Case):
    def printed(self, hosts, options, **more):
        """The lines to type, by host."""
        text = self.output(PROGRAMS / "train_multinode", "--print-commands", hosts, *options,
                           C10D_TOKEN_FILE=str(self.token), **more)
        self.assertNotIn(self.token.read_bytes().hex(), text)
        return [line for line in text.splitlines() if not line.startswith("#")]

    def digest(self, text):
        found = re.findall(r"^(?:\[0\] )?weights ([0-9a-f]{16})$", text, re.M)
        self.assertEqual(len(found), 1, text)
        return found[0]

    def alone(self):
        return self.digest(self.output(PROGRAMS / "train_single", *task()))


class Loopback(Case):
    def setUp(self):
        super().setUp()
        # Bound but not listening: nobody else gets the port, and host 0 can still listen there.
        held = socket.socket()
        self.addCleanup(held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        self.port = str(held.getsockname()[1])

    def test_the_printed_lines_train_to_the_bits_of_one_process(self):
        lines = self.printed("127.0.0.1:2,localhost:1", task(), PET_MASTER_PORT=self.port)
        self.assertEqual(len(lines), 2)
        hosts = [self.start(["sh", "-c", line]) for line in lines]
        self.assertEqual(self.digest(self.end_well(hosts)), self.alone())
        self.assertNotIn("[2]", hosts[0].out)

    def test_train_ddp_needs_no_other_line(self):
        lines = self.printed("127.0.0.1:1,localhost:1", task(), PET_MASTER_PORT=self.port)
        hosts = [self.start(["sh", "-c", line.replace("train_multinode", "train_ddp")])
                 for line in lines]
        self.assertEqual(self.digest(self.end_well(hosts)), self.alone())

    def test_a_bad_list_is_refused(self):
        for hosts, expected in (("a:2,a:2", "names a host a second time"),
                                ("a:x", "has no number of ranks"), (",", "names no host")):
            running = self.start([PROGRAMS / "train_multinode", "--print-commands", hosts])
            self.assertEqual(running.end(), 2)
            self.assertIn(expected, running.err)

    def test_help_teaches(self):
        self.assertIn("--print-commands", self.output(PROGRAMS / "train_multinode", "--help"))


class Namespaces(test_bed.TwoHosts, Case):
    def type(self, lines):
        """Each line on its host."""
        self.assertEqual(len(lines), len(self.namespaces))
        return [self.start([*namespace.enter, "sh", "-c", line])
                for namespace, line in zip(self.namespaces, lines)]

    def test_the_printed_lines_train_to_the_bits_of_one_process(self):
        text = self.end_well(self.type(self.printed(self.hosts(2, 1), task())))
        self.assertEqual(self.digest(text), self.alone())

    def test_one_command_starts_both_hosts(self):
        text = self.output(PROGRAMS / "c10d-run", "-H", self.hosts(2, 1),
                           "--agent", self.agent(), PROGRAMS / "train_multinode", *task())
        self.assertEqual(self.digest(text), self.alone())

    def test_rank_0_keeps_the_checkpoint_for_hosts_that_share_no_folder(self):
        disk = self.folder / "disk"
        disk.mkdir()
        self.namespaces[1].do("mount", "-t", "tmpfs", "none", str(disk))  # which host 0 never sees
        checkpoint = disk / "checkpoint"
        options = ["--checkpoint", checkpoint, "--save-every", "10"]
        self.end_well(self.type(self.printed(self.hosts(2, 2), task(steps=20) + options)))
        newest = checkpoint / (checkpoint / "latest").read_text().split()[0]
        self.assertEqual(sorted(path.name for path in newest.iterdir()),
                         ["manifest.json", "rank-00000.safetensors"])
        self.output(PROGRAMS / "c10d-checkpoint", "inspect", newest)
        self.assertEqual([path.name for path in checkpoint.iterdir()
                          if path.name.startswith(".")], [])
        text = self.end_well(self.type(self.printed(self.hosts(1, 2), task() + options)))
        self.assertIn("after step 20", text)
        self.assertEqual(self.digest(text), self.alone())

    def test_gloo_trains_to_the_same_bits(self):
        lines = self.printed(self.hosts(1, 2), task() + ["--backend", "gloo"])
        self.assertEqual(self.digest(self.end_well(self.type(lines))), self.alone())

    def test_a_cut_cable_ends_the_job_on_both_hosts(self):
        lines = [line.replace(" --nnodes", " --rdzv-conf=silence=3 --nnodes")
                 for line in self.printed(self.hosts(), task(steps=10**9, epochs=10**6))]
        hosts = self.type(lines)
        # Under way; or over, when a slow machine kept a host silent too long: they say the same.
        overdue = threading.Timer(test_bed.DEADLINE, hosts[0].kill)
        overdue.start()
        while not (hosts[0].process.stdout.readline() or "[0] epoch ").startswith("[0] epoch "):
            pass
        overdue.cancel()
        self.cut_the_cable()
        for host in hosts:
            self.assertNotEqual(host.end(), 0)
            self.assertIn("c10d-run: ", host.err)


class Deaths(test_bed.TwoHosts, Case):
    """Two ranks on each host, without a launcher, which would end them for the failure of another.
    Rank 0 serves the store."""
    WITHIN = 5 + 1  # seconds, with one for the processes to print it and to end

    def setUp(self):
        super().setUp()
        self.ranks = [
            self.start([*self.namespaces[rank // 2].enter, PROGRAMS / "train_multinode",
                        *task(steps=10**9, epochs=10**6)],
                       C10D_TOKEN_FILE=str(self.token), C10D_TIMEOUT="60",
                       C10D_GLOO_INTERFACE=self.ADDRESSES[rank // 2], RANK=str(rank),
                       WORLD_SIZE="4", MASTER_ADDR=self.ADDRESSES[0], MASTER_PORT="29500")
            for rank in range(4)]
        overdue = threading.Timer(test_bed.DEADLINE, self.ranks[0].kill)
        overdue.start()
        while not (line := self.ranks[0].process.stdout.readline()).startswith("epoch "):
            self.assertNotEqual(line, "", "rank 0 ended before the others were there")
        overdue.cancel()

    def assert_named(self, since, expected):
        """Each of the ranks in `expected` says what stands there, and has ended, in time."""
        ends = {}

        def wait_for(rank):
            self.ranks[rank].end()
            ends[rank] = time.monotonic() - since

        waiting = [threading.Thread(target=wait_for, args=(rank,)) for rank in expected]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        for rank, name in expected.items():
            text = self.ranks[rank].err
            print(f"rank {rank} after {ends[rank]:.1f} s: {text.strip()}")
            self.assertRegex(text, name)
            self.assertLess(ends[rank], self.WITHIN, text)

    def test_a_rank_that_is_killed_is_named_on_both_hosts(self):
        since = time.monotonic()
        self.ranks[3].process.kill()
        self.assert_named(since, dict.fromkeys([0, 1, 2], r"\[rank 3, host "))

    def test_a_host_that_is_cut_off_is_named_on_both(self):
        since = time.monotonic()
        self.cut_the_cable()
        self.assert_named(since, {rank: r"\[rank [23], host " if rank < 2 else r"\[rank [01], host "
                                  for rank in range(4)})


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run({"loopback": Loopback, "namespaces": Namespaces, "deaths": Deaths}[sys.argv[2]])
