# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of failures_test.py: failing_ranks.py CASE ..."""
import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref

import c10d
import numpy as np


def interrupt_when_it_waits():
    """Sends SIGINT once the main thread waits. Returns a list: when it did."""
    sent = []
    main = threading.main_thread().native_id

    def send():
        wait_until_it_waits(main)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    return sent


def sleeps(thread):
    with open(f"/proc/self/task/{thread}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


def wait_until_it_waits(thread):
    """Returns once it was seen asleep 20 times."""
    asleep = 0
    while asleep < 20:
        asleep += sleeps(thread)
        time.sleep(0.005)


def rank_of_a_child(rank, store):
    """Ends at once, while its message is under way; the other rank is late."""
    global kept  # to the end of the process
    kept = c10d.init_process_group(store=c10d.file_store(store, 2), rank=rank, size=2)
    x = np.full(1 << 22, 7.0)
    if rank == 0:
        kept.send(x, 1, async_op=True)
        return
    time.sleep(0.5)
    x[:] = 0
    kept.recv(x, 0)
    print("came", x.min(), x.max(), flush=True)


def children(folder):
    """Ranks that are processes of multiprocessing, which fork."""
    if c10d.detect_launch().rank != 0:
        return
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank_of_a_child, args=(rank, f"{folder}/store"))
             for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    print("ended", [process.exitcode for process in ranks], flush=True)


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


def everyone():
    """Every rank gets SIGINT at the same time, as from Ctrl-C in a terminal."""
    group = c10d.init_process_group()
    main = threading.main_thread().native_id

    def send():
        wait_until_it_waits(main)
        group.store.set(f"asleep{group.rank}", "")
        if group.rank == 0:
            group.store.wait([f"asleep{rank}" for rank in range(group.size)])
            for member in reversed(group.members):
                os.kill(member.pid, signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()
    try:
        group.recv(np.ones(1), (group.rank + 1) % group.size)
    except BaseException as error:
        print("got", type(error).__name__, flush=True)


class Array(np.ndarray):
    """An array of which weak references exist."""


def kept():
    """On a backend that waits in a library: whether the buffers of a failed op stay."""
    world = c10d.init_process_group()
    for how in ("call", "work", "dropped"):
        group = world.split(0)
        x, freed = np.ones(2).view(Array), threading.Event()
        weakref.finalize(x, freed.set).atexit = False
        if world.rank == 1:
            world.store.get(how, timeout=60)
            continue
        interrupt_when_it_waits()
        try:
            if how == "call":
                group.recv(x, 1)
            work = group.recv(x, 1, async_op=True)
            if how == "work":
                work.wait()
            del work, x
            group.recv(np.ones(2), 1, tag=1)
        except KeyboardInterrupt:
            print("interrupted", how, flush=True)
        work = x = None
        world.store.set(how, "")
        gc.collect()
        if world.backend == "native":  # needs them no more; a Work that was dropped ends later
            assert freed.wait(60)
        print("freed" if freed.is_set() else "kept", how, flush=True)
        assert freed.is_set() == (world.backend == "native")
    world.barrier()


def dropped():
    group = c10d.init_process_group()
    x = np.ones(2).view(Array)
    alive = weakref.ref(x)
    group.recv(x, 0, async_op=True, timeout=0.05)
    del x
    while alive() is not None:
        time.sleep(0.005)


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
    elif how == "calls":  # a callback that comes back from c10d after the interpreter began to end
        started = threading.Event()

        def call(error):
            started.set()
            try:
                group.store.get("never", timeout=1.5)
            except c10d.Error:
                pass

        group.recv(np.ones(2), group.rank, tag=1, async_op=True).on_done(call)
        group.send(x, group.rank, tag=1)
        started.wait(60)
    elif how == "groups":
        parts = [group.split(0) for _ in range(6)]
        globals()["works"] = [p.recv(x, 1 - p.rank, async_op=True) for p in parts]
        globals()["parts"] = parts
    globals()["left"] = (group, x)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
