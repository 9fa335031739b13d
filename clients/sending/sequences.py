"""Sequence numbers, by which a broker recognises a batch that comes twice or too early (KIP-98).

Every batch of a partition is stamped once, with the producer's id, an epoch and the sequence of its first
record; every attempt to send it carries the same stamp. When a batch is given up, the client does not know
whether the broker has it, and the numbers after it may never fit. Then no new batch is stamped until every
stamped one has an outcome. After that the partition begins a new epoch at sequence 0, unless the broker turns
out to have everything (KIP-360), or certainly has nothing of what was given up; its numbers are then used
again. Each partition has its own epochs: brokers compare them by partition, and no other producer has
this producer's id. A transactional producer has one epoch, which its coordinator gives; it gets the next one
when the transaction in which numbers were lost has been aborted (`clients.transactions`).
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EPOCH = 2**15 - 1
SEQUENCE_MASK = 2**31 - 1
"""Sequences run from 0 to this and then from 0 again."""


@dataclass(slots=True)
class Sequences:
    """The numbers of one partition."""

    producer_id: int = -1
    epoch: int = -1
    next_sequence: int = 0
    """The sequence of the next batch to be stamped."""
    acknowledged: int = 0
    """The sequence after the last record that is known to be written."""
    outstanding: int = 0
    """Batches that are stamped and have no outcome."""
    is_unresolved: bool = False
    """Whether a stamped batch was given up: nothing new may be stamped before that is resolved."""
    is_doubtful: bool = False
    """Whether a batch that was given up may be written all the same."""
    must_restart: bool = False
    """Whether the broker has answered that the numbers do not fit."""
    is_known: bool = False
    """Whether the broker has acknowledged a batch under this id. Until then it accepts any first sequence
    (KIP-360), so a second batch sent early could be written before the first."""

    def begin(self, producer_id: int, epoch: int) -> None:
        """Start from 0 under this id and epoch."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = self.acknowledged = 0
        self.is_unresolved = self.is_doubtful = self.must_restart = False

    def can_stamp(self, producer_id: int, least_epoch: int = 0) -> bool:
        """Whether a new batch may be stamped. `producer_id` is the one the producer has now, and
        `least_epoch` the epoch that it was given: that of a transactional producer is the same for all
        partitions."""
        if self.outstanding == 0:
            if self.producer_id != producer_id or self.epoch < least_epoch:
                self.begin(producer_id, least_epoch)
                self.is_known = False
            elif self.is_unresolved and (self.acknowledged == self.next_sequence or not self.is_doubtful):
                self.is_unresolved = self.is_doubtful = False
                self.next_sequence = self.acknowledged
        is_in_order = self.is_known or self.outstanding == 0
        return is_in_order and not self.is_unresolved and not self.must_restart

    def stamp(self, record_count: int) -> int:
        """The sequence for a new batch."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) & SEQUENCE_MASK
        self.outstanding += 1
        return sequence

    def succeeded(self, base_sequence: int, record_count: int) -> None:
        """A stamped batch is written."""
        self.outstanding -= 1
        self.is_known = True
        self.acknowledged = (base_sequence + record_count) & SEQUENCE_MASK

    def given_up(self) -> None:
        """A stamped batch has failed for good; whether it is written is not known."""
        self.refused()
        self.is_doubtful = True

    def refused(self) -> None:
        """A stamped batch has failed for good; it is not written, and never will be."""
        self.outstanding -= 1
        self.is_unresolved = True

    @property
    def wants_new_epoch(self) -> bool:
        """Whether only a new epoch helps, once nothing is under way."""
        is_gap = self.is_doubtful and self.outstanding == 0 and self.acknowledged != self.next_sequence
        return self.must_restart or is_gap

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no higher epoch: the producer needs another id."""
        return self.epoch >= MAX_EPOCH
