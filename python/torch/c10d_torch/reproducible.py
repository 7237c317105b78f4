# SPDX-License-Identifier: BSD-3-Clause
"""A communication hook of DistributedDataParallel with one result at every world size."""
import torch
import torch.distributed as dist

from c10d_torch._c10d_torch import is_native


class Reproducible:
    """The state of reproducible_hook for one model.

    A step has `micro_batches` backward passes on all ranks together, in the order of the ranks: of
    4, rank 1 of 2 has the last two. Raises ValueError unless every rank has the same number, which
    on several ranks is a power of two.
    """

    def __init__(self, micro_batches, group=None):
        self.group = group or dist.group.WORLD
        size = dist.get_world_size(self.group)
        self.micro_batches = micro_batches
        self.of_this_rank, left = divmod(micro_batches, size)
        if self.of_this_rank < 1 or left or (size > 1 and self.of_this_rank.bit_count() > 1):
            raise ValueError(f"{micro_batches} micro-batches on {size} ranks: each rank needs 1, "
                             f"2, 4, 8, ... of them, so that there are {size}, {2 * size}, "
                             f"{4 * size}, {8 * size}, ... in all")
        self._sums = {}  # of this rank, by parameter

    def reset(self):
        """Forgets the micro-batches of a step that was given up, on every rank."""
        self._sums.clear()

    def add(self, parameter, gradient):
        """Adds the gradient of a micro-batch. True: it was the last one of this rank."""
        added = self._sums.setdefault(id(parameter), _TreeSum())
        added.add(gradient)
        return added.count == self.of_this_rank

    def take(self, parameter):
        """The sum of the gradients of this rank."""
        return self._sums.pop(id(parameter)).end()


def reproducible_hook(state, bucket):
    """The mean of the gradients of all micro-batches, summed along one binary tree over them.

        model = DistributedDataParallel(net)
        model.register_comm_hook(c10d_torch.Reproducible(micro_batches=4), reproducible_hook)
        for batch in batches:
            optimizer.zero_grad()
            for part in parts_of_this_rank(batch):
                loss(model(part)).backward()
            optimizer.step()

    The loss is the mean over a micro-batch. Every step has all its micro-batches; state.reset()
    gives one up. There is no no_sync(), and no find_unused_parameters: the gradients are zero after
    all but the last backward pass of a step. f16 and bf16 are summed as f32. The weights have the
    same bits at every world size if the gradients of a micro-batch do not depend on the rank that
    computes them.
    """
    gradients = list(zip(bucket.parameters(), bucket.gradients()))
    is_last = all([state.add(parameter, gradient) for parameter, gradient in gradients])
    buffer = bucket.buffer()
    if not is_last:
        return _done(buffer.zero_())
    total = torch.cat([state.take(parameter).reshape(-1) for parameter, _ in gradients])
    return _sum_over_ranks(total, state.group).then(
        # + 0: a sum of no micro-batch but -0 is 0 at every world size.
        lambda done: buffer.copy_(done.value()[0].div_(state.micro_batches).add_(0.0)))


class _TreeSum:
    """Sums tensors along the tree of kernels/reduce.h, as they come."""

    def __init__(self):
        self.count = 0
        self._nodes = []  # sums of 2^k tensors each, in falling order

    def add(self, tensor):
        node = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
        self.count += 1
        for _ in range((self.count & -self.count).bit_length() - 1):  # trailing zeros
            node = self._nodes.pop().add_(node)
        self._nodes.append(node)

    def end(self):
        node = self._nodes.pop()
        while self._nodes:
            node = self._nodes.pop().add_(node)
        return node


def _sum_over_ranks(tensor, group):
    """A future of [tensor], summed over the ranks along the tree."""
    size = dist.get_world_size(group)
    backend = group._get_backend(tensor.device) if hasattr(group, "_get_backend") else group
    if size <= 2 or is_native(backend):  # two summands have one order
        return dist.all_reduce(tensor, group=group, async_op=True).get_future()
    slices = list(torch.nn.functional.pad(tensor, (0, -len(tensor) % size)).chunk(size))
    received = [torch.empty_like(part) for part in slices]
    dist.all_to_all(received, slices, group)
    total = _TreeSum()
    for part in received:
        total.add(part)
    dist.all_gather(slices, total.end(), group)
    return _done([torch.cat(slices)[:len(tensor)]])


def _done(value):
    future = torch.futures.Future()
    future.set_result(value)
    return future
