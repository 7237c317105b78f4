# SPDX-License-Identifier: BSD-3-Clause
"""Every op of torch.distributed over c10d, against PyTorch's own arithmetic. Every rank runs it."""
import datetime
import os
import unittest

import torch
import torch.distributed as dist

try:
    dist.init_process_group("c10d", timeout=datetime.timedelta(seconds=60))
except (AssertionError, ValueError):  # before entry points of backends
    import c10d_torch  # noqa: F401

    dist.init_process_group("c10d", timeout=datetime.timedelta(seconds=60))
import c10d_torch  # noqa: E402, F811

rank, size = dist.get_rank(), dist.get_world_size()
BELOW = os.environ["TORCH_C10D_BACKEND"]


def of(r, *shape, dtype=torch.float32):
    """The tensor of rank r."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 5 + r + 1).reshape(shape).to(dtype)


def all_of(*shape, **options):
    return [of(r, *shape, **options) for r in range(size)]


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.complex64, torch.complex128]


class Ops(unittest.TestCase):
    def same(self, got, expected):
        self.assertTrue(torch.equal(got, expected), f"{got} instead of {expected}")

    def test_all_reduce(self):
        for dtype in DTYPES:
            x = of(rank, 3, 4, dtype=dtype)
            dist.all_reduce(x)
            self.same(x, sum(all_of(3, 4, dtype=dtype)))
        for op, fold in ((dist.ReduceOp.MAX, torch.maximum), (dist.ReduceOp.MIN, torch.minimum),
                         (dist.ReduceOp.PRODUCT, torch.mul)):
            x, expected = of(rank, 7), of(0, 7)
            dist.all_reduce(x, op)
            for other in all_of(7)[1:]:
                expected = fold(expected, other)
            self.same(x, expected)
        x = torch.tensor([rank == 0, True, False])
        dist.all_reduce(x, dist.ReduceOp.MAX)
        self.same(x, torch.tensor([True, True, False]))
        x = torch.tensor([1 << rank, 3])
        dist.all_reduce(x, dist.ReduceOp.BOR)
        self.same(x, torch.tensor([(1 << size) - 1, 3]))

    def test_the_same_bits_on_all_ranks_and_every_time(self):
        for count in (2, 1000, 300_000):  # the order of the sum decides the last bits
            x = torch.randn(count, generator=torch.Generator().manual_seed(rank)) * 10 ** rank
            first, again = x.clone(), x.clone()
            dist.all_reduce(first)
            dist.all_reduce(again)
            self.same(again, first)
            everywhere = [torch.empty(count) for _ in range(size)]
            dist.all_gather(everywhere, first)
            for other in everywhere:
                self.same(other, first)

    def test_tensors_that_are_not_contiguous(self):
        x = of(rank, 4, 3).t()
        dist.all_reduce(x)
        self.same(x, sum(all_of(4, 3)).t())
        x = torch.zeros(6)[::2]
        dist.broadcast(x if rank else x.copy_(of(0, 3)), 0)
        self.same(x, of(0, 3))
        outputs = [torch.zeros(3, 2).t() for _ in range(size)]
        dist.all_gather(outputs, of(rank, 3, 2).t())
        for r in range(size):
            self.same(outputs[r], of(r, 3, 2).t())

    def test_sparse(self):
        x = torch.sparse_coo_tensor([[rank, size]], [[1., 2.], [3., 4.]], (size + 1, 2))
        dist.all_reduce(x)
        expected = torch.tensor([[1., 2.]] * size + [[3. * size, 4. * size]])
        self.same(x.to_dense(), expected)
        count = min(rank, 1)  # rank 0 has none
        x = torch.sparse_coo_tensor(torch.zeros(1, count), torch.ones(count), (3,))
        dist.all_reduce(x)
        self.same(x.to_dense(), torch.tensor([size - 1., 0, 0]))

    def test_rooted(self):
        root = size - 1
        for dtype in (*DTYPES, torch.bool):
            x = of(rank, 5, dtype=dtype)
            dist.broadcast(x, root)
            self.same(x, of(root, 5, dtype=dtype))
        x = of(rank, 5)
        dist.reduce(x, root)
        self.same(x, sum(all_of(5)) if rank == root else of(rank, 5))
        outputs = [torch.empty(5) for _ in range(size)] if rank == root else None
        dist.gather(of(rank, 5), outputs, root)
        for r in range(size if rank == root else 0):
            self.same(outputs[r], of(r, 5))
        x = torch.empty(5)
        dist.scatter(x, all_of(5) if rank == root else None, root)
        self.same(x, of(rank, 5))

    def test_all_gather_and_reduce_scatter(self):
        flat = torch.empty(size * 3)
        gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
        gather(flat, of(rank, 3))
        self.same(flat, torch.cat(all_of(3)))
        uneven = [torch.empty(r + 1) for r in range(size)]
        dist.all_gather(uneven, of(rank, rank + 1))
        for r in range(size):
            self.same(uneven[r], of(r, r + 1))
        x = torch.empty(3)
        scatter = getattr(dist, "reduce_scatter_tensor", None) or dist._reduce_scatter_base
        scatter(x, torch.cat(all_of(3)) * (rank + 1))
        self.same(x, of(rank, 3) * sum(range(1, size + 1)))
        x = torch.empty(rank + 1)
        dist.reduce_scatter(x, [of(r, r + 1) for r in range(size)])
        self.same(x, of(rank, rank + 1) * size)

    def test_all_to_all(self):
        x = torch.empty(size, 2)
        dist.all_to_all_single(x, of(rank, size, 2))
        self.same(x, torch.stack([of(r, size, 2)[rank] for r in range(size)]))
        to = [r + 1 for r in range(size)]
        x = torch.empty(size * (rank + 1), 2)
        dist.all_to_all_single(x, of(rank, sum(to), 2), [rank + 1] * size, to)
        parts = [of(r, sum(to), 2).split(to)[rank] for r in range(size)]
        self.same(x, torch.cat(parts))
        outputs = [torch.empty(rank + 1, 2) for _ in range(size)]
        dist.all_to_all(outputs, list(of(rank, sum(to), 2).split(to)))
        for r in range(size):
            self.same(outputs[r], parts[r])

    def test_messages(self):
        after, before = (rank + 1) % size, (rank - 1) % size
        sends = [dist.isend(of(rank, n), after, tag=n) for n in (3, 2)]
        for n in (2, 3):
            x = torch.empty(n)
            dist.recv(x, before, tag=n)
            self.same(x, of(before, n))
        for work in sends:
            work.wait()
        if rank == 0:
            seen = set()
            for _ in range(size - 1):
                x = torch.empty(4)
                source = dist.recv(x)
                self.same(x, of(source, 4))
                seen.add(source)
            self.assertEqual(seen, set(range(1, size)))
        else:
            dist.send(of(rank, 4), 0)
        dist.barrier()  # a recv from any source would take a message of what follows
        x = torch.empty(3, 2).t()
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank, 2, 3), after),
                                        dist.P2POp(dist.irecv, x, before)])
        for work in works:
            work.wait()
        self.same(x, of(before, 2, 3))

    def test_coalesced(self):
        xs = [of(rank, 3), of(rank, 2, 2).t()]
        dist.all_reduce_coalesced(xs)
        self.same(xs[0], sum(all_of(3)))
        self.same(xs[1], sum(all_of(2, 2)).t())
        outputs = [[torch.empty(3), torch.empty(2)] for _ in range(size)]
        dist.all_gather_coalesced(outputs, [of(rank, 3), of(rank, 2)])
        for r in range(size):
            self.same(outputs[r][0], of(r, 3))
            self.same(outputs[r][1], of(r, 2))

    @unittest.skipIf(torch.__version__.startswith("1."), "PyTorch 1 coalesces lists only")
    def test_coalesced_ops_with_counts(self):
        def splits(of_rank):
            return [of_rank + r + 1 for r in range(size)]

        count = sum(splits(rank))
        outputs = [torch.empty(count) for _ in range(4)]
        lists = [[torch.empty(n) for n in splits(rank)] for _ in range(4)]
        sent = torch.cat([torch.full((n,), 10. * rank + r) for r, n in enumerate(splits(rank))])
        with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
            for output, chunks in zip(outputs, lists):
                dist.all_to_all_single(output, sent, splits(rank), splits(rank), async_op=True)
                dist.all_to_all(chunks, list(sent.split(splits(rank))), async_op=True)
        came = [torch.full((n,), 10. * r + rank) for r, n in enumerate(splits(rank))]
        for output, chunks in zip(outputs, lists):
            self.same(output, torch.cat(came))
            for chunk, expected in zip(chunks, came):
                self.same(chunk, expected)
        # One that c10d refuses ends the coalescing: none of its ops has started.
        with self.assertRaisesRegex(Exception, "avg needs a floating point dtype"):
            group = dist.distributed_c10d._get_default_group()
            group._start_coalescing(torch.device("cpu"))
            dist.all_reduce(torch.ones(3), async_op=True)
            dist.all_reduce(torch.ones(3, dtype=torch.int32), op=dist.ReduceOp.AVG, async_op=True)
        # So does the begin of another one.
        group._start_coalescing(torch.device("cpu"))
        dist.all_reduce(torch.ones(3), async_op=True)
        group._start_coalescing(torch.device("cpu"))
        group._end_coalescing(torch.device("cpu")).wait()
        x = of(rank, 3)
        dist.all_reduce(x)
        self.same(x, sum(all_of(3)))

    def test_work(self):
        x = of(rank, 4, 3).t()
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future().then(lambda done: done.value()[0] + 1)
        self.same(future.wait(), sum(all_of(4, 3)).t() + 1)
        work.wait()
        self.assertTrue(work.is_completed() and work.is_success())
        self.same(x, sum(all_of(4, 3)).t())
        # What hangs on a future may wait for another op.
        first = dist.all_reduce(of(rank, 2), async_op=True).get_future()
        second = first.then(lambda done: dist.all_reduce(done.value()[0], async_op=True)
                            .get_future().wait()[0])
        self.same(second.wait(), sum(all_of(2)) * size)
        # A dropped Work: its op runs on with its buffers, and copies still happen.
        x = of(rank, 300, 100).t()
        dist.all_reduce(x, async_op=True)
        dist.barrier()
        done = dist.all_reduce(torch.ones(1), async_op=True)
        done.wait()
        for _ in range(4):
            works = [dist.all_reduce(of(rank, 1000), async_op=True) for _ in range(20)]
        for work in works:
            work.wait()

    def test_groups_and_objects(self):
        group = dist.new_group([0, size - 1])
        if rank in (0, size - 1):
            x = of(rank, 3)
            dist.all_reduce(x, group=group)
            self.same(x, of(0, 3) + of(size - 1, 3))
        group = dist.new_group(pg_options=c10d_torch.Options(backend="native"))
        x = of(rank, 3)
        dist.all_reduce(x, group=group)
        self.same(x, sum(all_of(3)))
        with self.assertRaisesRegex(NotImplementedError, "carrier"):
            dist.new_group(pg_options=c10d_torch.Options(backend="carrier"))
        objects = [None] * size
        dist.all_gather_object(objects, {"rank": rank})
        self.assertEqual([o["rank"] for o in objects], list(range(size)))
        dist.barrier()

    def test_ddp(self):
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model(of(rank, 5, 3)).sum().backward()
        gradient = model.module.weight.grad
        expected = sum(x.sum(0) for x in all_of(5, 3)) / size
        self.assertTrue(torch.allclose(gradient, expected.expand(2, 3)))
        everywhere = [torch.empty(2, 3) for _ in range(size)]
        dist.all_gather(everywhere, gradient)
        for other in everywhere:
            self.same(other, gradient)

    def test_refusals(self):
        self.assertEqual(dist.get_backend().lower(), "c10d")
        with self.assertRaisesRegex(ValueError, "7 elements, and %d are needed" % (3 * size)):
            gather = getattr(dist, "all_gather_into_tensor", None) or dist._all_gather_base
            gather(torch.empty(7), torch.empty(3))
        with self.assertRaisesRegex(ValueError, "the output is of Int, the input of Float"):
            gather(torch.empty(size, dtype=torch.int32), torch.empty(1))
        if torch.__version__.startswith("1."):  # a newer one drops such an op before it comes to us
            with self.assertRaisesRegex((NotImplementedError, RuntimeError), "(?i)meta"):
                dist.all_reduce(torch.ones(2, device="meta"))  # which is on every machine
        with self.assertRaisesRegex((NotImplementedError, RuntimeError), "(?i)sparse"):
            dist.broadcast(torch.eye(2).to_sparse_csr(), 0)
        group = dist.group.WORLD
        backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else 0
        for name, arguments, why in (("get_reconfigure_handle", (), "cannot join"),
                                     ("new_window", (), "one-sided"),
                                     ("register_abort_hook", (1, print), "before an abort")):
            if hasattr(backend, name):  # of a new PyTorch
                with self.assertRaisesRegex(NotImplementedError, why):
                    getattr(backend, name)(*arguments)
        x = torch.ones(2)  # the group is intact
        dist.all_reduce(x)
        self.same(x, torch.full((2,), float(size)))

    def test_a_mismatch_names_both_calls(self):
        group = dist.new_group()
        with self.assertRaises(c10d_torch.Error) as caught:
            dist.all_reduce(torch.zeros(2 if rank == 0 else 3), group=group)
        self.assertIn("f32 x 2", str(caught.exception))
        self.assertIn("f32 x 3", str(caught.exception))
        self.assertEqual((caught.exception.code, caught.exception.op), ("mismatch", "all_reduce"))
        self.assertIsNotNone(caught.exception.rank)
        with self.assertRaises(c10d_torch.Error):  # it stays broken
            dist.barrier(group=group)


unittest.main()
