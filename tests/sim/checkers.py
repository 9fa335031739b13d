"""Judges that compare the answers that clients got with the log files on the brokers' disks.

Each judge returns its violations as sentences. An empty result means that nothing is wrong.
"""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from holdfast_log.protocol.batches import BatchHeader, has_valid_crc, split
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.records import decode_columns
from tests.models.disk import SimDisk
from tests.sim.history import Batch, History, Incarnation, Outcome
from tests.sim.uncounted import uncounted_offsets

_NONE: Mapping[bytes, int] = MappingProxyType({})


@dataclass(frozen=True)
class StoredBatch:
    """A batch in a log file, with a valid checksum."""

    header: BatchHeader
    data: bytes

    @cached_property
    def values(self) -> list[bytes]:
        """The values of its records. Decoded from one replica only; the others are compared by checksum."""
        return [value or b"" for value in decode_columns(self.data, self.header).values]

    @property
    def identity(self) -> tuple[int, int, int, int]:
        header = self.header
        return header.base_offset, header.last_offset_delta, header.crc, header.leader_epoch


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One replica of a partition, read from its files."""

    where: str
    batches: tuple[StoredBatch, ...]
    start_offset: int = 0
    """The log start offset. The files may hold earlier records, which were deleted."""

    @property
    def values(self) -> dict[int, bytes]:
        """Record values by offset."""
        return {
            stored.header.base_offset + number: value
            for stored in self.batches
            for number, value in enumerate(stored.values)
        }

    @property
    def written(self) -> dict[int, bytes]:
        """Record values by offset, without those of the markers that end transactions."""
        return {
            stored.header.base_offset + number: value
            for stored in self.batches
            if not stored.header.is_control
            for number, value in enumerate(stored.values)
        }

    @property
    def rows(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        """Keys and values by offset."""
        found: dict[int, tuple[bytes | None, bytes | None]] = {}
        for stored in self.batches:
            columns = decode_columns(stored.data, stored.header)
            found.update(zip(columns.offsets, zip(columns.keys, columns.values, strict=True), strict=True))
        return found

    @property
    def uncounted(self) -> frozenset[int]:
        """The offsets of records of aborted transactions, and of markers."""
        return uncounted_offsets((stored.header, stored.data) for stored in self.batches)

    @property
    def has_gaps(self) -> bool:
        """Whether compaction has removed records between others."""
        headers = [stored.header for stored in self.batches]
        return any(header.record_count <= header.last_offset_delta for header in headers) or any(
            following.base_offset > header.next_offset for header, following in itertools.pairwise(headers)
        )

    @property
    def end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start_offset


def read_log(disk: SimDisk, path: str, where: str, start_offset: int = 0) -> StoredLog:
    """Read the replica in one directory, whose log starts at `start_offset`. Raises ValueError if it is
    missing or damaged."""
    name = posixpath.basename(path)
    if not disk.is_directory(path):
        raise ValueError(f"{name} is not on {where}")
    batches = [
        stored
        for file in disk.list(path)
        if file.endswith(".log")
        for stored in _batches(disk.read(posixpath.join(path, file)), f"{file} of {name} on {where}")
    ]
    return StoredLog(where, tuple(batches), start_offset)


def _batches(data: bytes, where: str) -> Iterator[StoredBatch]:
    try:
        for header in split(data):
            if not has_valid_crc(data, header):
                raise ValueError(f"{where}: the batch at {header.base_offset} is damaged")
            yield StoredBatch(header, data)
    except BrokerError as error:
        raise ValueError(f"{where}: {error}") from error


def check_all(history: History, logs: Mapping[Incarnation, Sequence[StoredLog]]) -> list[str]:
    """All violations in the final logs: replicas against each other and against the clients' history."""
    found = list(history.violations)
    for place, replicas in logs.items():
        name = str(place)
        deleted = history.deleted.get(place, 0)
        # Brokers also compact the committed offsets of groups, where a segment ended although it was small.
        is_compacted = place.at[0] in history.compacted or (
            place.is_internal and any(log.has_gaps for log in replicas)
        )
        for log in replicas:
            found += check_offsets(name, log, deleted, has_gaps=is_compacted)
        if is_compacted:
            found += check_same_state(name, replicas, deleted, history.tombstones.get(place, _NONE))
        else:
            found += check_equal(name, replicas, deleted)
        if place.is_internal:
            continue
        # Batches sent to a deleted topic of the same name may arrive late, in this one.
        sent = [batch for batch in history.batches if batch.at == place.at]
        meant = [batch for batch in sent if batch.topic_id == place.topic_id]
        truth = replicas[0]
        may_lose = place.at[0] in history.may_lose
        found += check_invented(name, truth, sent)
        found += check_repeated(name, truth, sent)
        found += check_order(name, truth, meant)
        if not may_lose:
            kept = [batch for batch in meant if batch.offset is None or batch.offset >= deleted]
            if is_compacted:
                found += check_acknowledged_or_superseded(truth, kept, history.tombstones.get(place, _NONE))
            else:
                found += check_acknowledged(truth, kept, history.keeps_acks)
            found += check_seen(name, truth, history.seen.get(place, []), deleted, has_gaps=is_compacted)
    return found


def check_offsets(name: str, log: StoredLog, deleted: int = 0, *, has_gaps: bool = False) -> Iterator[str]:
    """Check that offsets are unique and dense, unless compaction makes gaps, and that leader epochs never
    decrease. Otherwise only records before `deleted` may be missing."""
    if log.start_offset > deleted:
        yield f"{name} on {log.where} starts at {log.start_offset}, but {deleted} was not deleted"
    first = log.batches[0].header.base_offset if log.batches else 0
    expected, epoch = min(first, deleted), -1
    for stored in log.batches:
        header = stored.header
        is_after_gap = has_gaps and header.base_offset > expected
        if header.base_offset != expected and not is_after_gap:
            yield f"{name} on {log.where} has offset {header.base_offset}, but {expected} is expected"
        if header.leader_epoch < epoch:
            yield f"{name} on {log.where}: epoch {header.leader_epoch} at {header.base_offset} after {epoch}"
        expected, epoch = header.next_offset, max(epoch, header.leader_epoch)


def check_equal(name: str, replicas: Sequence[StoredLog], deleted: int = 0) -> Iterator[str]:
    """Check that all replicas hold the same batches, apart from those before `deleted`."""
    first = replicas[0]
    kept = _from(first, deleted)
    for other in replicas[1:]:
        if other.end_offset != first.end_offset:
            yield (
                f"{name} ends at {first.end_offset} on {first.where}, at {other.end_offset} on {other.where}"
            )
        for one, two in zip(kept, _from(other, deleted), strict=False):
            if one.identity != two.identity:
                yield (
                    f"{name} differs: {first.where} has {_told(one)}, {other.where} has {_told(two)} "
                    f"at {one.header.base_offset}"
                )
                break


def check_same_state(
    name: str, replicas: Sequence[StoredLog], deleted: int = 0, tombstones: Mapping[bytes, int] = _NONE
) -> Iterator[str]:
    """Check that all replicas of a compacted log end alike, hold the same record at each offset that they
    share, and the same last record of each key, apart from records before `deleted`, those of aborted
    transactions, and markers.

    `tombstones` has the offset of the last tombstone of each key that a cleaner has met. It may be gone from
    some replicas, and others, which were away for longer than delete.retention.ms, may never have got it."""
    first = replicas[0]
    rows = _rows_from(first, deleted)
    uncounted = {offset for replica in replicas for offset in replica.uncounted}
    state = _state_of(rows, uncounted)
    for other in replicas[1:]:
        if other.end_offset != first.end_offset:
            yield (
                f"{name} ends at {first.end_offset} on {first.where}, at {other.end_offset} on {other.where}"
            )
        others = _rows_from(other, deleted)
        for offset in rows.keys() & others.keys():
            if rows[offset] != others[offset]:
                yield (
                    f"{name} differs at {offset}: {rows[offset]} on {first.where}, {others[offset]} on "
                    f"{other.where}"
                )
        their_state = _state_of(others, uncounted)
        for key in state.keys() | their_state.keys():
            mine, theirs = state.get(key), their_state.get(key)
            newest = max(-1 if mine is None else mine, -1 if theirs is None else theirs)
            if mine != theirs and newest > tombstones.get(key or b"", -1):
                yield (
                    f"{name}: the last record of {key!r} is at {state.get(key)} on {first.where}, at "
                    f"{their_state.get(key)} on {other.where}"
                )


def _state_of(
    rows: Mapping[int, tuple[bytes | None, bytes | None]], uncounted: Collection[int]
) -> dict[bytes | None, int]:
    """The offset of the last record of each key that counts."""
    return {key: offset for offset, (key, _) in sorted(rows.items()) if offset not in uncounted}


def _rows_from(log: StoredLog, offset: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {at: row for at, row in log.rows.items() if at >= offset}


def check_acknowledged_or_superseded(
    log: StoredLog, sent: Sequence[Batch], tombstones: Mapping[bytes, int] = _NONE
) -> Iterator[str]:
    """Check that every acknowledged record of a compacted log is at its offset, unless a later one has its
    key. `tombstones` has the offset of the last tombstone of each key that a cleaner has met: it and the
    earlier records of the key may all be gone. Each batch has one record, whose key is `Batch.key`."""
    rows = _rows_from(log, log.start_offset)
    last = {key: offset for offset, (key, _) in sorted(rows.items())}
    for batch in sent:
        if batch.acks != -1 or batch.outcome is not Outcome.ACKED or batch.offset is None:
            continue
        if batch.offset in rows:
            if (rows[batch.offset][1] or b"") != batch.values[0]:
                yield f"{batch} was acknowledged at offset {batch.offset}, where another record is"
        elif max(last.get(batch.key, -1), tombstones.get(batch.key or b"", -1)) < batch.offset:
            yield (
                f"{batch} was acknowledged at offset {batch.offset}, but is lost; no later record has its key"
            )


def _from(log: StoredLog, offset: int) -> Sequence[StoredBatch]:
    """The batches of a log that end after `offset`."""
    if not offset:
        return log.batches
    return [stored for stored in log.batches if stored.header.next_offset > offset]


def check_acknowledged(log: StoredLog, sent: Sequence[Batch], acks: Collection[int] = (-1,)) -> Iterator[str]:
    """Check that every record acknowledged with one of these acks (-1 is all) is at its acknowledged
    offset."""
    values = log.values
    anywhere = set(values.values())
    for batch in sent:
        if batch.acks not in acks or batch.outcome is not Outcome.ACKED:
            continue
        missing = [value for value in batch.values if value not in anywhere]
        if missing:
            yield f"{batch} was acknowledged at offset {batch.offset}, but is lost"
        elif batch.offset is not None:
            there = [values.get(batch.offset + number) for number in range(len(batch.values))]
            if there != batch.values:
                yield f"{batch} was acknowledged at offset {batch.offset}, but is at another offset"


def check_invented(name: str, log: StoredLog, sent: Sequence[Batch]) -> Iterator[str]:
    """Check that some producer sent every record in the log to this partition."""
    known = {value for batch in sent for value in batch.values}
    markers = {stored.header.base_offset for stored in log.batches if stored.header.is_control}
    for offset, value in log.values.items():
        if value not in known and offset not in markers:
            yield f"{name} has a record at {offset} that no producer sent: {value[:40]!r}"


def check_repeated(name: str, log: StoredLog, sent: Sequence[Batch]) -> Iterator[str]:
    """Check that the log holds each record of an idempotent producer at most once, and any other record at
    most as often as it was sent."""
    counts = Counter(value for value in log.values.values())
    for batch in sent:
        allowed = 1 if batch.is_idempotent else batch.sends
        for value in batch.values:
            if value and counts[value] > allowed:
                yield f"{name} has a record of {batch} {counts[value]} times, {allowed} allowed"
                break


def check_order(name: str, log: StoredLog, sent: Sequence[Batch]) -> Iterator[str]:
    """Check that acknowledged records of an idempotent producer are in the order of sending."""
    offsets = {value: offset for offset, value in log.values.items()}
    last: dict[str, tuple[int, Batch]] = {}
    for batch in sent:
        if not batch.is_idempotent or batch.outcome is not Outcome.ACKED or batch.acks != -1:
            continue
        offset = offsets.get(batch.values[0])
        before = last.get(batch.producer)
        if offset is None:
            continue
        if before is not None and offset < before[0]:
            yield f"{name}: {batch} is at {offset}, before {before[1]} at {before[0]}"
        last[batch.producer] = (offset, batch)


def check_seen(
    name: str, log: StoredLog, seen: Sequence[bytes], deleted: int = 0, *, has_gaps: bool = False
) -> Iterator[str]:
    """Check that the log holds every record a consumer got, apart from those before `deleted`, and that
    consumers got every record."""
    values = log.values
    for offset, value in enumerate(seen[deleted:], start=deleted):
        if has_gaps and (not value or offset not in values):
            continue
        if values.get(offset) != value:
            now = values.get(offset, b"")
            yield f"{name}: consumers got {value[:40]!r} at {offset}, but the log has {now[:40]!r}"
            return
    if len(seen) < log.end_offset:
        yield f"{name} ends at {log.end_offset}, but consumers got only {len(seen)} records"


def _told(stored: StoredBatch) -> str:
    header = stored.header
    return f"[{header.base_offset}..{header.last_offset}] of epoch {header.leader_epoch}"
