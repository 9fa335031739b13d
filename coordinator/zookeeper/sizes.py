"""The size of requests to ZooKeeper, checked before they are sent.

ZooKeeper closes the connection of a client that sends a request above `jute.maxbuffer` (1 MB by default). The
client takes that for a lost connection: it would send the request again, for ever, and lose the connection
for everything else each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.coordinator.zookeeper.interface import Create, RequestTooLarge, SetData, WriteOperation

REQUEST_BYTES_MAX = 1_000_000
"""Maximum size of a request, a little below ZooKeeper's own limit of 1,048,575 bytes."""

_OPERATION_BYTES = 128
"""Bytes of an operation besides its path and its data: lengths, flags, version, access control list."""


def check_size(operations: Sequence[WriteOperation]) -> None:
    """Raise `RequestTooLarge`, with the largest znode, if ZooKeeper would not take a request of these."""
    size = sum(map(_size, operations))
    if size > REQUEST_BYTES_MAX:
        largest = max(operations, key=_size)
        raise RequestTooLarge(
            largest.path,
            f"the request has {size} bytes, {_size(largest)} of them for this znode; ZooKeeper takes at most "
            f"{REQUEST_BYTES_MAX}",
        )


def _size(operation: WriteOperation) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return _OPERATION_BYTES + len(operation.path.encode()) + len(data)
