"""Compares the acknowledgements that producers got with the records in the topics at the end.

Each record holds the number of its producer's visit, and its own number in that visit. Record N is written to
partition N modulo the number of partitions.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.account import counts_above_zero

_NAME_BYTES = 20
_PADDING = b"soaked and wrung out, soaked and wrung out again; " * 4
_NONE = -1
_SOMEWHERE = -2
"""The offset of a record that is stored, but of which the client does not know where."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Numbers of records.

    `lost`: acknowledged, but not in the topic. `misplaced`: in the topic, but not at the acknowledged offset.
    `duplicated`: further copies of an idempotent producer's record. `repeated`: further copies of another
    producer's record, which are allowed. `failed`: the client reported an error. `foreign`: records that no
    visit wrote.
    """

    acknowledged: int = 0
    consumed: int = 0
    lost: int = 0
    misplaced: int = 0
    duplicated: int = 0
    foreign: int = 0
    failed: int = 0
    repeated: int = 0

    @property
    def faults(self) -> dict[str, int]:
        """The counts that should be zero but are not, by name."""
        return counts_above_zero(self, allowed=("acknowledged", "consumed", "repeated"))


@dataclass(slots=True)
class Visit:
    """One visit of a producer, with the outcome of each of its records."""

    number: int
    topic: str
    partitions: int
    is_idempotent: bool
    may_fail: bool
    offsets: array[int] = field(default_factory=lambda: array("q"))
    """The acknowledged offset of each record, by its number; -1 if it was not acknowledged, -2 if it was
    without an offset."""
    failed: int = 0

    def next_value(self) -> tuple[int, int, bytes]:
        """The next record: its partition, its number, and its value."""
        number = len(self.offsets)
        self.offsets.append(_NONE)
        return number % self.partitions, number, b"%09d %09d " % (self.number, number) + _PADDING

    def told(self, partition: int, number: int, offset: int | None, error: str) -> None:
        """Record the outcome that the client reports for one record: its offset, or an error. Neither means
        that it is stored at an unknown offset: librdkafka says so of a batch that it sent again if the
        broker has restarted since and still knows that it has the batch, but not where."""
        if offset is not None:
            self.offsets[number] = offset
        elif error:
            self.failed += 1
        else:
            self.offsets[number] = _SOMEWHERE


class Ledger:
    """The visits of all producers."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._lock = threading.Lock()

    def open(
        self, topic: str, partitions: int, *, is_idempotent: bool = True, may_fail: bool = False
    ) -> Visit:
        """Begin a new visit. With `may_fail`, another producer may fence this one, so its writes may fail."""
        with self._lock:
            visit = Visit(len(self.visits), topic, partitions, is_idempotent, may_fail)
            self.visits.append(visit)
            return visit

    @property
    def acknowledged(self) -> int:
        return sum(1 for visit in self.visits for offset in visit.offsets if offset != _NONE)

    def balance(self, stored: Iterable[tuple[str, int, int, bytes]]) -> Balance:
        """Compare the visits with the stored records, given as topic, partition, offset and value."""
        copies = [bytearray(len(visit.offsets)) for visit in self.visits]
        in_place = [bytearray(len(visit.offsets)) for visit in self.visits]
        consumed = foreign = 0
        for topic, partition, offset, value in stored:
            consumed += 1
            try:
                visit_number, number = map(int, value[:_NAME_BYTES].split())
                visit = self.visits[visit_number]
                promised = visit.offsets[number]
            except (ValueError, IndexError):
                foreign += 1
                continue
            if topic != visit.topic or partition != number % visit.partitions:
                foreign += 1
                continue
            copies[visit_number][number] = min(copies[visit_number][number] + 1, 255)
            in_place[visit_number][number] |= promised == offset
        lost = misplaced = duplicated = repeated = 0
        for visit, count, right in zip(self.visits, copies, in_place, strict=True):
            for number, promised in enumerate(visit.offsets):
                if promised != _NONE and not count[number]:
                    lost += 1
                elif promised >= 0 and not right[number]:
                    misplaced += 1
                more = max(0, count[number] - 1)
                duplicated += more if visit.is_idempotent else 0
                repeated += 0 if visit.is_idempotent else more
        return Balance(
            acknowledged=self.acknowledged,
            consumed=consumed,
            lost=lost,
            misplaced=misplaced,
            duplicated=duplicated,
            foreign=foreign,
            failed=sum(visit.failed for visit in self.visits if not visit.may_fail),
            repeated=repeated,
        )
