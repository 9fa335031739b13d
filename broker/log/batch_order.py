"""What the headers of adjacent batches must be: their offsets follow each other, and each batch has the
leader epoch in which its offset was written.

The checksum of a batch covers neither, so they are compared with the batches before and with the epochs of
the log: by the examination of a segment, by reads, and by a follower before it appends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.protocol.batches import NO_LEADER_EPOCH, BatchHeader


def _unknown_epoch(offset: int) -> int:
    return NO_LEADER_EPOCH


@dataclass(slots=True)
class BatchOrder:
    """Compares the headers of batches, from the one with `next_offset` on.

    `is_dense`: offsets may have no gap after `log_start_offset`, since the topic is not compacted. All
    batches lie before `upper_offset`; None: there is no bound. `epoch_at` is the leader epoch of an offset,
    -1 if it is unknown; it says nothing of records before `log_start_offset`.
    """

    next_offset: int
    is_dense: bool
    log_start_offset: int = 0
    upper_offset: int | None = None
    epoch_at: Callable[[int], int] = _unknown_epoch
    latest_epoch: int = NO_LEADER_EPOCH
    """The latest epoch of the log; -1 if it is unknown."""

    def implausible(self, header: BatchHeader) -> str | None:
        """Why no broker can have written this batch at its place; None where one can."""
        offset, expected = header.base_offset, self.next_offset
        if header.last_offset_delta < 0 or offset < expected:
            return f"a batch of offset {offset} follows, {expected} was expected"
        if self.is_dense and offset > expected and offset > self.log_start_offset:
            return f"the records from offset {expected} to {offset - 1} are missing"
        if self.upper_offset is not None and header.last_offset >= self.upper_offset:
            return f"a batch reaches offset {header.last_offset}, the segment ends before {self.upper_offset}"
        if offset >= self.log_start_offset:
            epoch = self.epoch_at(offset)
            if header.leader_epoch != epoch and NO_LEADER_EPOCH not in (header.leader_epoch, epoch):
                return f"offset {offset} has leader epoch {header.leader_epoch}, it was written in {epoch}"
        return None

    def lasting_epoch(self, header: BatchHeader) -> int:
        """The epoch of this batch if all later ones have it too, -1 if they may have others."""
        return header.leader_epoch if header.leader_epoch == self.latest_epoch else NO_LEADER_EPOCH

    def passed(self, header: BatchHeader) -> None:
        """Go on with the batch after this one."""
        self.next_offset = header.next_offset
