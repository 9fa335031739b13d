"""What reads of logs have found a short time ago: many readers of a log ask for the same bytes.

A read of batches looks for their place in the file, and checks their headers, because a disk may change its
content. Both cost more than sending the bytes does. They are remembered here for all logs of a broker
together, so that the memory for them is bounded however many logs there are.
"""

from __future__ import annotations

_REREADS_PER_CHECK = 16
"""How often the same bytes are read before the headers of their batches are checked again."""
_CAPACITY = 4096
"""Maximum number of reads that are remembered: some 2 MB."""


class KnownRead:
    """Whole batches that a read has found: from position `start` to `end`, with offsets before `next_offset`.

    `is_full`: the batch after them would exceed the read's maximum of bytes. Such a read finds the same again
    as long as the file is not truncated, whatever is appended.
    """

    __slots__ = ("_rereads", "end", "is_full", "next_offset", "start")

    def __init__(self, start: int, end: int, next_offset: int, *, is_full: bool) -> None:
        self.start = start
        self.end = end
        self.next_offset = next_offset
        self.is_full = is_full
        self._rereads = 0

    def is_found_by(self, upper_offset: int, max_bytes: int, *, min_one_batch: bool) -> bool:
        """Whether another read of this offset finds the same batches, without looking for them."""
        return (
            self.is_full
            and self.next_offset <= upper_offset
            and (min_one_batch or self.end - self.start <= max_bytes)
        )

    def is_checked(self) -> bool:
        """Whether a read has found the headers of these bytes right a short time ago. Bytes in memory change
        rarely, but they may: after some reads the answer is no once."""
        if not self._rereads:
            return False
        self._rereads -= 1
        return True

    def remember_checked(self) -> None:
        """A read has found the headers of these bytes right."""
        self._rereads = _REREADS_PER_CHECK


class KnownReads:
    """The latest reads, by the content that was read, the offset, and the maximum number of bytes.

    The content is an object of its own for each segment, which the segment replaces when bytes that it has
    are cut off or replaced: what was known of the earlier content is never found again.
    """

    __slots__ = ("reads",)

    def __init__(self) -> None:
        self.reads: dict[tuple[object, int, int], KnownRead] = {}
        """For `broker/log/_known_reads.c`, which does what `find` does, and more."""

    def __len__(self) -> int:
        return len(self.reads)

    def find(self, content: object, offset: int, max_bytes: int) -> KnownRead | None:
        """What the last read of this kind has found; None if it is not known any more."""
        return self.reads.get((content, offset, max_bytes))

    def remember(self, content: object, offset: int, max_bytes: int, found: KnownRead) -> None:
        """Remember what a read has found. The oldest ones are forgotten."""
        reads, key = self.reads, (content, offset, max_bytes)
        reads.pop(key, None)
        reads[key] = found
        if len(reads) > _CAPACITY:
            del reads[next(iter(reads))]
