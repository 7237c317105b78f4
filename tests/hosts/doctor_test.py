#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""c10d-run doctor over two hosts: doctor_test.py PROGRAMS

The hosts are network namespaces, joined by a cable that the test lays. Exits with 77 where it may
not.
"""
import sys
from pathlib import Path

import test_bed

PROGRAMS = None


class Doctor(test_bed.TwoHosts):
    def ask(self):
        """The code of the doctor, and what it says."""
        run = self.start([PROGRAMS / "c10d-run", "doctor", "--agent", self.agent(), "-H",
                          self.hosts()])
        return run.end(), run.out + run.err

    def test_hosts_that_are_well(self):
        code, text = self.ask()
        self.assertEqual(code, 0, text)
        for one, other in (self.ADDRESSES, self.ADDRESSES[::-1]):
            self.assertIn(f"ok    {one} -> {other}: {other}, MTU 1500", text)
        self.assertIn(f"{self.ADDRESSES[0]}: listens on {self.ADDRESSES[0]}, port 29500", text)
        self.assertIn("all is well", text)

    def test_a_cut_cable(self):
        self.cut_the_cable()
        code, text = self.ask()
        self.assertEqual(code, 1, text)
        for one, other in (self.ADDRESSES, self.ADDRESSES[::-1]):
            self.assertIn(f"MEND  {one} -> {other}: ", text)
        self.assertNotIn("all is well", text)

    def test_another_mtu(self):
        self.namespaces[1].do("ip", "link", "set", "cable", "mtu", "1400")
        code, text = self.ask()
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"MEND  the MTU differs: 1400 \(.*\), 1500 \(")

    def test_large_packets_that_do_not_pass(self):
        self.drop_large_packets()
        code, text = self.ask()
        self.assertEqual(code, 1, text)
        self.assertIn("small messages pass and large ones do not", text)

    def test_a_port_that_is_taken(self):
        taken = self.start([*self.namespaces[0].enter, sys.executable, "-c",
                            "import socket, time; "
                            f"s = socket.create_server(('{self.ADDRESSES[0]}', 29500)); "
                            "print('up', flush=True); time.sleep(100)"])
        self.assertEqual(taken.process.stdout.readline(), "up\n")
        code, text = self.ask()
        self.assertEqual(code, 1, text)
        self.assertRegex(text, rf"MEND  {self.ADDRESSES[0]}: does not listen .*--master-port")


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(Doctor)
