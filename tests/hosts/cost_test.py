#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a native group over hosts costs beside its ops: cost_test.py PROGRAMS

The hosts are network namespaces of one machine, joined by cables that the test lays. Exits with 77
where it may not. The figures are printed; the bounds are for busy machines.
"""
import os
import signal
import sys
import time
from pathlib import Path

import test_bed

PROGRAMS = None
SLOWER = 4 if os.environ.get("SANITIZED") else 1


def threads_of(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def cpu_seconds_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


class Cost(test_bed.RanksByHand):
    def end(self, ranks):
        (self.folder / "over").touch()
        self.end_well(ranks)
        self.clear()

    def test_a_group_takes_little_time_and_one_thread_more(self):
        took, threads = {}, {}
        for per_host in ((8,), (4, 4)):
            times = []
            for _ in range(3):
                ranks, pids = self.stand(PROGRAMS, "idle", *per_host, C10D_TIMEOUT="60")
                times.append(min(float((self.folder / f"took-{rank}").read_text())
                                 for rank in range(8)))  # of the rank that came last
                time.sleep(1)  # until the store is asked for the first time
                threads[per_host] = {threads_of(pid) for pid in pids[1:]}  # rank 0 has the store
                self.end(ranks)
            took[per_host] = sorted(times)[1]
        more = took[4, 4] - took[8,]
        print(f"8 ranks: {took[8,] * 1e3:.0f} ms on one host, {more * 1e3:.0f} more on two; "
              f"threads {threads}")
        self.assertLess(more, 1.0 * SLOWER)
        self.assertEqual({count + 1 for count in threads[8,]}, threads[4, 4])

    def test_ranks_that_wait_leave_the_cpus_to_others(self):
        """More ranks than CPUs wait for one that is stopped."""
        each = max(2, (os.cpu_count() or 1))
        ranks, pids = self.stand(PROGRAMS, "small", each, each, C10D_TIMEOUT="60")
        os.kill(pids[-1], signal.SIGSTOP)
        time.sleep(0.5)  # of the op that they are in
        before = [cpu_seconds_of(pid) for pid in pids[:-1]]
        seconds = 2
        time.sleep(seconds)
        used = [(cpu_seconds_of(pid) - start) / seconds for pid, start in zip(pids, before)]
        os.kill(pids[-1], signal.SIGCONT)
        print(f"{len(used)} waiting ranks: {max(used):.1%} of a CPU at most")
        self.assertLess(max(used), 0.05 * SLOWER)
        self.end(ranks)


class FourHosts(test_bed.TwoHosts):
    ADDRESSES = tuple(f"10.77.0.{host}" for host in range(1, 5))

    def test_64_ranks_run_every_op_and_end(self):
        start = time.monotonic()
        run = self.c10d_run(PROGRAMS, self.hosts(16, 16, 16, 16), PROGRAMS / "hosts-rank",
                            self.folder, "each op")
        self.assertEqual(run.end(), 0, run.out[-5000:] + run.err[-5000:])
        print(f"64 ranks: up, every op once and over in {time.monotonic() - start:.1f} s")
        self.assertLess(time.monotonic() - start, 30 * SLOWER)


if __name__ == "__main__":
    PROGRAMS = Path(sys.argv[1]).resolve()
    test_bed.run(Cost, FourHosts)
