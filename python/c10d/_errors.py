# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of the package, one for each c10d::Code."""


class Error(RuntimeError):
    """A failure that the library reports. str() is one line with all that is known.

    code      what happened, "peer_died" for example
    reason    what can be done: "timeout", "peer_lost", "mismatch", "aborted", "unsupported",
              "internal"
    rank      the rank that the failure is about, or None; host and pid are those of that rank
    group     name of the group, or None
    op        name of the op, or None; sequence is its number in the group
    """

    code = reason = rank = host = pid = group = op = sequence = None


class InvalidArgument(ValueError):
    """An argument of this rank is wrong. Nothing was sent, and the group stays intact."""


class BackendError(Error):
    """A group or its backend failed."""


class NetworkError(Error):
    """A connection failed."""


class StoreError(Error):
    """A store failed."""


class Timeout(Error, TimeoutError):
    """A deadline passed. The message names the ranks that are missing."""


class PeerDied(BackendError):
    """The process of a rank ended without leaving the group."""


class PeerLeft(BackendError):
    """A rank left the group while others still called it."""


class Mismatch(BackendError):
    """Ranks made different calls. The message shows both."""


class Aborted(BackendError):
    """A rank called abort(), or was interrupted by Ctrl-C."""


class Destroyed(BackendError):
    """The group was shut down."""


class ForkedChild(BackendError):
    """The group belongs to the parent process."""


class ConcurrentUse(BackendError):
    """A second thread called the group. The group stays intact."""


class Unsupported(BackendError):
    """This backend cannot do that. The group stays intact."""


class OutOfResources(BackendError):
    """Memory, descriptors or threads ran out."""


class LibraryError(BackendError):
    """The library below the backend reported an error."""


class LinkLost(NetworkError):
    """A connection between ranks broke."""


class WrongJob(NetworkError):
    """The other side belongs to another job."""


class VersionMismatch(NetworkError):
    """The other side is another version."""


class Corrupt(NetworkError):
    """The other side sent bytes that make no sense."""


class NotAuthenticated(NetworkError):
    """The other side does not know the token of the job."""


class AddressInUse(NetworkError):
    """Another process listens at this address."""


class Unreachable(NetworkError):
    """Nobody answers at this address."""


class StoreLost(StoreError):
    """The connection to the store ended."""


class StoreLimit(StoreError):
    """A limit of the store was reached."""


class StoreRefused(StoreError):
    """The request makes no sense, such as add() on a value that is no number."""


_BY_CODE = {
    "peer_died": PeerDied, "peer_left": PeerLeft, "mismatch": Mismatch, "revoked": Aborted,
    "destroyed": Destroyed, "forked_child": ForkedChild, "concurrent_use": ConcurrentUse,
    "unsupported": Unsupported, "out_of_resources": OutOfResources, "backend_error": LibraryError,
    "link_lost": LinkLost, "wrong_job": WrongJob, "version_mismatch": VersionMismatch,
    "corrupt": Corrupt, "not_authenticated": NotAuthenticated, "address_in_use": AddressInUse,
    "unreachable": Unreachable, "store_lost": StoreLost, "store_limit": StoreLimit,
    "store_error": StoreRefused, "timed_out": Timeout,
}



for _kind in (Error, InvalidArgument, BackendError, NetworkError, StoreError, *_BY_CODE.values()):
    _kind.__module__ = "c10d"  # as tracebacks name it


def make(message, *, code, **facts):
    """The exception for a failure of the library. For the extension module."""
    error = _BY_CODE.get(code, Error)(message)
    error.__dict__.update(facts, code=code)
    return error
