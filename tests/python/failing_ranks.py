# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of failures_test.py: failing_ranks.py CASE ..."""
import asyncio
import os
import signal
import sys
import threading
import time

import c10d
import numpy as np


def interrupt_when_it_waits():
    """Sends SIGINT once the main thread was seen asleep 20 times. Returns a list: when it did."""
    sent = []
    main = threading.main_thread().native_id

    def send():
        asleep = 0
        while asleep < 20:
            asleep += sleeps(main)
            time.sleep(0.005)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    return sent


def sleeps(thread):
    with open(f"/proc/self/task/{thread}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


async def wait_in_asyncio(work):
    await work


def interrupted(what):
    x = np.ones(2)
    group = c10d.init_process_group()
    if group.rank == 1:
        try:
            group.store.get("interrupted", timeout=60)
            group.barrier(timeout=60)
        except c10d.Error as error:
            print(type(error).__name__, error, flush=True)
        return
    call = {
        "op": lambda: group.all_reduce(x),
        "work": lambda: group.recv(x, 1, async_op=True).wait(),
        "recv": lambda: group.recv(x, 1),
        "split": lambda: group.split(0),
        "new_group": lambda: group.new_group([0, 1]),
        "store": lambda: group.store.get("never"),
        "init": lambda: c10d.init_process_group(store=group.store, rank=0, size=2, name="two"),
        "await": lambda: asyncio.run(wait_in_asyncio(group.recv(x, 1, async_op=True))),
    }[what]
    sent = interrupt_when_it_waits()
    try:
        call()
    except KeyboardInterrupt:
        print(f"KeyboardInterrupt after {time.monotonic() - sent[0]:.3f} s", flush=True)
    if what == "await":  # asyncio has interrupted the loop, and not a wait of c10d
        group.abort("Ctrl-C")
    group.store.set("interrupted", "")


def handled():
    group = c10d.init_process_group()
    x = np.ones(1)
    if group.rank == 0:
        def handle(*_):
            print("handled", flush=True)
            group.store.set("go", "")

        signal.signal(signal.SIGINT, handle)
        interrupt_when_it_waits()
    else:
        group.store.get("go")
    group.all_reduce(x)
    print("done", flush=True)


def killed():
    group = c10d.init_process_group()
    group.barrier()
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.barrier()
    except c10d.PeerDied as error:
        print("PeerDied rank", error.rank, error.reason, flush=True)


def forked():
    group = c10d.init_process_group()
    group.barrier()
    if group.rank == 0:
        child = os.fork()
        if child == 0:
            try:
                group.all_reduce(np.ones(1))
            except c10d.Error as error:
                print("child:", type(error).__name__, error, flush=True)
            sys.exit(0)
        print("child ended with", os.waitpid(child, 0)[1], flush=True)
    group.barrier()


def receive(group):
    try:
        group.recv(np.ones(1), 1 - group.rank)
    except c10d.Error:  # of the other rank, which ended first
        pass


def ends(how):
    group = c10d.init_process_group()
    x = np.ones(2)
    work = group.recv(x, 1 - group.rank, async_op=True)
    if how == "dropped":
        del work
    elif how == "callback":
        work.on_done(lambda error: None)
    elif how == "thread":
        part = group.split(0)
        thread = threading.Thread(target=receive, args=(part,), daemon=True)
        thread.start()
        while not sleeps(thread.native_id):
            time.sleep(0.005)
        group.barrier()
    globals()["kept"] = (group, x)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
