# SPDX-License-Identifier: BSD-3-Clause
"""Objects as values: methods of ProcessGroup.

An object goes as JSON, or as bytes where it is bytes. Neither runs code of the sender. Pickle does:
it is used on request only, and then for all that is not bytes. Lengths come first, and are checked
before memory is allocated.
"""
import array
import json

from ._errors import InvalidArgument

DEFAULT_MAX_BYTES = 1 << 30
_NONE = 2**64 - 1  # the length that says: this rank could not make bytes of its object
_JSON, _BYTES, _PICKLE = b"JBP"


def _encode(obj, allow_pickle):
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return bytes([_BYTES]) + bytes(obj)
    if allow_pickle:
        import pickle
        return bytes([_PICKLE]) + pickle.dumps(obj)
    try:
        return bytes([_JSON]) + json.dumps(obj, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{error}: an object goes as JSON or bytes; allow_pickle=True on all ranks "
                        "takes pickle, which runs code of the sender") from error


def _decode(data, allow_pickle):
    kind, body = data[0], bytes(memoryview(data)[1:])
    if kind == _BYTES:
        return body
    if kind == _JSON:
        return json.loads(body)
    if kind == _PICKLE and allow_pickle:
        import pickle
        return pickle.loads(body)
    if kind == _PICKLE:
        raise InvalidArgument("a rank sent a pickled object, which would run its code here; "
                              "allow_pickle=True accepts that")
    raise InvalidArgument(f"a rank sent an object of an unknown kind, {kind}")


def _try_encode(obj, allow_pickle):
    """The bytes and None, or None and the error, which the others must hear of first."""
    try:
        return _encode(obj, allow_pickle), None
    except Exception as error:
        return None, error


def _length(data):
    return _NONE if data is None else len(data)


def _check(lengths, ranks, max_bytes, error):
    if error is not None:
        raise error
    for length, rank in zip(lengths, ranks):
        if length == _NONE:
            raise InvalidArgument(f"rank {rank} could not make bytes of its object; its own "
                                  "exception says why")
        if length == 0:
            raise InvalidArgument(f"rank {rank} sent no object")
    if sum(lengths) > max_bytes:
        raise InvalidArgument(f"the objects have {sum(lengths)} bytes, and max_bytes is "
                              f"{max_bytes}")


def broadcast_object(self, obj=None, root=0, *, max_bytes=DEFAULT_MAX_BYTES, allow_pickle=False,
                     timeout=None):
    """The object of the root, on every rank."""
    data, error = _try_encode(obj, allow_pickle) if self.rank == root else (b"", None)
    length = array.array("Q", [_length(data)])
    self.broadcast(length, root, timeout=timeout)
    _check(length, [root], max_bytes, error)
    if self.rank != root:
        data = bytearray(length[0])
    self.broadcast(data, root, timeout=timeout)
    return _decode(data, allow_pickle)


def all_gather_object(self, obj, *, max_bytes=DEFAULT_MAX_BYTES, allow_pickle=False, timeout=None):
    """The objects of all ranks, by rank, on every rank."""
    data, error = _try_encode(obj, allow_pickle)
    lengths = array.array("Q", bytes(8 * self.size))
    self.all_gather(lengths, array.array("Q", [_length(data)]), timeout=timeout)
    _check(lengths, range(self.size), max_bytes, error)
    all_data = bytearray(sum(lengths))
    self.all_gather_v(all_data, data, lengths, timeout=timeout)
    objects, first = [], 0
    for length in lengths:
        objects.append(_decode(memoryview(all_data)[first:first + length], allow_pickle))
        first += length
    return objects


def scatter_object(self, objects=None, root=0, *, max_bytes=DEFAULT_MAX_BYTES, allow_pickle=False,
                   timeout=None):
    """On rank r the object r of the list of the root."""
    parts, error = None, None
    lengths = array.array("Q", bytes(8 * self.size))
    if self.rank == root:
        try:
            if objects is None or len(objects) != self.size:
                raise InvalidArgument("scatter_object: the root passes a list of one object for "
                                      f"each of the {self.size} ranks")
            parts = [_encode(obj, allow_pickle) for obj in objects]
            lengths = array.array("Q", map(len, parts))
        except Exception as problem:
            error, lengths = problem, array.array("Q", [_NONE] * self.size)
    self.broadcast(lengths, root, timeout=timeout)
    _check(lengths, [root] * self.size, max_bytes, error)
    data = bytearray(lengths[self.rank])
    self.scatter_v(data, b"".join(parts) if parts else None, lengths, root, timeout=timeout)
    return _decode(data, allow_pickle)
