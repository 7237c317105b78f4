#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Addresses that do not lead to the other host: addresses_test.py PROGRAMS BACKEND

Every rank says soon which address it is, and what to set. The hosts are network namespaces, joined
by a cable that the test lays. Exits with 77 where it may not.
"""
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS, BACKEND = None, None
# Seconds until a job is over whose ranks do not reach each other: an address that swallows packets
# is tried for three, then the others hear of it.
OVER_BY = 8.0


class Addresses(test_bed.RanksByHand):
    def fail_soon(self, *per_host, **more):
        """What the ranks of the job say."""
        start = time.monotonic()
        ranks = self.start_ranks(PROGRAMS, "once", *per_host, **{"C10D_BACKEND": BACKEND, **more})
        for rank in ranks:
            self.assertEqual(rank.end(), 1, rank.err)
        seconds = time.monotonic() - start
        print(f"{self.id().rpartition('.')[2]}: over after {seconds:.1f} s")
        self.assertLess(seconds, OVER_BY)
        return [rank.err for rank in ranks]

    def expect_unreachable(self, address, *per_host, **more):
        for said in self.fail_soon(*per_host, **more):
            self.assertRegex(said, rf"(?m)^\d+ unreachable \d+ .*listened at tcp://{address}:\d+, "
                                   r"and there is no connection to it: .*C10D_NET_INTERFACE")

    def test_both_hosts_have_the_same_address(self):
        """As those of docker0 are."""
        self.give_all_one_address("docker0")
        self.expect_unreachable("172.17.0.1", 1, 1, C10D_NET_INTERFACE="docker0")

    def test_an_address_swallows_packets(self):
        for number, namespace in enumerate(self.namespaces, 1):
            namespace.do("ip", "address", "add", f"10.79.0.{number}/32", "dev", "lo")
            namespace.do("ip", "route", "add", "10.79.0.0/24", "via", "10.77.0.99")
        self.expect_unreachable("10.79.0.2", 1, 1, C10D_NET_INTERFACE="10.79.0.0/24")
        self.expect_unreachable("10.79.0.2", 2, 2, C10D_NET_INTERFACE="10.79.0.0/24")

    def test_there_is_no_such_interface(self):
        for said in self.fail_soon(1, 1, C10D_NET_INTERFACE="eth9"):
            self.assertRegex(said, r"C10D_NET_INTERFACE=eth9: no interface, address or subnet of "
                                   r"host (first|second), which has .*\bcable 10\.77\.0\.0/24")

    def test_a_host_takes_its_own_name_for_a_loopback_address(self):
        """As /etc/hosts of Debian says; others find the right one."""
        hosts = self.folder / "hosts"
        for namespace, address in zip(self.namespaces, ("127.0.1.1", "10.77.0.1")):
            hosts.write_text(f"127.0.0.1 localhost\n{address} first\n")
            namespace.do("sh", "-c", f"cat {hosts} > /dev/shm/hosts && "
                                     "mount --bind /dev/shm/hosts /etc/hosts")
        said = self.fail_soon(1, 1, MASTER_ADDR="first", C10D_TIMEOUT="3")
        self.assertIn("MASTER_ADDR=first: first is 127.0.1.1 on this host, which no other host can "
                      "reach; mend /etc/hosts, or give a numeric address", said[0])
        self.assertRegex(said[1], r"10\.77\.0\.1:29500: Connection refused")


if __name__ == "__main__":
    PROGRAMS, BACKEND = Path(sys.argv[1]).resolve(), sys.argv[2]
    test_bed.run(Addresses)
