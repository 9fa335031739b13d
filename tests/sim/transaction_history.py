"""What transactional producers asked and were answered, and the judges of transactions.

A transaction is *visible* where a reader of committed records gets its records. The judges ask of each
transaction: all of it is visible or nothing; nothing before its producer has asked to commit it; all of it
once the commit was acknowledged; nothing if it was aborted, or if its producer was fenced before it asked.
The offsets of a group that it commits follow its records. At the end no transaction is open.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.protocol.control_records import end_marker_of
from tests.sim.checkers import StoredLog
from tests.sim.history import Batch, History, Incarnation
from tests.sim.landlord import Tenure

NOTHING = 0
"""The offset of a group that has committed none: transactions commit the offsets from 1 on."""


class Fate(enum.Enum):
    """What its producer knows about a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "given up while its end was asked for"


@dataclass(eq=False, slots=True)
class Epoch:
    """The id and epoch that a process was given for its transactional id, and when, in seconds, the first
    later epoch was given to a producer: from then on it is fenced."""

    process: str
    producer_id: int
    epoch: int
    fenced_s: float | None = None

    def __str__(self) -> str:
        return f"epoch {self.epoch} of producer {self.producer_id}"


@dataclass(eq=False, slots=True)
class TransactionTold:
    """One transaction. `offset` is the one that it commits for its group, None if it commits none. `asked_s`
    is the time of the first request to commit it, None if there was none. `tenure` is that of the owner for
    whom it writes."""

    transactional_id: str
    number: int
    epoch: Epoch
    tenure: Tenure | None = None
    writes: list[Batch] = field(default_factory=list)
    offset: int | None = None
    asked_s: float | None = None
    fate: Fate = Fate.OPEN

    @property
    def why_invisible(self) -> str | None:
        """Why no reader may see its records; None if readers may."""
        if self.asked_s is None:
            return "nobody has asked to commit it"
        if self.fate is Fate.ABORTED:
            return "it was aborted"
        if self.epoch.fenced_s is not None and self.epoch.fenced_s < self.asked_s:
            return "its producer was fenced before it asked to commit"
        if self.tenure is not None and self.tenure.ended_s is not None and self.tenure.ended_s < self.asked_s:
            return f"{self.tenure.grant} had ended before it asked to commit"
        return None

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.transactional_id}"


@dataclass(slots=True)
class _Ends:
    """What a log says of one transaction: the ends of its records, and which of its values are visible."""

    fates: set[bool] = field(default_factory=set)
    visible: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class TransactionHistory:
    """All transactions of a simulation."""

    history: History
    may_time_out_early: bool = False
    """Whether the clocks of brokers are set, so that a transaction may time out at any time."""
    transactions: list[TransactionTold] = field(default_factory=list)
    inits_asked: Counter[str] = field(default_factory=Counter)
    """How often producers have asked for the epoch of a transactional id."""
    inits_done: Counter[str] = field(default_factory=Counter)
    """How often they were answered, so that the request has no effect later."""
    final_offsets: dict[str, int] = field(default_factory=dict)
    """The offset of the group of each transactional id, when all transactions had ended."""
    _epochs: dict[str, list[Epoch]] = field(default_factory=dict)
    _writers: dict[bytes, TransactionTold] = field(default_factory=dict)
    _stragglers: set[bytes] = field(default_factory=set)
    """What was sent under an epoch after the transaction of that epoch had ended."""
    _seen: dict[Incarnation, dict[int, bool]] = field(default_factory=dict)
    """Whether each offset was visible to readers of committed records."""
    _stable: dict[tuple[str, Incarnation], tuple[tuple[int, int], int]] = field(default_factory=dict)
    """The last stable offset that a leader has told a reader, and who that was."""

    # Producers

    def given(self, transactional_id: str, epoch: Epoch) -> Epoch:
        """A process was given an epoch. Returns the one that it has, which may be one that it had already."""
        known = self._epochs.setdefault(transactional_id, [])
        for other in known:
            if other.producer_id != epoch.producer_id:
                self.history.violation(
                    f"{transactional_id} was given producer id {epoch.producer_id} after {other.producer_id}"
                )
            elif other.epoch == epoch.epoch:
                if other.process != epoch.process:
                    self.history.violation(
                        f"{other.process} and {epoch.process} were both given {epoch} of {transactional_id}"
                    )
                return other
        now_s = self.history.world.seconds()
        for other in known:
            if other.epoch < epoch.epoch and other.fenced_s is None:
                other.fenced_s = now_s
        if any(other.epoch > epoch.epoch for other in known):
            epoch.fenced_s = now_s
        known.append(epoch)
        return epoch

    def went_on(self, transactional_id: str, before: Epoch, epoch: Epoch) -> Epoch:
        """A producer was given its next epoch with the end of a transaction (KIP-890)."""
        if epoch.epoch <= before.epoch:
            self.history.violation(f"{epoch.process} goes on with {epoch} after {before} has ended")
        return self.given(transactional_id, epoch)

    def begun(self, transactional_id: str, epoch: Epoch, tenure: Tenure | None = None) -> TransactionTold:
        number = sum(each.transactional_id == transactional_id for each in self.transactions) + 1
        told = TransactionTold(transactional_id, number, epoch, tenure)
        self.transactions.append(told)
        return told

    def writes(self, told: TransactionTold, batch: Batch) -> None:
        """A transaction is about to write a batch."""
        told.writes.append(batch)
        self.history.batches.append(batch)
        self._writers.update(dict.fromkeys(batch.values, told))

    def straggles(self, batch: Batch) -> None:
        """A producer is about to send a batch under an epoch that has ended: it must not be in the log."""
        self.history.batches.append(batch)
        self._stragglers.update(batch.values)

    def committed(self, told: TransactionTold, sent_s: float) -> None:
        """A commit, asked for at `sent_s`, was acknowledged."""
        told.fate = Fate.COMMITTED
        tenure = told.tenure
        if tenure is not None and tenure.ended_s is not None and tenure.ended_s < (told.asked_s or 0.0):
            self.history.violation(
                f"the commit of {told} was acknowledged, although {tenure.grant} had ended before it was "
                "asked for"
            )
        fenced_s = told.epoch.fenced_s
        if fenced_s is not None and fenced_s < sent_s:
            self.history.violation(
                f"the commit of {told} was acknowledged, although {told.epoch} was fenced "
                f"{sent_s - fenced_s:.3f} s before it was asked for"
            )

    # Readers

    def saw(
        self, reader: str, place: Incarnation, offset: int, values: Sequence[bytes], *, is_visible: bool
    ) -> None:
        """A reader of committed records got these from `offset` on, and kept or dropped them."""
        seen = self._seen.setdefault(place, {})
        for at, value in enumerate(values, start=offset):
            if seen.setdefault(at, is_visible) is not is_visible:
                now, before = ("committed", "aborted") if is_visible else ("aborted", "committed")
                self.history.violation(
                    f"{reader} was told that the record at {at} of {place} is {now}; before, {before}"
                )
            told = self._writers.get(value)
            if told is None:
                if not is_visible:
                    self.history.violation(f"{reader} had to drop {at} of {place}, of no transaction")
                continue
            why = told.why_invisible
            if is_visible and why is not None:
                self.history.violation(f"{reader} got a record of {told} at {at} of {place}, but {why}")
            elif not is_visible and told.fate is Fate.COMMITTED:
                self.history.violation(f"{reader} had to drop a record of {told}, which was committed")

    def told_stable(
        self, reader: str, place: Incarnation, told_by: tuple[int, int], stable: int, high_watermark: int
    ) -> None:
        """A leader told a reader its last stable offset and high watermark. `told_by` is its leader epoch
        and the number of its process."""
        known_by, known = self._stable.get((reader, place), (told_by, 0))
        if known_by == told_by and stable < known:
            self.history.violation(
                f"{reader} got last stable offset {stable} of {place} after {known}, in the same "
                f"leader epoch {told_by[0]}"
            )
        if not 0 <= stable <= high_watermark:
            self.history.violation(
                f"{reader} got last stable offset {stable} of {place}, beyond high watermark {high_watermark}"
            )
        self._stable[reader, place] = (told_by, max(stable, known) if known_by == told_by else stable)

    def least_offset(self, transactional_id: str) -> int:
        """The last offset that the group of an id is known to have committed."""
        committed = (told for told in self._of(transactional_id) if told.fate is Fate.COMMITTED)
        return max((told.offset or NOTHING for told in committed), default=NOTHING)

    def saw_offset(self, reader: str, transactional_id: str, offset: int, least: int) -> None:
        """A reader was answered the committed offset of the group of an id; when it asked, `least` was known
        to be committed."""
        if offset < least:
            self.history.violation(
                f"{reader} was told that the group of {transactional_id} is at {offset}, after {least}"
            )
        for told in self._of(transactional_id):
            if told.offset == offset and told.why_invisible is not None:
                self.history.violation(
                    f"{reader} was told the offset {offset} of {told}, but {told.why_invisible}"
                )

    def _of(self, transactional_id: str) -> Iterator[TransactionTold]:
        return (each for each in self.transactions if each.transactional_id == transactional_id)

    # The end

    def check(self, logs: Mapping[Incarnation, Sequence[StoredLog]]) -> Iterator[str]:
        """All violations in the final logs of the partitions to which transactions have written."""
        ends: dict[TransactionTold, _Ends] = {}
        for place, replicas in logs.items():
            if place.at in self._places():
                yield from self._check_log(place, replicas[0], ends)
        for told in self.transactions:
            yield from _check_ends(told, ends.get(told, _Ends()))
        for transactional_id, offset in self.final_offsets.items():
            committed = (
                told.offset
                for told in self._of(transactional_id)
                if told.offset is not None and True in ends.get(told, _Ends()).fates
            )
            last = max(committed, default=NOTHING)
            if offset != last:
                yield (
                    f"the group of {transactional_id} is at {offset} in the end; its last committed "
                    f"transaction with an offset has {last}"
                )

    def _places(self) -> set[tuple[str, int]]:
        return {batch.at for told in self.transactions for batch in told.writes}

    def _check_log(
        self, place: Incarnation, log: StoredLog, ends: dict[TransactionTold, _Ends]
    ) -> Iterator[str]:
        seen = self._seen.get(place, {})
        is_open: dict[int, list[tuple[int, bytes]]] = {}
        for stored in log.batches:
            header = stored.header
            rows = list(enumerate(stored.values, start=header.base_offset))
            late = self._stragglers.intersection(stored.values)
            if late:
                yield f"{place}: {min(late)!r} is at {rows[0][0]}, but its epoch had ended when it was sent"
                return
            marker = end_marker_of(stored.data, header) if header.is_control else None
            if marker is not None:
                ended = is_open.pop(header.producer_id, [])
                for _, value in ended:
                    end = ends.setdefault(self._writers[value], _Ends())
                    end.fates.add(marker.is_commit)
                    if marker.is_commit:
                        end.visible.add(value)
                yield from _check_seen(place, ended, seen, is_visible=marker.is_commit)
            elif header.is_transactional:
                is_open.setdefault(header.producer_id, []).extend(rows)
            else:
                yield from _check_seen(place, rows, seen, is_visible=True)
        for producer_id, rows in is_open.items():
            told = self._writers[rows[0][1]]
            yield f"{place}: {told} of producer {producer_id} is still open, from {rows[0][0]} on"


def _check_seen(
    place: Incarnation, rows: Sequence[tuple[int, bytes]], seen: Mapping[int, bool], *, is_visible: bool
) -> Iterator[str]:
    word = "committed" if is_visible else "aborted"
    for offset, _ in rows:
        if offset not in seen:
            yield f"{place}: readers of committed records never got {offset}, which is {word}"
            return
        if seen[offset] is not is_visible:
            yield f"{place}: readers of committed records took {offset}, which is {word}, for the opposite"
            return


def _check_ends(told: TransactionTold, end: _Ends) -> Iterator[str]:
    if len(end.fates) > 1:
        yield f"{told} is committed in one place and aborted in another"
    why = told.why_invisible
    if why is not None and end.visible:
        yield f"{told} is committed in the log, but {why}"
    if told.fate is not Fate.COMMITTED and True not in end.fates:
        return
    missing = [value for batch in told.writes for value in batch.values if value not in end.visible]
    if missing:
        word = "its commit was acknowledged" if told.fate is Fate.COMMITTED else "a part of it is committed"
        yield f"{told}: {word}, but {missing[0].split(b' ')[0].decode()} is not visible"
