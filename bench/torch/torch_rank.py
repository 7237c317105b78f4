# SPDX-License-Identifier: BSD-3-Clause
"""The columns torch:gloo and torch:c10d of c10d-bench: torch.distributed as a script calls it.

c10d-bench runs this module in the process of each rank, and times the functions that make_op()
returns. All arguments and results are JSON. PyTorch reduces and broadcasts in place: where the
case is out of place, such an op copies its input first.
"""
import ctypes
import datetime
import gc
import json
import os
import platform

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16,
          "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
          "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool, "c64": torch.complex64,
          "c128": torch.complex128}
REDUCTIONS = {"sum": "SUM", "avg": "AVG", "prod": "PRODUCT", "min": "MIN", "max": "MAX",
              "band": "BAND", "bor": "BOR", "bxor": "BXOR"}
REDUCING = ("all_reduce", "reduce", "reduce_scatter")

columns = []
store = None  # of this rank; it stays, for a FileStore wants its file when it ends


def memory(place, dtype):
    """The tensor at [address, count]."""
    address, count = place
    if count == 0:
        return torch.empty(0, dtype=dtype)
    size = count * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


def reduction(name):
    """None: PyTorch has no such."""
    return getattr(dist.ReduceOp, REDUCTIONS.get(name, ""), None)


def after_copy(to, source, function):
    """The function, after a copy where the two are not the same."""
    if to.data_ptr() == source.data_ptr():
        return function

    def run():
        to.copy_(source)
        function()
    return run


class Column:
    """A group of torch.distributed, and how each op is called on it."""

    def __init__(self, backend, rank, size, seconds):
        self.rank, self.size = rank, size
        timeout = datetime.timedelta(seconds=seconds)
        if dist.is_initialized():
            self.group = dist.new_group(backend=backend, timeout=timeout)
        else:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size,
                                    timeout=timeout)
            self.group = dist.group.WORLD
        self.gathers_into_one = not self.try_out("all_gather_into_tensor", torch.float32, None)

    def try_out(self, op, dtype, reduce):
        """Why this PyTorch cannot do that, or "": all ranks make the call with an element each."""
        if op in ("send", "recv"):
            return ""
        def elements(of_all):
            return torch.ones(self.size if op in of_all else 1, dtype=dtype)
        try:
            self.function(op, elements(("reduce_scatter", "all_to_all", "scatter")),
                          elements(("all_gather", "all_gather_into_tensor", "all_to_all",
                                    "gather")), reduce, 0, 0, False)()
        except Exception as error:  # whatever PyTorch says
            said = str(error).splitlines() or [type(error).__name__]
            return f"{op} of {dtype}: {said[0]}"
        return ""

    def why_unsupported(self, op, dtype, reduce):
        """Collective. "" if it works."""
        if op in ("scan", "exscan"):
            return f"PyTorch has no {op}"
        if op.endswith("_v"):
            return "with PyTorch, ops with equal shards are measured"
        if dtype not in DTYPES:
            return f"{dtype} is not measured with PyTorch"
        if op in REDUCING and reduction(reduce) is None:
            return f"PyTorch has no {reduce}"
        return self.try_out(op, DTYPES[dtype], reduction(reduce))

    def function(self, op, source, to, reduce, peer, tag, in_place):
        """The call of a script. `peer`: of a message, or the root."""
        group, is_root = self.group, self.rank == peer
        if op == "all_reduce":
            return after_copy(to, source, lambda: dist.all_reduce(to, reduce, group))
        if op == "reduce":  # leaves something in the tensor of every rank
            target = to if is_root else source if in_place else torch.empty_like(source)
            return after_copy(target, source, lambda: dist.reduce(target, peer, reduce, group))
        if op == "broadcast":
            return after_copy(to, source if is_root else to,
                              lambda: dist.broadcast(to, peer, group))
        if op == "all_gather_into_tensor" or op == "all_gather" and self.gathers_into_one:
            return lambda: dist.all_gather_into_tensor(to, source, group)
        if op == "all_gather":
            parts = list(to.chunk(self.size))
            return lambda: dist.all_gather(parts, source, group)
        if op == "reduce_scatter":
            return lambda: dist.reduce_scatter_tensor(to, source, reduce, group)
        if op == "all_to_all":
            return lambda: dist.all_to_all_single(to, source, group=group)
        if op == "gather":
            parts = list(to.chunk(self.size)) if is_root else None
            return lambda: dist.gather(source, parts, peer, group)
        if op == "scatter":
            parts = list(source.chunk(self.size)) if is_root else None
            return lambda: dist.scatter(to, parts, peer, group)
        if op == "barrier":
            return lambda: dist.barrier(group)
        if op == "send":
            return lambda: dist.send(source, peer, group, tag)
        if op == "recv":
            return lambda: dist.recv(to, peer, group, tag)
        raise ValueError(op)


def listen(text):
    """Rank 0 of several hosts: where a store for all ranks listens."""
    global store
    host = json.loads(text)["host"]
    store = dist.TCPStore(host, 0, None, True, wait_for_workers=False)
    return json.dumps([host, store.port])


def open_column(text):
    """Collective. The number of the column, and what it is."""
    global store
    asked = json.loads(text)
    torch.set_num_threads(1)
    if asked["backend"] == "c10d":
        import c10d_torch  # noqa: F401  before PyTorch 2.15 nothing else finds it
    if len(asked["store"]) == 1:  # all ranks are on one host: nothing listens beyond it
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = store or dist.FileStore(asked["store"][0], asked["size"])
    elif store is None:
        store = dist.TCPStore(*asked["store"], None, False,
                              datetime.timedelta(seconds=asked["seconds"]))
    columns.append(Column(asked["backend"], asked["rank"], asked["size"], asked["seconds"]))
    return json.dumps({
        "column": len(columns) - 1,
        "description": f"PyTorch {torch.__version__}, {asked['backend']}, called by Python "
                       f"{platform.python_version()}"})


def why_unsupported(text):
    """Collective: see Column."""
    asked = json.loads(text)
    return json.dumps(columns[asked["column"]].why_unsupported(asked["op"], asked["dtype"],
                                                               asked["reduce"]))


def make_op(text):
    """A function without arguments that calls the op on memory of the caller."""
    asked = json.loads(text)
    dtype = DTYPES[asked["dtype"]]
    return columns[asked["column"]].function(
        asked["op"], memory(asked["input"], dtype), memory(asked["output"], dtype),
        reduction(asked["reduce"]), asked["peer"], asked["tag"], asked["in_place"])


def close_column(text):
    """The last one ends torch.distributed."""
    columns[json.loads(text)["column"]] = None
    if not any(columns):
        dist.destroy_process_group()
        gc.collect()  # what still holds the group
    return "null"
