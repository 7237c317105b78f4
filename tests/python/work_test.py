# SPDX-License-Identifier: BSD-3-Clause
"""Async ops: Work, asyncio, and the memory that they keep. Every rank runs it."""
import asyncio
import gc
import threading
import unittest
import weakref

import c10d
import numpy as np

group = c10d.init_process_group()
rank, size = group.rank, group.size


class Array(np.ndarray):
    """An array of which weak references exist."""


def pending():
    """A recv that nobody has sent to yet, and what sends to it."""
    output = np.zeros(2)
    work = group.recv(output, rank, tag=9, async_op=True)
    return output, work, lambda: group.send(np.full(2, 7.0), rank, tag=9, async_op=True).wait()


class Works(unittest.TestCase):
    def test_wait(self):
        x = np.ones(1000)
        work = group.all_reduce(x, async_op=True)
        work.wait()
        work.wait()
        self.assertEqual((work.state, work.done(), work.exception()), ("ok", True, None))
        self.assertIsNone(work.received)
        np.testing.assert_array_equal(x, np.full(1000, size))

    def test_many_at_once(self):
        arrays = [np.full(10, i + rank, "i8") for i in range(50)]
        for work in [group.all_reduce(x, async_op=True) for x in arrays]:
            work.wait()
        for i, x in enumerate(arrays):
            np.testing.assert_array_equal(x, np.full(10, size * i + sum(range(size))))

    def test_a_wait_may_end_first(self):
        output, work, finish = pending()
        with self.assertRaises(c10d.Timeout) as caught:
            work.wait(0.01)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual((work.state, work.done()), ("running", False))
        finish()
        work.wait(timeout=60)
        self.assertEqual((work.received.source, work.received.count), (rank, 2))
        self.assertEqual(list(output), [7, 7])

    def test_it_keeps_its_buffers_until_it_is_done(self):
        output = np.zeros(2).view(Array)
        alive = weakref.ref(output)
        work = group.recv(output, rank, tag=9, async_op=True)
        del output
        gc.collect()
        self.assertIsNotNone(alive())
        group.send(np.ones(2), rank, tag=9, async_op=True).wait()
        work.wait()
        self.assertIsNone(alive())

    def test_a_work_that_is_dropped_leaves_its_op(self):
        output = np.zeros(2).view(Array)
        buffer, released = weakref.ref(output), threading.Event()
        weakref.finalize(output, released.set)
        work = group.recv(output, rank, tag=9, async_op=True)
        dropped = weakref.ref(work)
        del work, output
        self.assertIsNone(dropped())
        self.assertIsNotNone(buffer())
        group.send(np.full(2, 7.0), rank, tag=9, async_op=True).wait()
        self.assertTrue(released.wait(60))

    def test_on_done(self):
        _, work, finish = pending()
        got, called = [], threading.Event()
        work.on_done(lambda error: (got.append((error, threading.get_ident())), called.set()))
        self.assertFalse(got)
        finish()
        self.assertTrue(called.wait(60))
        self.assertIsNone(got[0][0])
        self.assertNotEqual(got[0][1], threading.get_ident())
        work.wait()
        work.on_done(got.append)  # at once
        self.assertEqual(got[1], None)

    def test_asyncio(self):
        async def main():
            output, work, finish = pending()
            ticks = 0

            async def tick():
                nonlocal ticks
                while not work.done():
                    ticks += 1
                    if ticks == 3:
                        finish()
                    await asyncio.sleep(0)

            received, _ = await asyncio.gather(work, tick())
            self.assertEqual((received.source, list(output)), (rank, [7, 7]))
            self.assertGreaterEqual(ticks, 3)  # the loop went on
            x = np.ones(3)
            await asyncio.gather(*[group.all_reduce(np.ones(3), async_op=True) for _ in range(9)])
            self.assertIsNone(await group.all_reduce(x, async_op=True))
            self.assertEqual(list(x), [size] * 3)

        asyncio.run(main())

    def test_asyncio_timeout(self):
        async def main():
            _, work, finish = pending()
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.01)
            finish()
            await work

        asyncio.run(main())

    def test_another_thread_runs_meanwhile(self):
        _, work, finish = pending()
        thread = threading.Thread(target=finish)
        thread.start()
        work.wait(60)  # without the GIL, or finish() would never run
        thread.join()

    def test_zz_a_failure_comes_with_await(self):  # the last, since it breaks the group
        async def main():
            with self.assertRaises(c10d.Mismatch):
                await group.all_reduce(np.ones(3 + rank), async_op=True)

        asyncio.run(main())
        work = group.all_reduce(np.ones(1), async_op=True)
        self.assertEqual((work.state, type(work.exception())), ("failed", c10d.Mismatch))
        self.assertRaises(c10d.Mismatch, work.wait)


if __name__ == "__main__":
    unittest.main()
