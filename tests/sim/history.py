"""What simulated clients sent and received: with the logs, the evidence of the checkers."""

from __future__ import annotations

import enum
import uuid
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_log.protocol.batches import BatchHeader, read_header
from holdfast_log.protocol.records import decode_columns
from tests.models.world import World

TopicPartition = tuple[str, int]
NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A partition of one topic id. A topic that is deleted and created again gets a new id."""

    at: TopicPartition
    topic_id: uuid.UUID = NO_ID

    @property
    def is_internal(self) -> bool:
        """Whether brokers write the partition, and not producers."""
        return self.at[0].startswith("__")

    def __str__(self) -> str:
        return f"{self.at[0]}-{self.at[1]}"


class Outcome(enum.Enum):
    """What a producer knows about a batch."""

    PENDING = "pending"
    ACKED = "acknowledged"
    UNKNOWN = "unknown"
    """The producer gave up: the batch may or may not be in the log."""


@dataclass(eq=False, slots=True)
class Batch:
    """One batch of one producer. `values` are unique in the simulation."""

    producer: str
    at: TopicPartition
    number: int
    """Position of the batch among the producer's batches for this partition."""
    values: list[bytes]
    acks: int
    is_idempotent: bool
    made_s: float
    sends: int = 0
    outcome: Outcome = Outcome.PENDING
    offset: int | None = None
    """Offset of the first record; None if no broker reported it."""
    topic_id: uuid.UUID = NO_ID
    """Id of the topic that the batch was made for."""
    key: bytes | None = None
    """The key of its only record, in a topic whose records have keys."""

    def __str__(self) -> str:
        return f"batch {self.number} of {self.producer} for {self.at[0]}-{self.at[1]}"


@dataclass(slots=True)
class History:
    """All requests and answers of a simulation that judges need.

    `seen` lists the values that consumers got from each partition, from offset 0. `violations` holds what was
    found during the run. Topics in `may_lose` may lose acknowledged records; those in `may_go` may be deleted
    and created again.
    """

    world: World
    may_lose: frozenset[str] = frozenset()
    may_go: frozenset[str] = frozenset()
    keeps_acks: frozenset[int] = frozenset({-1})
    """The acks of producers whose acknowledged records may not be lost."""
    compacted: frozenset[str] = frozenset()
    """Topics that brokers compact: records that a later one with their key supersedes may be missing."""
    batches: list[Batch] = field(default_factory=list)
    seen: dict[Incarnation, list[bytes]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    operations: int = 0
    """Number of answers that clients got."""
    acknowledgements: list[Callable[[Batch, int], None]] = field(default_factory=list)
    """Called with every batch that a broker acknowledged to its producer, and the batch's checksum."""
    committed: dict[Incarnation, int] | None = None
    """The highest offset that any leader has committed; None if no judge tracks high watermarks."""
    deleted: dict[Incarnation, int] = field(default_factory=dict)
    """The highest offset before which an operator has asked to delete the records of a partition."""
    tombstones: dict[Incarnation, dict[bytes, int]] = field(default_factory=dict)
    """The offset of the last committed tombstone of each key that a pass of a cleaner has met in a log."""
    _known_ends: dict[Incarnation, list[tuple[float, int]]] = field(default_factory=dict)
    """Each offset up to which a client learned that all is committed, with the time in seconds at which it
    learned that; both rise."""
    _decoded: dict[tuple[Incarnation, int, int], list[bytes]] = field(default_factory=dict)

    def violation(self, what: str) -> None:
        self.world.trace("checker", f"VIOLATION {what}")
        self.violations.append(f"{self.world.seconds():.4f} s: {what}")

    def values_of(self, place: Incarnation, records: memoryview, header: BatchHeader) -> list[bytes]:
        """The values of a batch that a consumer got. Each batch is decoded once for all consumers."""
        key = (place, header.base_offset, header.crc)
        values = self._decoded.get(key)
        if values is None:
            values = [value or b"" for value in decode_columns(records, header).values]
            self._decoded[key] = values
        return values

    def saw(self, consumer: str, place: Incarnation, offset: int, values: list[bytes]) -> None:
        """Record that a consumer got these values from `offset` on. All consumers must get the same."""
        if place.at[0] in self.may_lose:
            return
        seen = self.seen.setdefault(place, [])
        if offset > len(seen) and place.at[0] in self.compacted:
            seen.extend([b""] * (offset - len(seen)))
        if offset > len(seen):
            self.violation(f"{consumer} got {place} from {offset} on; no consumer has got {len(seen)} yet")
            return
        known = seen[offset : offset + len(values)]
        for number, (before, now) in enumerate(zip(known, values, strict=False)):
            if not before and place.at[0] in self.compacted:
                seen[offset + number] = (
                    now  # The first consumer got the log after a pass, this one before it.
                )
            elif before != now:
                self.violation(
                    f"{consumer} got {_short(now)} at {offset + number} of {place}; "
                    f"an earlier answer had {_short(before)}"
                )
                return
        seen.extend(values[len(known) :])

    def deletes(self, place: Incarnation, offset: int) -> None:
        """Record that an operator asks to delete the records of a partition before `offset`."""
        self.deleted[place] = max(offset, self.deleted.get(place, 0))

    def acknowledged(self, batch: Batch, encoded: bytes | bytearray) -> None:
        """Record that a producer got the acknowledgement of a batch, which it had sent as these bytes."""
        checksum = read_header(encoded).crc
        for judge in self.acknowledgements:
            judge(batch, checksum)

    def told_committed(self, place: Incarnation, offset: int, what: str) -> None:
        """Check an answer to a client that is only true if every record before `offset` is committed."""
        known_ends = self._known_ends.setdefault(place, [])
        if not known_ends or known_ends[-1][1] < offset:
            known_ends.append((self.world.seconds(), offset))
        if self.committed is not None and offset > self.committed.get(place, 0):
            known = self.committed.get(place, 0)
            self.violation(
                f"{place}: {what} implies that {offset} is committed, but no leader got beyond {known}"
            )

    def told_present_end(self, place: Incarnation, offset: int, what: str, *, asked_s: float) -> None:
        """Check an answer which said that the log ended at `offset` at some moment after `asked_s`: no client
        had learned by then that records from `offset` on are committed."""
        known_ends = self._known_ends.get(place, [])
        earlier = bisect_left(known_ends, asked_s, key=lambda known: known[0])
        if place.at[0] not in self.may_lose and earlier and known_ends[earlier - 1][1] > offset:
            known_s, known = known_ends[earlier - 1]
            self.violation(
                f"{place}: {what} said that the log ends at {offset}, but at {known_s:.4f} s, before the "
                f"request, a client knew that {known} is committed"
            )

    def parted(self, consumer: str, place: Incarnation, offset: int, what: str) -> None:
        """Record that the log no longer matches what a consumer read up to `offset`."""
        if place.at[0] not in self.may_lose:
            self.violation(f"{consumer} read {place} up to {offset}; {what}")

    def sequence_refused(self, batch: Batch, error: str) -> None:
        """Record that a broker refused a sequence although all earlier batches were acknowledged."""
        # During the deletion of a topic, empty replicas may answer before the topic is unknown.
        if batch.at[0] not in self.may_lose | self.may_go:
            self.violation(f"{batch} was refused with {error}")


def _short(value: bytes) -> str:
    return value.split(b" ")[0].decode()
