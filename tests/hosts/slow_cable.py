# SPDX-License-Identifier: BSD-3-Clause
"""A cable between two hosts that delays each packet: slow_cable.py SECONDS FD FD passes packets
between two TUN devices until it is killed. What does not fit into its queues is lost, as in a
switch."""
import collections
import os
import select
import sys
import time

MOST = 4096  # packets under way in one direction


class Way:
    def __init__(self, source, target):
        self.source, self.target = source, target
        self.under_way = collections.deque()

    def take(self, due):
        try:
            while True:
                packet = os.read(self.source, 65536)
                if len(self.under_way) < MOST:
                    self.under_way.append((due, packet))
        except BlockingIOError:
            pass

    def give(self, now):
        while self.under_way and self.under_way[0][0] <= now:
            try:
                os.write(self.target, self.under_way.popleft()[1])
            except OSError:  # the other end is down
                pass


def main(seconds, *devices):
    for device in devices:
        os.set_blocking(device, False)
    ways = [Way(*devices), Way(*reversed(devices))]
    while True:
        now = time.monotonic()
        for way in ways:
            way.give(now)
        due = [way.under_way[0][0] for way in ways if way.under_way]
        readable, _, _ = select.select(devices, [], [], max(0, min(due) - now) if due else None)
        for way in ways:
            if way.source in readable:
                way.take(time.monotonic() + seconds)


if __name__ == "__main__":
    main(float(sys.argv[1]), *(int(fd) for fd in sys.argv[2:]))
