"""What simulated clients sent, were told and saw: all that the checkers judge by, besides the logs."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.batches import BatchHeader, read_header
from protocol.records import decode_columns
from tests.models.world import World

TopicPartition = tuple[str, int]
NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a partition: a topic that is deleted and made anew has the same name and another id."""

    at: TopicPartition
    topic_id: uuid.UUID = NO_ID

    @property
    def is_internal(self) -> bool:
        """Whether brokers write it, and not producers."""
        return self.at[0].startswith("__")

    def __str__(self) -> str:
        return f"{self.at[0]}-{self.at[1]}"


class Outcome(enum.Enum):
    """What a producer knows of a batch."""

    PENDING = "pending"
    ACKED = "acknowledged"
    UNKNOWN = "unknown"
    """Given up: it may be in the log or not."""


@dataclass(eq=False, slots=True)
class Batch:
    """One batch of one producer. `values` are unlike any other's in the simulation."""

    producer: str
    at: TopicPartition
    number: int
    """The producer's batches for this partition, counted."""
    values: list[bytes]
    acks: int
    is_idempotent: bool
    made_s: float
    sends: int = 0
    outcome: Outcome = Outcome.PENDING
    offset: int | None = None
    """That of its first record, if a broker told it."""
    topic_id: uuid.UUID = NO_ID
    """That of the topic it was made for."""

    def __str__(self) -> str:
        return f"batch {self.number} of {self.producer} for {self.at[0]}-{self.at[1]}"


@dataclass(slots=True)
class History:
    """`seen` has the values that consumers got of each partition, by offset from 0; `violations` is what was
    found wrong while it happened.

    Of the topics in `may_lose` records may vanish that were acknowledged; those in `may_go` may go as a
    whole, and come again.
    """

    world: World
    may_lose: frozenset[str] = frozenset()
    may_go: frozenset[str] = frozenset()
    keeps_acks: frozenset[int] = frozenset({-1})
    """The acks of producers whose acknowledged records may not be lost."""
    batches: list[Batch] = field(default_factory=list)
    seen: dict[Incarnation, list[bytes]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    operations: int = 0
    """Answers that clients got."""
    acknowledgements: list[Callable[[Batch, int], None]] = field(default_factory=list)
    """Called with every batch that a producer got acknowledged, and its checksum."""
    committed: dict[Incarnation, int] | None = None
    """The highest offset that any leader has committed; None where no judge follows that."""
    _decoded: dict[tuple[Incarnation, int, int], list[bytes]] = field(default_factory=dict)

    def violation(self, what: str) -> None:
        self.world.trace("checker", f"VIOLATION {what}")
        self.violations.append(f"{self.world.seconds():.4f} s: {what}")

    def values_of(self, place: Incarnation, records: memoryview, header: BatchHeader) -> list[bytes]:
        """The values of a batch that a consumer got; each is decoded once, however many get it."""
        key = (place, header.base_offset, header.crc)
        values = self._decoded.get(key)
        if values is None:
            values = [value or b"" for value in decode_columns(records, header).values]
            self._decoded[key] = values
        return values

    def saw(self, consumer: str, place: Incarnation, offset: int, values: list[bytes]) -> None:
        """A consumer got these values from `offset` on: they must be what every other one got there."""
        if place.at[0] in self.may_lose:
            return
        seen = self.seen.setdefault(place, [])
        if offset > len(seen):
            self.violation(f"{consumer} got {place} from {offset} on; nobody has got {len(seen)} yet")
            return
        known = seen[offset : offset + len(values)]
        for number, (before, now) in enumerate(zip(known, values, strict=False)):
            if before != now:
                self.violation(
                    f"{consumer} got {_short(now)} at {offset + number} of {place}; "
                    f"before there was {_short(before)}"
                )
                return
        seen.extend(values[len(known) :])

    def acknowledged(self, batch: Batch, encoded: bytes | bytearray) -> None:
        """A producer got the acknowledgement of a batch that it had sent in this form."""
        checksum = read_header(encoded).crc
        for judge in self.acknowledgements:
            judge(batch, checksum)

    def told_committed(self, place: Incarnation, offset: int, what: str) -> None:
        """A client was told something that holds only if everything before `offset` is committed."""
        if self.committed is not None and offset > self.committed.get(place, 0):
            known = self.committed.get(place, 0)
            self.violation(
                f"{place}: {what} implies that {offset} is committed, but no leader got beyond {known}"
            )

    def parted(self, consumer: str, place: Incarnation, offset: int, what: str) -> None:
        """The log is not the one any more that a consumer has read up to `offset`."""
        if place.at[0] not in self.may_lose:
            self.violation(f"{consumer} read {place} up to {offset}; {what}")

    def sequence_refused(self, batch: Batch, error: str) -> None:
        """A broker does not know what came before a batch, all of which was acknowledged."""
        # While a topic goes, some of its replicas are empty before it cannot be found any more.
        if batch.at[0] not in self.may_lose | self.may_go:
            self.violation(f"{batch} was refused with {error}")


def _short(value: bytes) -> str:
    return value.split(b" ")[0].decode()
