# SPDX-License-Identifier: BSD-3-Clause
"""Every op against NumPy, with every dtype. Every rank runs it."""
import unittest

import c10d
import numpy as np

group = c10d.init_process_group()
rank, size = group.rank, group.size

REDUCED = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"]
EACH = [(dtype, count) for dtype in REDUCED for count in (1, 7, 3000)]
COUNTS = [r + 1 for r in range(size)]  # elements of each rank
FIRST = [sum(COUNTS[:r]) for r in range(size + 1)]


def values(dtype, count, of=None):
    """What rank `of` brings: small numbers, so that every order of adding gives the same."""
    numbers = np.arange(count) % 5 + (rank if of is None else of)
    return (numbers % 2 if dtype == "?" else numbers).astype(dtype)


def all_values(dtype, count):
    return [values(dtype, count, r) for r in range(size)]


def total(arrays):
    return np.logical_or.reduce(arrays) if arrays[0].dtype == bool else sum(arrays[1:], arrays[0])


class Ops(unittest.TestCase):
    def check(self, got, expected):
        np.testing.assert_array_equal(got, expected)
        self.assertEqual(got.dtype, expected.dtype)

    def test_all_reduce(self):
        for dtype, count in EACH:
            expected = total(all_values(dtype, count))
            x = values(dtype, count)
            address = x.ctypes.data
            self.assertIsNone(group.all_reduce(x))
            self.check(x, expected)
            self.assertEqual(x.ctypes.data, address)
            source, output = values(dtype, count), np.zeros(count, dtype)
            group.all_reduce(output, source)
            self.check(output, expected)
            self.check(source, values(dtype, count))

    def test_reduce_ops(self):
        x = values("f8", 9)
        every = np.stack(all_values("f8", 9))
        for op, expected in (("sum", every.sum(0)), ("prod", every.prod(0)), ("min", every.min(0)),
                             ("MAX", every.max(0)), ("avg", every.sum(0) / size),
                             (c10d.ReduceOp.max, every.max(0)),
                             (c10d.ReduceOp.premul(0.5), (every * 0.5).sum(0))):
            output = np.empty_like(x)
            group.all_reduce(output, x, op=op)
            self.check(output, expected)
        with self.assertRaisesRegex(ValueError, "premul"):
            group.all_reduce(x, op="premul_sum")
        bits = np.stack(all_values("u4", 9))
        for op, of in (("band", np.bitwise_and), ("bor", np.bitwise_or), ("bxor", np.bitwise_xor)):
            output = values("u4", 9)
            group.all_reduce(output, op=op)
            self.check(output, of.reduce(bits))

    def test_shapes_do_not_matter(self):
        x = np.ones((2, 3, 4), "f4")
        group.all_reduce(x)
        self.check(x, np.full((2, 3, 4), size, "f4"))
        scalar = np.array(rank + 1.0)
        group.all_reduce(scalar)
        self.assertEqual(scalar, sum(range(size + 1)))
        group.all_reduce(np.zeros(0))

    def test_scan_and_exscan(self):
        for dtype, count in EACH:
            every = all_values(dtype, count)
            x = values(dtype, count)
            group.scan(x)
            self.check(x, total(every[:rank + 1]))
            x = values(dtype, count)
            group.exscan(x)
            self.check(x, total(every[:rank]) if rank else every[0])

    def test_broadcast(self):
        for dtype, count in EACH:
            for root in range(size):
                x = values(dtype, count)
                group.broadcast(x, root)
                self.check(x, values(dtype, count, root))
        group.broadcast(b"abc" if rank == 0 else bytearray(3))  # the root's may be read-only

    def test_reduce(self):
        root = size - 1
        for dtype, count in EACH:
            x = values(dtype, count)
            output = np.zeros(count, dtype) if rank == root else None
            group.reduce(output, x, root)
            if rank == root:
                self.check(output, total(all_values(dtype, count)))

    def test_all_gather(self):
        for dtype, count in EACH:
            output = np.zeros((size, count), dtype)
            group.all_gather(output, values(dtype, count))
            self.check(output, np.stack(all_values(dtype, count)))

    def test_reduce_scatter(self):
        for dtype, count in EACH:
            output = np.zeros(count, dtype)
            group.reduce_scatter(output, values(dtype, size * count))
            shards = total(all_values(dtype, size * count)).reshape(size, count)
            self.check(output, shards[rank])

    def test_gather_and_scatter(self):
        for dtype, count in EACH:
            for root in range(size):
                whole = np.zeros((size, count), dtype) if rank == root else None
                group.gather(whole, values(dtype, count), root)
                if rank == root:
                    self.check(whole, np.stack(all_values(dtype, count)))
                back = np.zeros(count, dtype)
                group.scatter(back, whole, root)
                self.check(back, values(dtype, count))

    def test_all_to_all(self):
        for dtype, count in EACH:
            output = np.zeros((size, count), dtype)
            group.all_to_all(output, values(dtype, size * count))
            expected = [v.reshape(size, count)[rank] for v in all_values(dtype, size * count)]
            self.check(output, np.stack(expected))

    def test_counts_per_rank(self):
        mine = np.full(COUNTS[rank], rank, "i4")
        every = np.concatenate([np.full(COUNTS[r], r, "i4") for r in range(size)])
        output = np.zeros(FIRST[size], "i4")
        group.all_gather_v(output, mine, COUNTS)
        self.check(output, every)
        output[:] = 0
        group.gather_v(output, mine, np.array(COUNTS), 0)
        if rank == 0:
            self.check(output, every)
        back = np.zeros_like(mine)
        group.scatter_v(back, every if rank == 0 else None, COUNTS)
        self.check(back, mine)
        group.reduce_scatter_v(back, every, COUNTS)
        self.check(back, mine * size)

    def test_all_to_all_v(self):
        to = [rank + r for r in range(size)]  # elements to rank r, and from it
        output = np.zeros(sum(to), "i8")
        group.all_to_all_v(output, np.repeat(rank, sum(to)), to, to)
        self.check(output, np.repeat(np.arange(size), to))

    def test_barrier(self):
        before = group.sequence
        group.barrier()
        group.monitored_barrier(timeout=60)
        self.assertEqual(group.sequence, before + 1)

    def test_messages(self):
        after, before = (rank + 1) % size, (rank - 1) % size
        for dtype in REDUCED:
            message, room = values(dtype, 10), np.zeros(20, dtype)
            work = group.send(message, after, tag=3, async_op=True)
            received = group.recv(room, before, tag=3)
            work.wait()
            self.assertEqual((received.source, received.count), (before, 10))
            self.check(room[:10], values(dtype, 10, before))
        work = group.send(np.zeros(2), after, async_op=True)
        self.assertEqual(group.recv(np.zeros(2), c10d.ANY_SOURCE).source, before)
        work.wait()


if __name__ == "__main__":
    unittest.main()
