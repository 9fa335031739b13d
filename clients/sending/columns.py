"""Messages by columns, as `send_many` takes them: cut into chunks, made bytes, measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from typing import Any

from protocol.records import TYPICAL_OVERHEAD

CHUNK = 10_000
"""Messages looked at together: enough to forget the cost of a chunk, too few to hold anybody up."""


def in_chunks(
    values: Iterable[Any], keys: Iterable[Any] | None
) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """The columns a chunk at a time. Raises ValueError where they turn out to be of different lengths."""
    value_items = iter(_plain(values))
    key_items = None if keys is None else iter(_plain(keys))
    while True:
        some_values = list(islice(value_items, CHUNK))
        # One more than there are values, at the end of them, so that keys without a value show.
        some_keys = None if key_items is None else list(islice(key_items, len(some_values) or 1))
        if some_keys is not None and len(some_keys) != len(some_values):
            raise ValueError("there must be as many keys as values")
        if not some_values:
            return
        yield some_values, some_keys


def _plain(column: Iterable[Any]) -> Iterable[Any]:
    """A column of Arrow (an array, maybe chunked) as Python's values; anything else as it is."""
    to_pylist = getattr(column, "to_pylist", None)
    return column if to_pylist is None else to_pylist()


def as_bytes(topic: str, item: Any) -> bytes | None:
    """What a serializer has returned, as the bytes that do not change any more. Raises TypeError."""
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise TypeError(f"{topic}: a serializer returned {type(item).__name__} instead of bytes")


def running_sizes(keys: list[bytes | None] | None, values: list[bytes | None]) -> list[int]:
    """About how many bytes the first record takes in a batch, the first two, the first three…"""
    # One comprehension for each case: this is most of what a message costs that is sent in bulk.
    if keys is not None:
        pairs = zip(keys, values, strict=True)
        sizes = [len(key or b"") + len(value or b"") + TYPICAL_OVERHEAD for key, value in pairs]
    else:
        sizes = [len(value or b"") + TYPICAL_OVERHEAD for value in values]
    return list(accumulate(sizes))
