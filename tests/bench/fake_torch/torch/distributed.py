# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that are all alike: a reduction by max changes nothing."""
import os
import types

from torch import Clock, device

ReduceOp = types.SimpleNamespace(MAX="max")


def init_process_group(backend):
    assert backend == "nccl"
    assert Clock.device == device("cuda", get_rank())


def get_rank():
    return int(os.environ["RANK"])


def all_reduce(tensor, op="sum"):
    assert tensor.device == Clock.device
    assert op == ("max" if tensor.tolist() else "sum")
    Clock.milliseconds += 1000 + tensor.bytes / 1024 * 1e-3


def destroy_process_group():
    pass
