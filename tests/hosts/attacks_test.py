#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Strangers that call the ranks of a native group while it is made: attacks_test.py PROGRAMS

The hosts are network namespaces, joined by a cable that the test lays. Exits with 77 where it may
not.
"""
import contextlib
import hashlib
import hmac
import os
import socket
import struct
import sys
import time
from pathlib import Path

import test_bed

HELLO, CHALLENGE, PROOF, WELCOME, REFUSAL = range(0xf0, 0xf5)
MISMATCH, WRONG_JOB, NOT_AUTHENTICATED, CORRUPT = 9, 5, 7, 1  # codes of a refusal
MANY = 1000
# Calls an address, and hands over the connections: it is on a network of its own.
DIALER = """
import socket, sys
out = socket.socket(fileno=int(sys.argv[1]))
for _ in range(int(sys.argv[4])):
    connection = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    socket.send_fds(out, [b"."], [connection.fileno()])
    connection.close()
"""


def frame(kind, body=b"", length=None):
    return b"c10d" + struct.pack("<HBBQQ", 3, kind, 0, 0,
                                 len(body) if length is None else length) + body


def string(text):
    return struct.pack("<I", len(text)) + text.encode()


class Stranger:
    """One connection to a listener, and what it answers."""

    def __init__(self, connection):
        self.connection = connection
        self.heard = b""
        self.is_over = False

    def say(self, *parts):
        with contextlib.suppress(ConnectionError):
            self.connection.sendall(b"".join(parts))
        return self

    def hear(self, patience):
        """Takes what comes next; whether anything came, or the end."""
        if self.is_over:
            return False
        self.connection.settimeout(max(patience, 0))
        try:
            more = self.connection.recv(1 << 16)
        except (BlockingIOError, TimeoutError):
            return False
        except ConnectionError:
            more = b""
        self.heard += more
        self.is_over = not more
        return True

    def answer(self, patience=test_bed.DEADLINE):
        """The next frame, as its kind and body; none: the end."""
        end = time.monotonic() + patience
        while True:
            if len(self.heard) >= 24:
                kind, length = self.heard[6], struct.unpack_from("<Q", self.heard, 16)[0]
                if len(self.heard) >= 24 + length:
                    body = self.heard[24:24 + length]
                    self.heard = self.heard[24 + length:]
                    return kind, body
            if not self.hear(end - time.monotonic()):
                assert self.is_over, "no answer"
                return None, b""

    def refusal(self):
        """The code and the text with which it is sent away."""
        kind, body = self.answer()
        assert kind == REFUSAL, kind
        assert self.answer() == (None, b"")
        return body[0], body[5:].decode()

    def hello(self, role, job, rank=0, nonce=bytes(32)):
        self.said = (bytes([0]) + struct.pack("<I", rank) + bytes(12) + nonce + string(role) +
                     string(job))
        return self.say(frame(HELLO, self.said))

    def proof(self, token):
        """Of the challenge that follows the hello."""
        kind, body = self.answer()
        assert kind == CHALLENGE, kind
        assert hmac.compare_digest(body[32:], digest(TOKEN, "server", self.said + body[:32]))
        return frame(PROOF, digest(token, "client", self.said + body[:32]))


def digest(token, side, transcript):
    return hmac.new(token, f"c10d {side} v3\n".encode() + transcript, hashlib.sha256).digest()


PROGRAMS, TOKEN = None, None


class Attacks(test_bed.RanksByHand):
    """Rank 0 knows where all listen, and does not call them before the test says so. So the ranks
    of the other host wait for it with both listeners open, and rank 1 for them with one."""

    def setUp(self):
        super().setUp()
        global TOKEN
        TOKEN = self.token.read_bytes()
        self.running = self.start_ranks(PROGRAMS, "held", 2, 2, C10D_NET_INTERFACE=self.SUBNET,
                                        C10D_TIMEOUT="60")
        self.await_file("held-0", self.running)
        # The mesh of the control plane is made; each rank listens for collectives and messages.
        while [len(self.listeners(namespace)) for namespace in self.namespaces] != [3, 4]:
            self.check_alive(self.running)
        self.addresses = [address for namespace in self.namespaces
                          for address in self.listeners(namespace)]
        self.strangers = []

    def call(self, address, count=1):
        """Strangers on the second host."""
        host, _, port = address.rpartition(":")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            dialer = self.start([*self.namespaces[1].enter, sys.executable, "-c", DIALER,
                                 theirs.fileno(), host, port, count], pass_fds=[theirs.fileno()])
            came = []
            while len(came) < count:
                came += [Stranger(socket.socket(fileno=fd))
                         for fd in socket.recv_fds(ours, 1, 1)[1]]
            self.assertEqual(dialer.end(), 0, dialer.err)
        self.strangers += came
        for stranger in came:
            self.addCleanup(stranger.connection.close)
        return came

    def one(self, address):
        return self.call(address)[0]

    def roles(self):
        """By what they serve, the listeners whose ranks wait for calls."""
        asked = {address: self.one(address).hello("mesh/2", "nobody's") for address in
                 self.addresses}
        jobs, roles = set(), {}
        waiting = {}
        while len(waiting) < 3:
            for address, stranger in asked.items():
                if address not in waiting and (stranger.heard or stranger.hear(0.01)):
                    waiting[address] = stranger
        for address, stranger in waiting.items():
            code, text = stranger.refusal()
            self.assertEqual(code, WRONG_JOB)
            jobs.add(text.split("this is job '")[1].split("'")[0])
        self.assertEqual(len(jobs), 1)
        self.job = jobs.pop()
        for address in waiting:
            code, text = self.one(address).hello("mesh/2", self.job).refusal()
            self.assertEqual(code, WRONG_JOB)
            roles[text.split("serves '")[1].split("'")[0]] = address
        self.assertEqual(set(roles), {"native-0-0/2", "native-0-0/3", "native-messages-0/1"})
        return roles

    def end_well(self):
        """The group comes about, its results are right, nobody listens, and no stranger stays."""
        start = time.monotonic()
        (self.folder / "go").touch()
        for rank in range(4):
            self.await_file(f"ready-{rank}", self.running)
        print(f"{self.id().rpartition('.')[2]}: {len(self.strangers)} strangers, and the group "
              f"stands after {time.monotonic() - start:.2f} s")
        self.assertEqual([self.listeners(namespace) for namespace in self.namespaces], [[], []])
        for stranger in self.strangers:
            while stranger.hear(0):
                pass
            self.assertTrue(stranger.is_over)
        (self.folder / "over").touch()
        super().end_well(self.running)

    def test_who_does_not_belong_is_sent_away(self):
        roles = self.roles()
        for role, address in roles.items():
            for other in roles:
                if other != role:
                    code, _ = self.one(address).hello(other, self.job).refusal()
                    self.assertEqual(code, WRONG_JOB)
            for token in (b"", os.urandom(32)):
                stranger = self.one(address).hello(role, self.job)
                self.assertEqual(stranger.say(stranger.proof(token)).refusal()[0],
                                 NOT_AUTHENTICATED)
            # A hello and its proof, a second time.
            heard = self.one(address).hello(role, self.job)
            proof = heard.proof(TOKEN)
            replay = self.one(address).say(frame(HELLO, heard.said), proof)
            self.assertEqual(replay.answer()[0], CHALLENGE)
            self.assertEqual(replay.refusal()[0], NOT_AUTHENTICATED)
        # What only a rank of the job can say: another one's number, or none's.
        for rank, expected in ((1, MISMATCH), (2, MISMATCH), (3, MISMATCH), (4, MISMATCH),
                               (99, MISMATCH), (1 << 31, CORRUPT)):
            stranger = self.one(roles["native-0-0/2"]).hello("native-0-0/2", self.job, rank)
            self.assertEqual(stranger.say(stranger.proof(TOKEN)).refusal()[0], expected)
        self.end_well()

    def test_garbage_and_silence_hold_nobody_up(self):
        hello = frame(HELLO, bytes(60))
        for address in self.addresses:
            self.one(address)
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(64), b"\xff" * 64, hello,
                            hello[:30], frame(HELLO, length=1 << 62), frame(PROOF, bytes(32)),
                            frame(WELCOME), frame(1, bytes(100))):
                self.one(address).say(garbage)
        self.end_well()

    def test_many_silent_strangers(self):
        self.call(self.roles()["native-0-0/2"], MANY)
        self.end_well()


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(Attacks)
