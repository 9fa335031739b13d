"""The columns that `send_many` takes: cut into chunks, serialized, and measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

from holdfast_log.protocol.records import TYPICAL_OVERHEAD

CHUNK = 10_000
"""Messages taken together: enough to make the cost of a chunk negligible, few enough not to block others."""


def in_chunks(
    values: Iterable[Any], keys: Iterable[Any] | None
) -> Iterator[tuple[list[Any], list[Any] | None]]:
    """The columns, a chunk at a time. Raises ValueError when they turn out to have different lengths."""
    value_items = iter(_plain(values))
    key_items = None if keys is None else iter(_plain(keys))
    while True:
        some_values = list(islice(value_items, CHUNK))
        # After the last value, one more key is requested, to detect keys without a value.
        some_keys = None if key_items is None else list(islice(key_items, len(some_values) or 1))
        if some_keys is not None and len(some_keys) != len(some_values):
            raise ValueError("there must be as many keys as values")
        if not some_values:
            return
        yield some_values, some_keys


def _plain(column: Iterable[Any]) -> Iterable[Any]:
    """The Python values of an Arrow column (Array or ChunkedArray); any other column unchanged."""
    to_pylist = getattr(column, "to_pylist", None)
    return column if to_pylist is None else to_pylist()


def as_bytes(topic: str, item: Any) -> bytes | None:
    """What a serializer returned, as immutable bytes. Raises TypeError if it is no bytes-like object."""
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    raise TypeError(f"{topic}: a serializer returned {type(item).__name__} instead of bytes")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Serialized messages of one call. `timestamp` is in ms and for all; `keys` is None if there are none."""

    timestamp: int
    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, stop: int) -> RecordColumns:
        """The messages from `start` to before `stop`."""
        keys = None if self.keys is None else self.keys[start:stop]
        return RecordColumns(self.timestamp, keys, self.values[start:stop])

    def running_sizes(self) -> list[int]:
        """Estimated bytes in a batch of the first message, of the first two, of the first three and so on."""
        # One comprehension for each case: this is most of what a message costs that is sent in bulk.
        if self.keys is not None:
            pairs = zip(self.keys, self.values, strict=True)
            sizes = [len(key or b"") + len(value or b"") + TYPICAL_OVERHEAD for key, value in pairs]
        else:
            sizes = [len(value or b"") + TYPICAL_OVERHEAD for value in self.values]
        return list(accumulate(sizes))
