# SPDX-License-Identifier: BSD-3-Clause
"""What tests over several hosts share: programs that end with their test, and hosts that are
network namespaces of this machine."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DEADLINE = 90  # seconds of one program
SKIPPED = 77
# Makes a device, and hands over the packets that are sent to it.
TUN = """
import fcntl, socket, struct, sys
device = open("/dev/net/tun", "r+b", buffering=0)
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"cable", IFF_TUN | IFF_NO_PI))
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"."], [device.fileno()])
"""


def environment(**more):
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(("C10D_", "PET_"))}
    return {**inherited, **more}


class Running:
    """A program whose processes go with it."""
    out = err = ""
    over = False

    def __init__(self, command, pass_fds=(), **more):
        self.process = subprocess.Popen([str(word) for word in command], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True,
                                        pass_fds=pass_fds, env=environment(**more))

    def take_output(self, patience):
        """Whether it has ended, and closed its output, within so many seconds."""
        if not self.over:
            try:
                self.out, self.err = self.process.communicate(timeout=patience)
                self.over = True
            except subprocess.TimeoutExpired as late:
                self.out, self.err = ((part or b"").decode(errors="replace")
                                      for part in (late.stdout, late.stderr))
        return self.over

    def end(self):
        if not self.take_output(DEADLINE):
            self.kill()
            raise AssertionError(f"no end within {DEADLINE} s: {self.out[-20000:]}"
                                 f"{self.err[-20000:]}")
        return self.process.returncode

    def kill(self):
        if not self.over:
            self.process.terminate()  # so that a launcher ends its ranks, which may have sessions
            self.take_output(10)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # what is left of it
        except ProcessLookupError:
            pass
        self.take_output(10)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="c10d-hosts-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.token = self.folder / "token"
        self.token.touch(0o600)
        self.token.write_bytes(os.urandom(32))

    def start(self, command, pass_fds=(), **more):
        running = Running(command, pass_fds, **more)
        self.addCleanup(running.kill)
        return running

    def output(self, *command, **more):
        running = self.start(command, **more)
        self.assertEqual(running.end(), 0, running.out + running.err)
        return running.out

    def end_well(self, hosts):
        """What host 0 printed, when all have ended."""
        for host in hosts:
            self.assertEqual(host.end(), 0, host.out + host.err)
        return hosts[0].out


class Namespace:
    """A name, a network and shared memory of its own, as long as a process in it, which ends with
    this one."""
    PARTS = ("--net", "--mount", "--uts", "--ipc")

    def __init__(self, name, inside=()):
        rights = ["--user", "--map-root-user"] if os.geteuid() != 0 and not inside else []
        # Open MPI takes ranks for neighbours whose hosts have one name and one /dev/shm, UCX those
        # of one boot. UCX looks for interfaces in /sys.
        self.keeper = subprocess.Popen(
            [*inside, "unshare", *self.PARTS, *rights, "sh", "-c",
             f"hostname {name} && mount -t tmpfs shm /dev/shm && mount -t sysfs sys /sys && "
             "cat /proc/sys/kernel/random/uuid > /dev/shm/boot_id && "
             "mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id && "
             "ip link set lo up && echo up && cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "up\n":
            why = self.keeper.communicate()[1].strip()
            raise unittest.SkipTest(f"no network namespace can be made here: {why}")
        self.enter = ["nsenter", "--target", str(self.keeper.pid), *self.PARTS]
        if os.geteuid() != 0:
            self.enter += ["--user", "--preserve-credentials"]

    def do(self, *words):
        done = subprocess.run([*self.enter, *words], stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(f"{' '.join(words)}: {done.stderr.strip()}")

    def close(self):
        self.keeper.communicate()


class TwoHosts(Case):
    """Two namespaces, a cable between them; more, each with a cable to a switch."""
    ADDRESSES = ("10.77.0.1", "10.77.0.2")
    NAMES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
    SUBNET = "10.77.0.0/24"
    KEEPS_MEMORY = "detect_leaks=0"  # libraries of MPI do, until the process ends

    def setUp(self):
        super().setUp()
        for tool in ("unshare", "nsenter", "ip"):
            if subprocess.run(["which", tool], stdout=subprocess.DEVNULL).returncode != 0:
                self.skipTest(f"there is no {tool} (packages util-linux, iproute2)")
        self.namespaces = []
        for _, name in zip(self.ADDRESSES, self.NAMES):
            self.namespaces.append(self.namespace(name))
        if len(self.namespaces) == 2:
            self.lay_cable(*self.namespaces)
        else:
            self.lay_cables_to_a_switch("cable")
        for namespace, address in zip(self.namespaces, self.ADDRESSES):
            namespace.do("ip", "address", "add", address + "/24", "dev", "cable")
            namespace.do("ip", "link", "set", "cable", "up")
        for namespace in self.namespaces:
            namespace.do("timeout", str(DEADLINE), "sh", "-c",
                         "until grep -q 1 /sys/class/net/cable/carrier; do :; done")

    def lay_cables_to_a_switch(self, cable):
        self.switch = self.namespace("switch")
        self.switch.do("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.do("ip", "link", "set", "bridge", "up")
        for name, namespace in zip(self.NAMES, self.namespaces):
            self.lay_cable(namespace, self.switch, end=name, name=cable)
            self.switch.do("ip", "link", "set", name, "master", "bridge", "up")

    def namespace(self, name):
        first = self.namespaces[0] if self.namespaces else None
        parts = set(Namespace.PARTS)
        made = Namespace(name, [word for word in first.enter if word not in parts]
                         if first and os.geteuid() != 0 else ())
        self.addCleanup(made.close)
        return made

    @staticmethod
    def lay_cable(namespace, other, end="cable", name="cable"):
        namespace.do("ip", "link", "add", name, "type", "veth", "peer", "name", end, "netns",
                     str(other.keeper.pid))

    def lay_slow_cable(self, delay, *namespaces):
        """That delays packets for so many seconds, each way."""
        devices = []
        for namespace in namespaces:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                made = self.start([*namespace.enter, sys.executable, "-c", TUN, theirs.fileno()],
                                  pass_fds=[theirs.fileno()])
                theirs.close()
                _, fds, _, _ = socket.recv_fds(ours, 1, 1)
                made.end()
                if not fds and re.search(r"PermissionError|FileNotFoundError", made.err):
                    self.skipTest(f"no TUN device can be made here: {made.err[-200:]}")
                self.assertTrue(fds, made.err)
            devices += fds
            self.addCleanup(os.close, fds[0])
        self.start([sys.executable, "-B", Path(__file__).with_name("slow_cable.py"), delay,
                    *devices], pass_fds=devices)

    def hosts(self, *ranks):
        """As -H of c10d-run takes them; one rank on each unless told."""
        return ",".join(f"{address}:{count}" for address, count in
                        zip(self.ADDRESSES, ranks or [1] * len(self.ADDRESSES)))

    def shell(self):
        """A program that is called as ssh is: [-x] HOST WORDS.. for a shell there."""
        script = self.folder / "shell"
        ways = "".join(f"{address}) exec {' '.join(namespace.enter)} sh -c \"$*\";;\n"
                       for namespace, address in zip(self.namespaces, self.ADDRESSES))
        script.write_text("#!/bin/sh\nif [ \"$1\" = -x ]; then shift; fi\n"
                          f"host=$1; shift\ncase $host in\n{ways}esac\n")
        script.chmod(0o700)
        return script

    def agent(self):
        """What --agent of c10d-run takes: runs a command on a host."""
        return f"{self.shell()} %h %c"

    def c10d_run(self, programs, hosts, *words, **more):
        return self.start([programs / "c10d-run", "-H", hosts, "--agent", self.agent(), *words],
                          **more)

    def open_mpi(self, programs, mpirun, hosts, *words):
        """As `c10d-run --print mpirun` says, but for the network of the ranks, which the backend
        tells Open MPI too. All hosts have an interface with the address of docker0, over which Open
        MPI would hang."""
        self.give_all_one_address("same")
        enter = self.namespaces[0].enter
        more = {"C10D_NET_INTERFACE": self.SUBNET, "C10D_TOKEN_FILE": str(self.token)}
        line = self.output(*enter, programs / "c10d-run", "-H", hosts, "--print", "mpirun",
                           "--no-prefix", *words, **more)
        line = line.replace("mpirun", mpirun, 1)
        line = line.replace(f"--mca btl_tcp_if_include {self.SUBNET} ", "")
        return self.start([*enter, "sh", "-c", f"exec {line}"],
                          OMPI_MCA_plm_rsh_agent=str(self.shell()),
                          OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          ASAN_OPTIONS=self.KEEPS_MEMORY, **more)

    def give_all_one_address(self, interface):
        """That of docker0, on an interface that leads nowhere."""
        for namespace in self.namespaces:
            namespace.do("ip", "link", "add", interface, "type", "veth", "peer", "name", "nowhere")
            namespace.do("ip", "address", "add", "172.17.0.1/16", "dev", interface)
            for end in (interface, "nowhere"):
                namespace.do("ip", "link", "set", end, "up")

    def mpich(self, mpirun, hosts, *words):
        ranks = sum(int(host.partition(":")[2]) for host in hosts.split(","))
        return self.start([*self.namespaces[0].enter, mpirun, "-launcher", "ssh", "-launcher-exec",
                           self.shell(), "-iface", "cable", "-hosts", hosts, "-n", ranks, *words],
                          MASTER_ADDR=self.ADDRESSES[0], MASTER_PORT="29500",
                          C10D_TOKEN_FILE=str(self.token), UCX_NET_DEVICES="cable",
                          ASAN_OPTIONS=self.KEEPS_MEMORY)

    def set_the_clock(self):
        """The clock of what starts on the second host from now on is two seconds behind."""
        self.namespaces[1].enter += ["unshare", "--time", "--monotonic", "-2", "--fork",
                                     "--kill-child"]
        self.namespaces[1].do("true")

    def drop_large_packets(self):
        """The second host takes packets of 1400 bytes only, and does not say so."""
        self.namespaces[1].do("ip", "link", "set", "cable", "mtu", "1400")
        self.namespaces[1].do("ip", "route", "replace", self.SUBNET, "dev", "cable", "advmss",
                              "1460")
        self.namespaces[0].do("ip", "link", "set", "cable", "gso_max_segs", "1")

    def bytes_on_the_cable(self, cable="cable", host=0):
        """That the host has sent on it."""
        counter = f"/sys/class/net/{cable}/statistics/tx_bytes"
        return int(subprocess.check_output([*self.namespaces[host].enter, "cat", counter]))

    def swallow(self, host, ways):
        """All that comes from a host to the switch ("out"), or leaves it for the host ("in"), and
        nobody is told."""
        if "out" in ways:
            self.switch.do("bridge", "link", "set", "dev", host, "learning", "off", "locked", "on")
            self.switch.do("ip", "link", "set", "dev", "bridge", "type", "bridge", "fdb_flush")
        if "in" in ways:
            self.switch.do("tc", "qdisc", "add", "dev", host, "root", "tbf", "rate", "1mbit",
                           "burst", "32", "limit", "32")

    def let_through(self, host, ways):
        if "out" in ways:
            self.switch.do("bridge", "link", "set", "dev", host, "learning", "on", "locked", "off")
        if "in" in ways:
            self.switch.do("tc", "qdisc", "del", "dev", host, "root")

    def cut_the_cable(self):
        self.namespaces[1].do("ip", "link", "set", "cable", "down")


class RanksByHand(TwoHosts):
    """Ranks of the program hosts-rank that no launcher starts, or ends."""
    PORT = 29500

    def start_ranks(self, programs, what, *per_host, **more):
        """With so many on each host; rank 0 serves the store. They run without the rights of root,
        which may have larger buffers than others."""
        hosts = [host for host, count in enumerate(per_host) for _ in range(count)]
        return [self.start([*self.namespaces[host].enter, "setpriv", "--bounding-set=-all",
                            "--inh-caps=-all", programs / "hosts-rank", self.folder, what],
                           RANK=str(rank), WORLD_SIZE=str(len(hosts)),
                           LOCAL_RANK=str(hosts[:rank].count(host)),
                           LOCAL_WORLD_SIZE=str(per_host[host]), MASTER_PORT=str(self.PORT),
                           C10D_TOKEN_FILE=str(self.token),
                           **{"MASTER_ADDR": self.ADDRESSES[0], "C10D_BACKEND": "native", **more})
                for rank, host in enumerate(hosts)]

    def stand(self, programs, what, *per_host, **more):
        """Starts them; returns them and their pids once the group stands."""
        ranks = self.start_ranks(programs, what, *per_host, **more)
        for rank in range(len(ranks)):
            self.await_file(f"ready-{rank}", ranks)
        return ranks, [int((self.folder / f"ready-{rank}").read_text())
                       for rank in range(len(ranks))]

    def clear(self):
        """Of what the ranks and the test wrote."""
        for left in [*self.folder.glob("over"), *self.folder.glob("go"),
                     *self.folder.glob("*-*")]:
            left.unlink()

    def bytes_of_a_reduction(self, programs, *per_host, cables=("cable",), what="counted", host=0,
                             **more):
        """That leave a host on each cable for one large all_reduce, once the group stands."""
        ranks, _ = self.stand(programs, what, *per_host, **more)
        before = [self.bytes_on_the_cable(cable, host) for cable in cables]
        (self.folder / "go").touch()
        self.end_well(ranks)
        self.clear()
        return [self.bytes_on_the_cable(cable, host) - count
                for cable, count in zip(cables, before)]

    def end_well(self, ranks):
        for rank in ranks:
            self.assertEqual(rank.end(), 0, rank.out + rank.err)

    def await_file(self, name, ranks):
        while not (self.folder / name).exists():
            self.check_alive(ranks)

    def check_alive(self, ranks):
        for rank in ranks:
            if rank.process.poll() is not None:
                rank.end()
                self.fail(rank.err)

    def listeners(self, namespace):
        text = self.output(*namespace.enter, "cat", "/proc/net/tcp", "/proc/net/tcp6")
        found = re.findall(r"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ 0A ", text, re.M)
        return [".".join(str(byte) for byte in reversed(bytes.fromhex(address))) +
                f":{int(port, 16)}" for address, port in found]


class TwoNetworks(RanksByHand):
    """The two hosts have a second cable each, to a switch, in a subnet of its own."""
    NETWORKS = "10.77.0.0/24,10.78.0.0/24"

    def setUp(self):
        super().setUp()
        self.lay_cables_to_a_switch("rail")
        for number, namespace in enumerate(self.namespaces, 1):
            namespace.do("ip", "address", "add", f"10.78.0.{number}/24", "dev", "rail")
            namespace.do("ip", "link", "set", "rail", "up")


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"skipped: {reason}")


def run(*cases):
    """Runs the tests of the cases, and ends this program with the code that ctest knows."""
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(
        unittest.TestSuite(load(case) for case in cases))
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
