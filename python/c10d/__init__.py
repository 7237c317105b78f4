# SPDX-License-Identifier: BSD-3-Clause
"""Collective communication between processes.

    import c10d
    group = c10d.init_process_group()
    group.all_reduce(x)     # x: a NumPy array, a tensor of the CPU, any buffer

docs/python.md is the manual. _c10d.pyi says what each function does.
"""
import atexit as _atexit
import multiprocessing.util as _util
import os as _os

from . import _objects
from ._c10d import (ANY_SOURCE, BackendInfo, LaunchInfo, Member, ProcessGroup, Received, ReduceOp,
                    Store, TcpStore, Work, detect_launch, file_store, hash_store,
                    init_process_group, list_backends, prefix_store, tcp_store, version)
from ._c10d import _after_fork_in_child, _end
from ._errors import (Aborted, AddressInUse, BackendError, ConcurrentUse, Corrupt, Destroyed, Error,
                      ForkedChild, InvalidArgument, LibraryError, LinkLost, Mismatch, NetworkError,
                      NotAuthenticated, OutOfResources, PeerDied, PeerLeft, StoreError, StoreLimit,
                      StoreLost, StoreRefused, Timeout, Unreachable, Unsupported, VersionMismatch,
                      WrongJob)

__version__ = version.split(" ", 1)[0]
__all__ = ["ANY_SOURCE", "BackendInfo", "LaunchInfo", "Member", "ProcessGroup", "Received",
           "ReduceOp", "Store", "TcpStore", "Work", "detect_launch", "file_store", "hash_store",
           "init_process_group", "list_backends", "prefix_store", "tcp_store", "version", "Aborted",
           "AddressInUse", "BackendError", "ConcurrentUse", "Corrupt", "Destroyed", "Error",
           "ForkedChild", "InvalidArgument", "LibraryError", "LinkLost", "Mismatch", "NetworkError",
           "NotAuthenticated", "OutOfResources", "PeerDied", "PeerLeft", "StoreError", "StoreLimit",
           "StoreLost", "StoreRefused", "Timeout", "Unreachable", "Unsupported", "VersionMismatch",
           "WrongJob"]

for _method in (_objects.broadcast_object, _objects.all_gather_object, _objects.scatter_object):
    setattr(ProcessGroup, _method.__name__, _method)


_ended_in = []  # processes


def _leave():
    if _os.getpid() not in _ended_in:
        _ended_in.append(_os.getpid())
        _end()


def _leave_at_the_end(*_):
    """Of a child of multiprocessing, which ends without what atexit knows."""
    _util.Finalize(None, _leave, exitpriority=-10)


# Groups leave in good order while Python still runs, and no thread of the library enters it later.
_atexit.register(_leave)
_leave_at_the_end()
_util.register_after_fork(_leave, _leave_at_the_end)
_os.register_at_fork(after_in_child=_after_fork_in_child)
