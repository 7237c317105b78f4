# SPDX-License-Identifier: BSD-3-Clause
"""The extension module. All of it is in the package c10d.

n is the size of the group, and k any number of elements. A buffer is an object with the buffer
protocol or DLPack: a NumPy array, a tensor of the CPU, an array.array, a bytearray, a memoryview.
It is one block of memory in C order. Its shape does not matter, only its number of elements. A
buffer of n k elements is n shards of k elements. An op writes its output, and takes it as it is,
without a copy.

Every op takes `timeout`, in seconds or as a timedelta, instead of the timeout of the group. With
async_op=True it returns a Work at once; its buffers must not be touched until the Work is done.

TypeError or ValueError: this rank's own buffers or arguments are wrong. InvalidArgument, a
ValueError: so are its counts or a root. Unsupported: this backend cannot do it. None of them was
sent, and the group stays intact. What else an op raises breaks the group: Mismatch (ranks made
different calls), PeerDied, PeerLeft, Aborted, Timeout and other subclasses of c10d.Error.
"""
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, overload

from ._errors import Error

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

# typing has no name for the buffer protocol before Python 3.12.
_Buffer = Any
_Value = bytes | str | _Buffer
_Path = str | bytes | PathLike[str] | PathLike[bytes]
_Seconds = float | timedelta | None
_Op = ReduceOp | str | None
_Self = TypeVar("_Self")

ANY_SOURCE: int
"""Peer of a recv that takes a message from any rank."""
version: str
"""Version of the library, with compiler and build type."""

class ReduceOp:
    """How the elements of the ranks are combined. An op also takes the name, such as "max"."""

    sum: ReduceOp
    SUM: ReduceOp
    avg: ReduceOp
    AVG: ReduceOp
    prod: ReduceOp
    PROD: ReduceOp
    min: ReduceOp
    MIN: ReduceOp
    max: ReduceOp
    MAX: ReduceOp
    band: ReduceOp
    BAND: ReduceOp
    bor: ReduceOp
    BOR: ReduceOp
    bxor: ReduceOp
    BXOR: ReduceOp
    @staticmethod
    def premul(factor: float) -> ReduceOp:
        """Every input times `factor`, then the sum."""
    @property
    def name(self) -> str: ...
    @property
    def factor(self) -> float: ...

class Received:
    """What a recv got: the rank that sent the message, and its number of elements."""

    @property
    def source(self) -> int: ...
    @property
    def count(self) -> int: ...

class Member:
    """One rank of a group."""

    @property
    def rank(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def same_host(self) -> bool: ...

class LaunchInfo:
    """Rank and size of this process, as its launcher set them in the environment."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_size(self) -> int: ...
    @property
    def launcher(self) -> str: ...
    @property
    def evidence(self) -> list[str]: ...

class BackendInfo:
    """What is known of one backend without a group; `reason` says why it is not available."""

    @property
    def name(self) -> str: ...
    @property
    def available(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def path(self) -> str: ...

class Work(Awaitable[Received | None]):
    """The handle of an async op. It keeps the buffers of the op until that is done.

    If it is dropped before, the op runs on, and keeps them. `await work` waits in asyncio.
    """

    def wait(self, timeout: _Seconds = None) -> None:
        """Waits until the op is done. Raises what it failed with, at every call.

        With a timeout, Timeout is raised when the op still runs then; it runs on, and the group
        stays intact. Ctrl-C aborts the group.
        """
    def done(self) -> bool:
        """Whether the op has ended, well or not. Does not wait."""
    @property
    def state(self) -> Literal["running", "ok", "failed", "cancelled", "timed out"]: ...
    def exception(self) -> Error | None:
        """What the op failed with; None while it runs and when it is ok."""
    @property
    def received(self) -> Received | None:
        """What a recv got; None until then, and for other ops."""
    def on_done(self, callback: Callable[[Error | None], object]) -> None:
        """Calls callback(exception) once, in a thread of the library, or at once when it is done."""
    def __await__(self) -> Generator[Any, None, Received | None]: ...

class Store:
    """A key-value store that brings ranks together. A value is bytes or a buffer; a str goes as UTF-8.

    A call that waits for a key does so until `timeout`, by default that of the store. Raises
    StoreLost, StoreLimit, StoreRefused and Timeout.
    """

    def set(self, key: str, value: _Value, timeout: _Seconds = None) -> None: ...
    def get(self, key: str, timeout: _Seconds = None) -> bytes:
        """Waits until the key exists."""
    def try_get(self, key: str, timeout: _Seconds = None) -> bytes | None:
        """None when the key does not exist."""
    def add(self, key: str, amount: int, timeout: _Seconds = None) -> int:
        """Adds to the number at the key, which counts as 0 at first. Returns the sum."""
    def compare_set(self, key: str, expected: _Value | None, desired: _Value,
                    timeout: _Seconds = None) -> bytes | None:
        """Sets the value if it is `expected`; None: if there is none. Returns what is stored now."""
    def append(self, key: str, value: _Value, timeout: _Seconds = None) -> int: ...
    def delete_key(self, key: str, timeout: _Seconds = None) -> bool: ...
    def wait(self, keys: Sequence[str], timeout: _Seconds = None) -> None: ...
    def check(self, keys: Sequence[str], timeout: _Seconds = None) -> bool: ...
    def multi_get(self, keys: Sequence[str], timeout: _Seconds = None) -> list[bytes]: ...
    def num_keys(self, timeout: _Seconds = None) -> int: ...
    def push(self, key: str, value: _Value, timeout: _Seconds = None) -> None: ...
    def pop(self, key: str, timeout: _Seconds = None) -> bytes: ...
    def barrier(self, key: str, size: int, timeout: _Seconds = None) -> None: ...

class TcpStore(Store):
    """A client of a store that a server holds, and the server itself with server=True."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

def tcp_store(host: str = "127.0.0.1", port: int = 0, *, server: bool = False, job: str = "",
              token: bytes = b"", timeout: _Seconds = None) -> TcpStore: ...
def file_store(path: _Path, size: int = 0, timeout: _Seconds = None) -> Store: ...
def hash_store(timeout: _Seconds = None) -> Store: ...
def prefix_store(prefix: str, store: Store) -> Store: ...
def _end() -> None: ...
def _after_fork_in_child() -> None: ...
def detect_launch() -> LaunchInfo: ...
def list_backends() -> list[BackendInfo]: ...
def init_process_group(backend: str = "", *, url: str = "env://", store: Store | None = None,
                       rank: int | None = None, size: int | None = None, timeout: _Seconds = None,
                       connect_timeout: _Seconds = None, token: bytes = b"",
                       name: str = "world") -> ProcessGroup:
    """Brings the ranks of the job together and returns their group.

    Every rank calls it. Without arguments rank, size and store come from the launcher, and the
    backend from C10D_BACKEND, else it is "native". `url` is env://,
    tcp://host:port?rank=0&world_size=2 or file:///path?rank=0&world_size=2. `store` needs rank and
    size. Raises Timeout that names the ranks that did not arrive within connect_timeout.
    """

class ProcessGroup:
    """A set of ranks that call collectives together, all in the same order.

    One thread at a time may call a group. It ends with shutdown(), with its `with` statement, with
    its last reference, or with the interpreter.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def members(self) -> list[Member]: ...
    @property
    def sequence(self) -> int:
        """Number of collectives that this rank has called."""
    @property
    def reduces_along_rank_tree(self) -> bool:
        """Whether the bits of a sum depend on nothing but the values and the number of ranks."""
    @property
    def failure(self) -> Error | None:
        """The first failure of the group; None while it is intact."""
    @property
    def store(self) -> Store:
        """A store that holds the keys of this group only."""
    @property
    def timeout(self) -> float:
        """Seconds that an op may take which gives no timeout of its own. Can be set."""
    @timeout.setter
    def timeout(self, timeout: float | timedelta) -> None: ...

    @overload
    def all_reduce(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
                   timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """output[i] is the reduction over all ranks of input[i], with the same bits on every rank.

        k elements each. Without input it is in place. op is sum unless it is given.
        """
    @overload
    def all_reduce(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
                   timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def scan(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
             timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """output[i] on rank r is the reduction over ranks 0 to r of input[i]; as all_reduce()."""
    @overload
    def scan(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
             timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def exscan(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
               timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """The same over ranks 0 to r - 1; the output of rank 0 keeps its elements."""
    @overload
    def exscan(self, output: _Buffer, input: _Buffer = None, *, op: _Op = None,
               timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def broadcast(self, output: _Buffer, root: int = 0, input: _Buffer = None, *,
                  timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """output has the k elements of the root, on every rank. Without input it is in place."""
    @overload
    def broadcast(self, output: _Buffer, root: int = 0, input: _Buffer = None, *,
                  timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def reduce(self, output: _Buffer, input: _Buffer, root: int = 0, *, op: _Op = None,
               timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """On the root, output[i] is the reduction over all ranks of input[i]; k elements each.

        The other ranks may pass None as output.
        """
    @overload
    def reduce(self, output: _Buffer, input: _Buffer, root: int = 0, *, op: _Op = None,
               timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def all_gather(self, output: _Buffer, input: _Buffer, *, timeout: _Seconds = None,
                   async_op: Literal[False] = False) -> None:
        """Shard r of output (n k elements) is the input (k) of rank r, on every rank."""
    @overload
    def all_gather(self, output: _Buffer, input: _Buffer, *, timeout: _Seconds = None,
                   async_op: Literal[True]) -> Work: ...
    @overload
    def all_gather_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], *,
                     timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """The same with counts[r] elements of rank r. counts is the same on every rank."""
    @overload
    def all_gather_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], *,
                     timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def reduce_scatter(self, output: _Buffer, input: _Buffer, *, op: _Op = None,
                       timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """output (k) on rank r is the reduction over all ranks of shard r of their input (n k)."""
    @overload
    def reduce_scatter(self, output: _Buffer, input: _Buffer, *, op: _Op = None,
                       timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def reduce_scatter_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], *,
                         op: _Op = None, timeout: _Seconds = None,
                         async_op: Literal[False] = False) -> None:
        """The same with counts[r] elements in shard r."""
    @overload
    def reduce_scatter_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], *,
                         op: _Op = None, timeout: _Seconds = None,
                         async_op: Literal[True]) -> Work: ...
    @overload
    def gather(self, output: _Buffer, input: _Buffer, root: int = 0, *, timeout: _Seconds = None,
               async_op: Literal[False] = False) -> None:
        """On the root, shard r of output (n k) is the input (k) of rank r; elsewhere output is None."""
    @overload
    def gather(self, output: _Buffer, input: _Buffer, root: int = 0, *, timeout: _Seconds = None,
               async_op: Literal[True]) -> Work: ...
    @overload
    def gather_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], root: int = 0, *,
                 timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """The same with counts[r] elements of rank r."""
    @overload
    def gather_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], root: int = 0, *,
                 timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def scatter(self, output: _Buffer, input: _Buffer, root: int = 0, *, timeout: _Seconds = None,
                async_op: Literal[False] = False) -> None:
        """output (k) on rank r is shard r of the root's input (n k); elsewhere input is None."""
    @overload
    def scatter(self, output: _Buffer, input: _Buffer, root: int = 0, *, timeout: _Seconds = None,
                async_op: Literal[True]) -> Work: ...
    @overload
    def scatter_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], root: int = 0, *,
                  timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """The same with counts[r] elements for rank r."""
    @overload
    def scatter_v(self, output: _Buffer, input: _Buffer, counts: Sequence[int], root: int = 0, *,
                  timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def all_to_all(self, output: _Buffer, input: _Buffer, *, timeout: _Seconds = None,
                   async_op: Literal[False] = False) -> None:
        """Shard s of output (n k) on rank r is shard r of the input (n k) of rank s."""
    @overload
    def all_to_all(self, output: _Buffer, input: _Buffer, *, timeout: _Seconds = None,
                   async_op: Literal[True]) -> Work: ...
    @overload
    def all_to_all_v(self, output: _Buffer, input: _Buffer, output_counts: Sequence[int],
                     input_counts: Sequence[int], *, timeout: _Seconds = None,
                     async_op: Literal[False] = False) -> None:
        """The same with input_counts[r] elements to rank r, output_counts[s] from rank s."""
    @overload
    def all_to_all_v(self, output: _Buffer, input: _Buffer, output_counts: Sequence[int],
                     input_counts: Sequence[int], *, timeout: _Seconds = None,
                     async_op: Literal[True]) -> Work: ...
    @overload
    def barrier(self, *, timeout: _Seconds = None, async_op: Literal[False] = False) -> None:
        """Returns once every rank has called it."""
    @overload
    def barrier(self, *, timeout: _Seconds = None, async_op: Literal[True]) -> Work: ...
    @overload
    def send(self, input: _Buffer, peer: int, tag: int = 0, *, timeout: _Seconds = None,
             async_op: Literal[False] = False) -> None:
        """Sends to a rank. Returns when input may be used again."""
    @overload
    def send(self, input: _Buffer, peer: int, tag: int = 0, *, timeout: _Seconds = None,
             async_op: Literal[True]) -> Work: ...
    @overload
    def recv(self, output: _Buffer, peer: int, tag: int = 0, *, timeout: _Seconds = None,
             async_op: Literal[False] = False) -> Received:
        """Receives the next message of that rank, or of ANY_SOURCE, with this tag.

        It may be shorter than output. A Work has the result in `received`.
        """
    @overload
    def recv(self, output: _Buffer, peer: int, tag: int = 0, *, timeout: _Seconds = None,
             async_op: Literal[True]) -> Work: ...
    def monitored_barrier(self, timeout: _Seconds = None) -> None:
        """A barrier whose Timeout names all ranks that did not come."""

    def broadcast_object(self, obj: Any = None, root: int = 0, *, max_bytes: int = ...,
                         allow_pickle: bool = False, timeout: _Seconds = None) -> Any:
        """The object of the root, on every rank.

        It goes as JSON, or as bytes. With allow_pickle=True, on all ranks, what is not bytes is
        pickled, which runs code of the sender. More than max_bytes, 1 GiB, raise InvalidArgument on every rank.
        """
    def all_gather_object(self, obj: Any, *, max_bytes: int = ..., allow_pickle: bool = False,
                          timeout: _Seconds = None) -> list[Any]:
        """The objects of all ranks, by rank, on every rank; as broadcast_object()."""
    def scatter_object(self, objects: Sequence[Any] | None = None, root: int = 0, *,
                       max_bytes: int = ..., allow_pickle: bool = False,
                       timeout: _Seconds = None) -> Any:
        """On rank r the object r of the root's list; as broadcast_object()."""

    def new_group(self, ranks: Sequence[int], name: str = "") -> ProcessGroup:
        """A group of these ranks, which alone call it; ranks[i] gets rank i there."""
    @overload
    def split(self, color: int, key: int = 0) -> ProcessGroup:
        """One new group for each color, ordered by key; None without a color. All ranks call it."""
    @overload
    def split(self, color: None, key: int = 0) -> None: ...
    @overload
    def split(self, color: int | None, key: int = 0) -> ProcessGroup | None: ...
    def split_by_host(self) -> ProcessGroup:
        """The ranks of each host become one group. All ranks call it."""
    def abort(self, why: str = "abort() was called") -> None:
        """Breaks the group on every rank: calls raise Aborted. From any thread."""
    def shutdown(self, timeout: _Seconds = None) -> None:
        """Waits for the pending ops of this rank, at most 30 s, and leaves the group."""
    def __enter__(self: _Self) -> _Self: ...
    def __exit__(self, type: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        """shutdown(), or abort() where an exception leaves the block."""
