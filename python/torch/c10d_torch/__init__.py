# SPDX-License-Identifier: BSD-3-Clause
"""The backend "c10d" of torch.distributed.

    torch.distributed.init_process_group("c10d")

PyTorch finds it by its entry point; a version without entry points of backends needs
`import c10d_torch` first. docs/pytorch.md has the rest.
"""
import atexit
import multiprocessing.util
import os

import torch.distributed as dist

__all__ = ["Error", "Options", "Reproducible", "register", "reproducible_hook"]

# Before PyTorch 2 a process group itself is what a backend makes.
_base = getattr(dist, "DistBackendError", RuntimeError)


class Error(_base):
    """A failure of an op or a group.

    code is the name of a code of c10d/c/error.h ("peer_died"), reason what to do about it. rank,
    host, pid, group, op and sequence say whom and what it is about; None is not known.
    """

    code = reason = rank = host = pid = group = op = sequence = None


from c10d_torch._c10d_torch import Options, create, leave_all  # noqa: E402
from c10d_torch.reproducible import Reproducible, reproducible_hook  # noqa: E402


def _create(given, options):
    """Makes the group of one rank: what PyTorch calls."""
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"pg_options of c10d is a c10d_torch.Options, not {type(options)}")
    below = options.backend if options else os.environ.get("TORCH_C10D_BACKEND", "")
    timeout = options.timeout if options and options.timeout else given.timeout
    given.store.add("ranks", 1)  # a FileStore that has no file yet would wait for one in check()
    return create(given.store, given.group_rank, given.group_size, Options(below, timeout),
                  given.group_id)


_left_in = []  # processes


def _leave():
    if os.getpid() not in _left_in:
        _left_in.append(os.getpid())
        leave_all()


def _leave_at_the_end(*_):
    """Of a child of multiprocessing, which ends without what atexit knows."""
    multiprocessing.util.Finalize(None, _leave, exitpriority=-10)


def register():
    """Makes "c10d" a backend of torch.distributed, once. An import of this module does it."""
    if "C10D" in dist.Backend._plugins:
        return
    devices = {"devices": ["cpu"]} if hasattr(dist.Backend, "backend_capability") else {}
    dist.Backend.register_backend("c10d", _create, extended_api=True, **devices)
    # Groups that are left when the interpreter ends leave in good order.
    atexit.register(_leave)
    _leave_at_the_end()
    multiprocessing.util.register_after_fork(_leave, _leave_at_the_end)


register()
