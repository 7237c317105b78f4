# SPDX-License-Identifier: BSD-3-Clause
"""reproducible_hook: the weights at every world size: reproducible_test.py C10D-RUN [gloo]."""
import hashlib
import subprocess
import sys
import unittest

import torch

MICRO_BATCHES, STEPS = 4, 3
DTYPES = (torch.float32, torch.bfloat16)


def model_of(dtype):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 40), torch.nn.Tanh(),
                               torch.nn.Linear(40, 10)).to(dtype)


def part(step, index, dtype):
    """A micro-batch; their values grow with the index, so that the order of a sum shows."""
    random = torch.Generator().manual_seed(100 * step + index)
    return (torch.randn(8, 16, generator=random) * 7 ** index).to(dtype)


def loss(model, step, index, dtype):
    return model(part(step, index, dtype)).square().mean()


def digest(model):
    weights = torch.cat([p.detach().float().reshape(-1) for p in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]


def run_rank():
    import torch.distributed as dist

    import c10d_torch
    dist.init_process_group("c10d")
    mine = MICRO_BATCHES // dist.get_world_size()
    for dtype in DTYPES:
        model = torch.nn.parallel.DistributedDataParallel(model_of(dtype), bucket_cap_mb=0.001)
        model.register_comm_hook(c10d_torch.Reproducible(MICRO_BATCHES),
                                 c10d_torch.reproducible_hook)
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        for step in range(STEPS):
            optimizer.zero_grad()
            for i in range(mine):
                loss(model, step, dist.get_rank() * mine + i, dtype).backward()
            optimizer.step()
        print("weights", digest(model), flush=True)


def tree(values):
    if len(values) == 1:
        return values[0]
    left = 1 << (len(values) - 1).bit_length() - 1
    return tree(values[:left]) + tree(values[left:])


def in_a_row(values):
    return sum(values[1:], values[0])


def plain(dtype, add):
    """The digest without torch.distributed, with the gradients of the micro-batches added so."""
    model = model_of(dtype)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    parameters = list(model.parameters())
    for step in range(STEPS):
        every = [torch.autograd.grad(loss(model, step, i, dtype), parameters)
                 for i in range(MICRO_BATCHES)]
        for parameter, gradients in zip(parameters, zip(*every)):
            parameter.grad = (add([g.float() for g in gradients]) / MICRO_BATCHES).to(dtype)
        optimizer.step()
    return digest(model)


class Reproducible(unittest.TestCase):
    def weights(self, ranks, below="native"):
        ended = subprocess.run(
            [RUN, "-n", str(ranks), "--timeout", "100", "--no-prefix", "-x",
             f"TORCH_C10D_BACKEND={below}", sys.executable, "-B", __file__, "rank"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=150)
        self.assertEqual(ended.returncode, 0, ended.stdout)
        lines = [line.split()[1] for line in ended.stdout.splitlines() if line[:8] == "weights "]
        self.assertEqual(len(lines), 2 * ranks, ended.stdout)
        return set(lines)

    def test_the_weights_are_those_of_a_plain_loop_at_every_world_size(self):
        expected = {plain(dtype, tree) for dtype in DTYPES}
        # The order of the sum shows in f32; bf16 rounds most of it away.
        self.assertNotIn(plain(torch.float32, in_a_row), expected)
        for ranks in (1, 2, 4):
            self.assertEqual(self.weights(ranks), expected, f"{ranks} ranks")

    @unittest.skipUnless("gloo" in sys.argv, "gloo is not built")
    def test_over_gloo(self):
        self.assertEqual(self.weights(4, "gloo"), {plain(dtype, tree) for dtype in DTYPES})


torch.set_num_threads(1)
if sys.argv[1:] == ["rank"]:
    run_rank()
else:
    RUN = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
