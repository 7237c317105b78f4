# SPDX-License-Identifier: BSD-3-Clause
"""Which objects are buffers, and what is said of the others. Every rank runs it."""
import array
import unittest

import c10d
import numpy as np

group = c10d.init_process_group()
rank, size = group.rank, group.size


class OnlyDLPack:
    """As a tensor of PyTorch: no buffer protocol."""

    def __init__(self, owner, device=(1, 0)):
        self.owner, self.device = owner, device

    def __dlpack__(self, **versions):
        return self.owner.__dlpack__()

    def __dlpack_device__(self):
        return self.device


class Buffers(unittest.TestCase):
    def refused(self, kind, words, *arguments, **options):
        before = group.sequence
        with self.assertRaisesRegex(kind, words):
            group.all_reduce(*arguments, **options)
        self.assertEqual(group.sequence, before)

    def test_objects_of_the_standard_library(self):
        numbers = array.array("d", [1, 2])
        group.all_reduce(numbers)
        self.assertEqual(list(numbers), [size, 2 * size])
        data = bytearray(b"\1\2")
        group.all_reduce(data)
        self.assertEqual(data, bytes([size, 2 * size]))
        group.all_reduce(memoryview(data).cast("b"))
        output = bytearray(size)
        group.all_gather(output, bytes([rank]))  # an input may be read-only
        self.assertEqual(output, bytes(range(size)))

    def test_dlpack(self):
        for dtype in ("f8", "f4", "f2", "i8", "i1", "u2", "c8"):
            memory = np.ones((2, 3), dtype)
            group.all_reduce(OnlyDLPack(memory))
            np.testing.assert_array_equal(memory, np.full((2, 3), size, dtype))
        self.refused(ValueError, "output: it is not contiguous", OnlyDLPack(np.ones((2, 3)).T))
        self.refused(ValueError, "memory of GPU 1.*copy it", OnlyDLPack(np.ones(1), (2, 1)))

    def test_immutable_tensors_are_inputs_only(self):
        # Of JAX, which may not say so in DLPack.
        ArrayImpl = type("ArrayImpl", (OnlyDLPack,), {})
        self.refused(ValueError, "read-only", ArrayImpl(np.ones(2)))
        output = np.zeros(2 * size)
        group.all_gather(output, ArrayImpl(np.ones(2)))
        self.assertEqual(output.sum(), 2 * size)

    def test_ml_dtypes(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        x = np.ones(5, ml_dtypes.bfloat16)
        group.all_reduce(x)
        np.testing.assert_array_equal(x, np.full(5, size, ml_dtypes.bfloat16))
        for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            output = np.zeros(size, kind)
            group.all_gather(output, np.full(1, rank, kind))
            np.testing.assert_array_equal(output.astype("f4"), np.arange(size, dtype="f4"))
        self.refused(TypeError, "does not give its memory", np.ones(1, ml_dtypes.float8_e3m4))
        read_only = np.ones(5, ml_dtypes.bfloat16)
        read_only.flags.writeable = False
        self.refused(ValueError, "read-only", read_only)

    def test_refused(self):
        x = np.ones(4)
        x.flags.writeable = False
        self.refused(ValueError, "all_reduce: output: it is read-only.*x.copy", x)
        self.refused(ValueError, "output: it is read-only", b"abc")
        self.refused(ValueError, "output: it is not contiguous", np.ones((4, 4))[:, 1])
        self.refused(ValueError, "output: it is not contiguous", np.ones((4, 3)).T)
        self.refused(ValueError, "input: it is not contiguous.*ascontiguousarray", np.ones(2),
                     np.ones(4)[::2])
        self.refused(TypeError, "output: a list is no buffer", [1.0])
        self.refused(TypeError, "format '>d'.*astype", np.ones(2, ">f8"))
        self.refused(TypeError, "format '3s'", np.ones(2, "S3"))
        self.refused(TypeError, "format 'O'", np.ones(2, object))
        self.refused(TypeError, "does not give its memory", np.ones(2, "M8[s]"))
        self.refused(c10d.InvalidArgument, "2 elements.* 3", np.ones(2), np.ones(3))
        self.refused(c10d.InvalidArgument, "dtype|f64", np.ones(2), np.ones(2, "f4"))

    def test_other_arguments(self):
        x = np.ones(2)
        self.refused(c10d.InvalidArgument, "unknown reduce op 'most'; known: sum", x, op="most")
        self.refused(TypeError, "ReduceOp or a name", x, op=3)
        self.refused(c10d.Unsupported, "bitwise", x, op="bor")
        self.refused(ValueError, "positive", x, timeout=-1)
        self.refused(ValueError, "timeout is not a number", x, timeout=float("nan"))
        self.refused(TypeError, "number of seconds", x, timeout="1")
        with self.assertRaisesRegex(ValueError, "counts holds -1"):
            group.all_gather_v(x, x, [-1] * size)
        with self.assertRaisesRegex(c10d.InvalidArgument, "root"):
            group.broadcast(x, size)

    def test_zz_mismatch_names_both_calls(self):  # the last, since it breaks the group
        with self.assertRaisesRegex(c10d.Mismatch, r"all_reduce\(sum.*all_reduce\(sum") as caught:
            group.all_reduce(np.ones(3 if rank == 0 else 4))
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.group, error.op),
                         ("mismatch", "mismatch", "world", "all_reduce"))
        self.assertEqual(group.failure.code, "mismatch")
        with self.assertRaises(c10d.Mismatch):
            group.barrier()


if __name__ == "__main__":
    unittest.main()
