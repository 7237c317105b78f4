# SPDX-License-Identifier: BSD-3-Clause
"""As much of PyTorch as bench/peers/torch_loop.py calls with --device cuda, on two GPUs that do
nothing: an all_reduce takes a second on them, and a microsecond more for each KiB.

FAKE_TORCH=absent: there is no PyTorch. FAKE_TORCH=no-gpu: there is no GPU.
"""
import os
import types

if os.environ.get("FAKE_TORCH") == "absent":
    raise ImportError("No module named 'torch'")

__version__ = "0.1"
float64 = "float64"
GPUS = 0 if os.environ.get("FAKE_TORCH") == "no-gpu" else 2


class Clock:
    milliseconds = 0.0
    device = None  # of this rank


class Event:
    def __init__(self, enable_timing):
        assert enable_timing and Clock.device
        self.at = None
        self.is_over = False

    def record(self):
        self.at = Clock.milliseconds
        self.is_over = False

    def synchronize(self):
        self.is_over = True

    def elapsed_time(self, end):
        assert end.is_over, "nobody has waited for the event"
        return end.at - self.at


class Tensor:
    def __init__(self, size, where, values=None):
        self.bytes = size
        self.device = where
        self.tolist = lambda: values


def device(kind, index):
    return f"{kind}:{index}"


def set_device(index):
    Clock.device = device("cuda", index)


def zeros(count, device):
    return Tensor(4 * count, device)


def tensor(values, dtype, device):
    assert dtype == float64
    return Tensor(8 * len(values), device, values)


def set_num_threads(count):
    assert count == 1


cuda = types.SimpleNamespace(
    Event=Event, device_count=lambda: GPUS, is_available=lambda: GPUS > 0, set_device=set_device,
    nccl=types.SimpleNamespace(version=lambda: (2, 99, 1)))
