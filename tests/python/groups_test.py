# SPDX-License-Identifier: BSD-3-Clause
"""Groups, stores, objects, and what a long run leaves behind. Every rank runs it."""
import datetime
import os
import pathlib
import resource
import tempfile
import unittest

import c10d
import numpy as np

group = c10d.init_process_group(timeout=120)
rank, size = group.rank, group.size


class Groups(unittest.TestCase):
    def test_facts(self):
        self.assertEqual((group.name, group.backend, group.timeout), ("world", "native", 120))
        self.assertIn("rank %d of %d" % (rank, size), repr(group))
        self.assertEqual([m.rank for m in group.members], list(range(size)))
        self.assertEqual(group.members[rank].pid, os.getpid())
        self.assertIsNone(group.failure)
        launch = c10d.detect_launch()
        self.assertEqual((launch.rank, launch.size, launch.launcher), (rank, size, "c10d"))
        self.assertIn("native", [b.name for b in c10d.list_backends() if b.available])
        group.timeout = datetime.timedelta(minutes=2)
        self.assertEqual(group.timeout, 120)

    def test_new_group_and_split(self):
        x = np.ones(1)
        with group.split(rank % 2, key=-rank) as part:
            self.assertEqual(part.rank, (size - 1 - rank) // 2)
            part.all_reduce(x)
            self.assertEqual(x, part.size)
        self.assertRaises(c10d.Destroyed, part.barrier)
        self.assertIsNone(group.split(None))
        self.assertEqual(group.split_by_host().size, size)
        order = list(reversed(range(size)))
        self.assertEqual(group.new_group(order, name="back").rank, size - 1 - rank)

    def test_groups_come_and_go(self):
        for _ in range(20):
            group.split(0).barrier()

    def test_an_exception_aborts_the_group(self):
        part = group.split(0)
        with self.assertRaises(KeyError if rank == 0 else c10d.Aborted):
            with part:
                if rank == 0:
                    raise KeyError("lost")
                part.barrier()
        group.barrier()

    def test_an_exception_that_is_no_utf8_aborts_the_group(self):
        class Mute(Exception):
            def __str__(self):
                raise KeyError

        for error, told in ((ValueError("bad \udc80"), r"ValueError: bad \\udc80"),
                            (Mute(), "Mute")):
            part = group.split(0)
            with self.assertRaises(type(error) if rank == 0 else c10d.Aborted) as caught:
                with part:
                    if rank == 0:
                        raise error
                    part.barrier()
            if rank != 0:
                self.assertRegex(str(caught.exception), told)
        with self.assertRaisesRegex(ValueError, "surrogate"):
            group.store.set("bad", "\udc80")

    def test_a_long_message_is_cut_between_characters(self):
        for text in ("\u00e9" * 9000, "x" + "\u00e9" * 9000):
            part = group.split(0)
            if rank == 0:
                part.abort(text)
            with self.assertRaises(c10d.Aborted) as caught:
                part.barrier()
            self.assertNotIn("\ufffd", str(caught.exception))
            self.assertIn("\u00e9" * 3000, str(caught.exception))

    def test_a_message_that_is_no_utf8(self):
        with self.assertRaisesRegex(c10d.Error, "no folder \ufffd"):
            c10d.file_store(b"/no folder \xff/keys", timeout=1).set("a", "")

    def test_abort(self):
        part = group.split(0)
        if rank == 0:
            part.abort("enough")
        self.assertRaisesRegex(c10d.Aborted, "enough", part.barrier)

    def test_init_with_a_store(self):
        store = c10d.prefix_store("again", group.store)
        with c10d.init_process_group(store=store, rank=rank, size=size, name="own") as own:
            own.barrier()
        with self.assertRaisesRegex(c10d.InvalidArgument, "rank"):
            c10d.init_process_group(store=store, name="none")
        with self.assertRaises(c10d.Unsupported):
            c10d.init_process_group("tin", store=store, rank=rank, size=size, name="tin")

    def test_stores(self):
        folder = tempfile.mkdtemp()
        server = c10d.tcp_store(server=True)
        for store in (c10d.hash_store(), c10d.file_store(pathlib.Path(folder, "keys"), 1), server,
                      c10d.tcp_store(port=server.port)):
            s = c10d.prefix_store("%d-%d" % (rank, id(store)), store)  # keys of its own
            s.set("a", bytearray(b"\0\1"))
            self.assertEqual((s.get("a"), s.try_get("b")), (b"\0\1", None))
            self.assertEqual((s.add("n", 2), s.add("n", 3), s.get("n")), (2, 5, b"5"))
            self.assertEqual(s.compare_set("a", "x", "y"), b"\0\1")
            self.assertEqual(s.compare_set("c", None, "y"), b"y")
            self.assertEqual((s.append("c", "z"), s.multi_get(["c", "n"])), (2, [b"yz", b"5"]))
            s.wait(["a", "c"])
            self.assertEqual((s.check(["a"]), s.check(["b"])), (True, False))
            s.push("q", "1")
            self.assertEqual((s.pop("q"), s.delete_key("a"), s.delete_key("a")),
                             (b"1", True, False))
            s.barrier("gate", 1)
            self.assertGreaterEqual(s.num_keys(), 2)
            with self.assertRaisesRegex(c10d.Timeout, "never"):
                s.get("never", timeout=0.06)
            self.assertRaises(c10d.StoreRefused, s.add, "c", 1)
            self.assertRaises(c10d.StoreLimit, s.set, "k" * 2000, "")
            self.assertRaisesRegex(TypeError, "bytes, a buffer, or a str", s.set, "a", 3)
        del s, store, server
        if os.path.exists(os.path.join(folder, "keys")):
            os.remove(os.path.join(folder, "keys"))
        os.rmdir(folder)

    def test_objects(self):
        thing = {"name": "resnet", "shape": [1, 2.5, None, True]}
        self.assertEqual(group.broadcast_object(thing if rank == 0 else None), thing)
        self.assertEqual(group.broadcast_object(b"\0\xff" if rank == size - 1 else None, size - 1),
                         b"\0\xff")
        self.assertEqual(group.all_gather_object("x" * rank), ["x" * r for r in range(size)])
        parts = [[r] for r in range(size)] if rank == 0 else None
        self.assertEqual(group.scatter_object(parts), [rank])

    def test_objects_that_need_pickle(self):
        with self.assertRaisesRegex(TypeError if rank == 0 else c10d.InvalidArgument,
                                    "JSON|rank 0 could not"):
            group.broadcast_object({1, 2} if rank == 0 else None)
        with self.assertRaisesRegex(TypeError if rank == 0 else c10d.InvalidArgument,
                                    "JSON|rank 0 could not"):
            group.all_gather_object({1, 2} if rank == 0 else 1)
        got = group.broadcast_object({1, 2} if rank == 0 else None, allow_pickle=True)
        self.assertEqual(got, {1, 2})
        self.assertEqual(group.broadcast_object((1, {2: "x"}), allow_pickle=True), (1, {2: "x"}))

    def test_a_pickle_that_was_not_asked_for_is_not_run(self):
        if rank == 0:
            self.assertEqual(group.broadcast_object({1, 2}, allow_pickle=True), {1, 2})
        else:
            with self.assertRaisesRegex(c10d.InvalidArgument, "would run its code"):
                group.broadcast_object()

    def test_objects_have_a_limit(self):
        for call in (lambda: group.broadcast_object("x" * 100, max_bytes=50),
                     lambda: group.all_gather_object("x" * 40, max_bytes=50),
                     lambda: group.scatter_object(["x" * 40] * size, max_bytes=50)):
            self.assertRaisesRegex(c10d.InvalidArgument, "max_bytes is 50", call)
        with self.assertRaisesRegex(c10d.InvalidArgument, "each of the|could not"):
            group.scatter_object([1] * (size + 1))

    def test_a_length_from_the_wire_allocates_nothing(self):
        if rank == 0:
            group.broadcast(np.array([2**62], "u8"), 0)  # as a broadcast_object() begins
        else:
            with self.assertRaisesRegex(c10d.InvalidArgument, "max_bytes"):
                group.broadcast_object()

    def test_many_ops_leak_nothing(self):
        x, ops = np.zeros(1), int(os.environ.get("C10D_TEST_OPS", 100_000))

        def run(count):
            for i in range(count):
                group.all_reduce(x)
                if i % 20 == 0:
                    group.all_reduce(x, async_op=True).wait()
                    try:
                        group.all_reduce(x, op="bor")
                    except c10d.Unsupported:
                        pass

        run(ops // 10)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(ops)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.assertLess(after - before, 2048, "KiB more")  # 20 bytes an op


if __name__ == "__main__":
    unittest.main()
