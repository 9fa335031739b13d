"""Leader epochs of a log: which epoch began at which offset (KIP-101, KIP-279).

The epochs are in memory and, for restarts, in `leader-epoch-checkpoint`. The file may lag behind: each flush
updates it before the recovery point advances, and every batch names its epoch. After an unclean stop,
recovery keeps the file's epochs that began before the recovery point, and reads later epochs from the batches
after it. A record of the epochs that have begun (`broker.log.begun_epochs`) says then whether the disk has
changed the epoch of a batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

Entries = Sequence[tuple[int, int]]
"""(epoch, start offset) of each epoch, oldest first."""


def _record_nowhere(entries: Entries) -> None: ...


class LeaderEpochs:
    """The epochs of one log, in order of both epoch and start offset."""

    __slots__ = ("_epochs", "_is_recorded", "_offsets", "is_dirty", "record")

    def __init__(self, entries: Entries | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or ()]
        self._offsets = [offset for _, offset in entries or ()]
        self.is_dirty = False
        """Whether the entries differ from those in the checkpoint."""
        self.record: Callable[[Entries], None] = _record_nowhere
        """Writes the record of the epochs that have begun. Must not raise."""
        self._is_recorded = False
        """Whether the record says of each batch in which epoch it was written."""

    @property
    def latest(self) -> int:
        """The last epoch that began; -1 before the first."""
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that a batch of `epoch` is about to be written at `start_offset`, as `begin` does, and record
        the epoch before."""
        epochs = self._epochs
        if self._is_recorded and epochs and epoch == epochs[-1]:
            return
        self.begin(epoch, start_offset)
        self.make_recorded()

    def make_recorded(self) -> None:
        """Record the epochs that have begun, if that is not done yet: a file is written. Otherwise the first
        batch of an epoch does so."""
        if not self._is_recorded:
            self.record(self.entries)
            self._is_recorded = True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that an epoch begins at `start_offset`. No effect if it has begun before."""
        epochs = self._epochs
        if epoch == UNDEFINED_EPOCH or (epochs and epoch == epochs[-1]):
            return
        # Epochs that began at this offset have no records, so no reader will ask for them. A later one was
        # truncated, if a crash has left it in the file.
        while self._offsets and self._offsets[-1] >= start_offset:
            self._drop_last()
        if epoch <= self.latest:
            return
        self._epochs.append(epoch)
        self._offsets.append(start_offset)
        self.is_dirty = True
        self._is_recorded = False

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written; -1 if unknown."""
        index = bisect_right(self._offsets, offset) - 1
        return self._epochs[index] if index >= 0 else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest known epoch not above `epoch`, the offset after its last record).

        For an epoch above all known ones: (-1, -1). For an epoch below all known ones: the epoch itself and
        the start offset of the first known epoch.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        return (self._epochs[above - 1] if above else epoch), self._offsets[above]

    def truncate_to(self, end_offset: int) -> None:
        """Remove the epochs that began at `end_offset` or after."""
        keep = bisect_left(self._offsets, end_offset)
        while len(self._offsets) > keep:
            self._drop_last()

    def drop_after(self, epoch: int) -> int | None:
        """Remove the epochs after `epoch`: the one before them takes their records. Returns the offset at
        which the first of them began; None if there is none."""
        dropped = None
        while self._epochs and self._epochs[-1] > epoch:
            dropped = self._offsets[-1]
            self._drop_last()
        return dropped

    def advance_start(self, start_offset: int) -> None:
        """Remove the epochs that ended before the log's new first offset."""
        first = bisect_right(self._offsets, start_offset) - 1
        if first < 0 or (first == 0 and self._offsets[0] == start_offset):
            return
        del self._epochs[:first]
        del self._offsets[:first]
        self._offsets[0] = start_offset
        self.is_dirty = True

    def clear(self) -> None:
        while self._offsets:
            self._drop_last()

    def _drop_last(self) -> None:
        self._epochs.pop()
        self._offsets.pop()
        self.is_dirty = True
        self._is_recorded = False
