"""What the checks and searches around a segment read of it.

`broker.log.segment` imports them, so they name its class by this protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from holdfast_log.broker.log.damage import Damage
from holdfast_log.broker.log.disk import DiskFile
from holdfast_log.broker.log.index import OffsetIndex, TimeIndex
from holdfast_log.protocol.batches import BatchHeader


class IndexPair(Protocol):
    """The two indexes of a segment."""

    offsets: OffsetIndex
    times: TimeIndex


class SegmentView(Protocol):
    """A `broker.log.segment.Segment`, read only. Methods raise OSError from the disk."""

    @property
    def path(self) -> str:
        """The path of the log file."""
        ...

    @property
    def base_offset(self) -> int:
        """The offset after which its files are named."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        ...

    @property
    def size(self) -> int:
        """The bytes of the log file that hold batches."""
        ...

    @property
    def readable_size(self) -> int:
        """The bytes of the log file before known damage."""
        ...

    @property
    def is_dense(self) -> bool:
        """Whether each batch begins at the offset after the one before it."""
        ...

    @property
    def damage(self) -> Damage | None:
        """Where known damage begins."""
        ...

    @property
    def indexes(self) -> IndexPair:
        """Its indexes."""
        ...

    def file(self) -> DiskFile:
        """The open log file."""
        ...

    def headers(self, position: int, end: int | None = None) -> Iterator[BatchHeader]:
        """The headers of the batches from `position` on that end at or before `end`."""
        ...

    def header_at(self, offset: int) -> BatchHeader | None:
        """The header of the first batch that ends at or after `offset`."""
        ...

    def position_of(self, offset: int) -> int | None:
        """The position of the first batch that ends at or after `offset`."""
        ...
