#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs under launchers that are not ours: foreign_test.py PROGRAMS {srun,torchrun}

`srun` brings up a Slurm of its own, of two nodes that are both this host, in a folder of its own.
Exits with 77 where the launcher is not installed or does not arrive up.
"""
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAMS = None
LIBC = ctypes.CDLL(None)
DEADLINE = 120  # seconds of one program
COMING_UP = 60  # seconds until a daemon answers
SKIPPED = 77
TASK = ["--model", "mlp", "--epochs", "1", "--steps", "4", "--global-batch-size", "32"]
BENCH = ["run", "all_reduce", "-B", "native", "-b", "8", "-e", "2K", "-f", "256", "--time", "0.01s",
         "-v"]
SLURM = """
ClusterName=c10d
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldTimeout=300
SlurmdTimeout=0
MessageTimeout=60
TCPTimeout=30
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=first NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[1]} CPUs={cpus}
NodeName=second NodeAddr=127.0.0.1 NodeHostname={host} Port={ports[2]} CPUs={cpus}
PartitionName=all Nodes=first,second Default=YES
"""


def environment(**more):
    """Without what another launcher said to this test."""
    foreign = ("C10D_", "PET_", "SLURM_", "OMPI_", "PMI", "MASTER_", "TORCHELASTIC_")
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(foreign) and name not in ("RANK", "WORLD_SIZE")}
    return {**inherited, **more}


def end_with_this_process():
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def children():
    """Of this process, adopted ones included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:  # has ended
            continue
        if int(parent) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def end_children():
    """Kills them, and what they leave to this process, until there is none."""
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def hold_ports(count):
    """Neighbours, bound but not listening: nobody else gets them, whom they are for can listen."""
    while True:
        held = [socket.socket() for _ in range(count)]
        first = 0
        try:
            for number, port in enumerate(held):
                port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                port.bind(("127.0.0.1", first + number if first else 0))
                first = first or port.getsockname()[1]
            return held, [first + number for number in range(count)]
        except (OSError, OverflowError):  # a neighbour is in use
            for port in held:
                port.close()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="c10d-foreign-")
        cls.addClassCleanup(folder.cleanup)
        cls.addClassCleanup(end_children)
        cls.folder = Path(folder.name)
        cls.ranks_folder = cls.folder / "ranks"
        cls.ranks_folder.mkdir()
        cls.variables = {"TMPDIR": str(cls.ranks_folder)}

    @classmethod
    def make_secret(cls, name):
        path = cls.folder / name
        path.touch(0o600)
        path.write_bytes(os.urandom(32))
        return str(path)

    def tearDown(self):
        self.assertEqual(list(self.ranks_folder.iterdir()), [])

    def run_to_its_end(self, *command, **more):
        return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE,
                              preexec_fn=end_with_this_process,
                              env=environment(**{**self.variables, **more}))

    def output(self, *command, **more):
        ended = self.run_to_its_end(*command, **more)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def alone(self):
        return re.search(r"^weights ([0-9a-f]{16})$", self.output(PROGRAMS / "train_single", *TASK),
                         re.M)[1]

    def check_trained(self, text, times=1):
        """Rank 0 alone says that the weights are those of one process."""
        self.assertEqual(re.findall(r"weights ([0-9a-f]{16})$", text, re.M), [self.alone()] * times)

    def check_measured(self, text):
        self.assertIn("all 2 cells exact against the oracle", text)
        self.assertEqual(text.count("all_reduce f32 sum, out of place, 2 ranks"), 1, text)


class Srun(Case):
    @classmethod
    def setUpClass(cls):
        missing = [tool for tool in ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scontrol")
                   if not shutil.which(tool)]
        if missing:
            raise unittest.SkipTest(f"there is no {', '.join(missing)} (packages munge, slurm-wlm)")
        super().setUpClass()
        cls.variables["SLURM_CONF"] = str(cls.folder / "slurm.conf")
        held, ports = hold_ports(3)
        for port in held:
            cls.addClassCleanup(port.close)
        cls.configure(ports)
        munge = cls.start("munged", "--foreground", "--force",
                          f"--key-file={cls.make_secret('key')}",
                          *(f"--{file}={cls.folder}/munge{suffix}" for file, suffix in
                            (("socket", ""), ("pid-file", ".pid"), ("log-file", ".log"),
                             ("seed-file", ".seed"))))
        cls.wait_until((cls.folder / "munge").exists, munge)
        controller = cls.start("slurmctld", "-D")
        cls.wait_until(lambda: "is UP" in cls.ask("scontrol", "ping"), controller)
        nodes = [cls.start("slurmd", "-D", "-N", name) for name in ("first", "second")]
        cls.wait_until(lambda: cls.ask("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * 2,
                       controller, *nodes)

    @classmethod
    def configure(cls, ports):
        (cls.folder / "state").mkdir()
        (cls.folder / "slurm.conf").write_text(SLURM.format(
            folder=cls.folder, ports=ports, user=os.popen("id -un").read().strip(),
            host=socket.gethostname().partition(".")[0], cpus=max(2, os.cpu_count())))

    @classmethod
    def start(cls, *command):
        log = cls.folder / f"{command[0]}-{command[-1]}.out".replace("/", "_")
        with open(log, "w") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       start_new_session=True, env=environment(**cls.variables),
                                       preexec_fn=end_with_this_process)
        process.log = log
        return process

    @classmethod
    def ask(cls, *command):
        try:
            return subprocess.run(command, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  timeout=COMING_UP, env=environment(**cls.variables)).stdout
        except subprocess.TimeoutExpired:
            return ""

    @classmethod
    def wait_until(cls, ready, *daemons):
        end = time.monotonic() + COMING_UP
        while not ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
                said = "\n".join(daemon.log.read_text()[-1000:] for daemon in daemons)
                raise unittest.SkipTest(f"Slurm does not arrive up here:\n{said}")
            time.sleep(0.05)

    def srun(self, *command, **more):
        return self.output("srun", "--nodes=1", "--ntasks=2", *command, **more)

    def test_train_ddp(self):
        self.check_trained(self.srun(PROGRAMS / "train_ddp", *TASK))

    def test_the_bench(self):
        self.check_measured(self.srun(PROGRAMS / "c10d-bench", *BENCH))

    def test_the_printed_line(self):
        line = self.output(PROGRAMS / "c10d-run", "-n", "2", "-x", "K=v,w", "--print", "srun", "sh",
                           "-c", 'echo "$K"; exec "$@"', "sh", PROGRAMS / "train_ddp", *TASK)
        text = self.output("sh", "-c", line)
        self.check_trained(text)
        self.assertRegex(text, r"(?m)^0: weights ")
        self.assertEqual(sorted(re.findall(r"^(.): v,w$", text, re.M)), ["0", "1"])

    def test_a_script_that_trains_twice(self):
        once = '"$@" || exit; '
        self.check_trained(
            self.srun("sh", "-c", 2 * once, "sh", PROGRAMS / "train_ddp", *TASK), times=2)

    def test_two_nodes_need_an_address_and_a_secret(self):
        # Both are this host, but Slurm says that they are two.
        train = ["srun", "--nodes=2", "--ntasks=2", PROGRAMS / "train_ddp", *TASK]
        ended = self.run_to_its_end(*train)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("2 ranks, but no rendezvous address", ended.stderr)
        self.assertIn("MASTER_ADDR=$(scontrol show hostnames", ended.stderr)
        held, (port,) = hold_ports(1)
        self.addCleanup(held[0].close)
        self.check_trained(self.output(*train, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                       C10D_TOKEN_FILE=self.make_secret("token")))

    def test_pmi_hides_no_node(self):
        listed = self.run_to_its_end("srun", "--mpi=list")
        if "pmi2" not in listed.stdout + listed.stderr:
            self.skipTest("this Slurm speaks no PMI 2")
        text = self.output("srun", "--mpi=pmi2", "--nodes=2", "--ntasks=2", PROGRAMS / "c10d-info",
                           "launch")
        self.assertEqual(re.findall(r"local size +(\d)", text), ["1", "1"])


class Torchrun(Case):
    @classmethod
    def setUpClass(cls):
        refusals = []
        for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
            refusal = cls.refusal(python)
            if refusal is None:
                cls.python = python
                break
            refusals.append(f"{python}: {refusal}")
        else:
            raise unittest.SkipTest("there is no torchrun that works (package python3-torch)\n" +
                                    "\n".join(refusals))
        super().setUpClass()
        # Where torchrun takes the host's name for MASTER_ADDR, that need not be loopback.
        cls.variables["C10D_TOKEN_FILE"] = cls.make_secret("token")
        # Python 3.11 and torch 1.13 disagree about what no redirection is.
        cls.words = [cls.python, "-m", "torch.distributed.run", "--monitor_interval=0.2",
                     "--redirects=0:1", "--tee=0:1", f"--log_dir={cls.folder}/logs"]

    @staticmethod
    def refusal(python):
        """Why this interpreter runs no torchrun, or None."""
        try:
            tried = subprocess.run([python, "-c", "import torch.distributed.run"], text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, timeout=COMING_UP, env=environment())
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if tried.returncode == 0:
            return None
        return tried.stderr.strip().rpartition("\n")[2] or f"exit status {tried.returncode}"

    def torchrun(self, *words):
        return self.output(*self.words, *words)

    def test_the_bench_beside_the_agents_store(self):
        held, (agents, _) = hold_ports(2)
        for port in held:
            self.addCleanup(port.close)
        self.check_measured(self.torchrun("--nproc_per_node=2", f"--master_port={agents}",
                                          "--no_python", PROGRAMS / "c10d-bench", *BENCH))

    def test_the_printed_line(self):
        line = self.output(PROGRAMS / "c10d-run", "-n", "2", "--print", "torchrun",
                           PROGRAMS / "train_ddp", *TASK)
        words = line.split()
        self.assertEqual(words[:2], ["torchrun", "--standalone"])
        # The same with a port of this test's own: torch's is the same for all on the host.
        held, (port,) = hold_ports(1)
        self.addCleanup(held[0].close)
        self.check_trained(self.torchrun("--rdzv_backend=c10d", "--rdzv_id=x",
                                         f"--rdzv_endpoint=localhost:{port}", *words[2:]))


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"skipped: {reason}")


if __name__ == "__main__":
    # What daemons and ranks leave behind becomes a child of this process.
    LIBC.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    PROGRAMS = Path(sys.argv[1]).resolve()
    case = {"srun": Srun, "torchrun": Torchrun}[sys.argv[2]]
    try:
        result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(
            unittest.defaultTestLoader.loadTestsFromTestCase(case))
    finally:
        case.doClassCleanups()
    nothing_ran = len(result.skipped) >= result.testsRun  # a class that is skipped runs none
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if nothing_ran else 0)
