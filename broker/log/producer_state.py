"""State of the idempotent producers of a log: their epochs and last five batches (KIP-98, KIP-360).

A leader uses the state to recognise a repeated batch, which it acknowledges with the offset of the first
attempt, and to refuse a gap in the sequences. When a log is opened, the state is restored from a snapshot in
its directory and from the headers of the later batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from holdfast_log.broker.log.append_ids import NO_DIGEST, AppendIdLimits, AppendIds, NamedAppend
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE, Introductions
from holdfast_log.broker.log.producer_entry import NO_MARKER, NO_SEQUENCE, AppendedBatch, ProducerEntry
from holdfast_log.broker.log.producer_totals import ProducerTotals
from holdfast_log.broker.log.sequence_checks import (
    check_epoch,
    check_inside,
    check_same_transaction,
    check_sequence,
)
from holdfast_log.broker.log.transactions import NO_TRANSACTION, AbortedEntry, Transactions
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.control_records import EndMarker, readable_end_marker
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.records import named_append_of
from holdfast_log.protocol.wire import Buffer

MAX_PRODUCERS = 100_000
"""Maximum number of producers in the state of one log. One more replaces the longest unused one of the source
that introduced the most (`introductions`)."""
MAX_PRODUCERS_PER_SOURCE = 10_000
"""Maximum number of producers in the state of one log that one source may introduce. One more replaces the
longest unused of that source."""

_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_BATCH = struct.Struct(">qiqiq")
_LATEST_MS = 2**63 - 1


# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__


class ProducerStates:
    """The producers of one log, the least recently active first. A producer expires `expiration_ms` after its
    last write."""

    __slots__ = (
        "__weakref__",
        "_entries",
        "_max_per_source",
        "_max_producers",
        "append_ids",
        "expiration_ms",
        "introductions",
        "is_complete",
        "map_end_offset",
        "totals",
        "transactions",
    )

    def __init__(
        self,
        expiration_ms: int = 86_400_000,
        max_producers: int = MAX_PRODUCERS,
        append_id_limits: AppendIdLimits | None = None,
        max_per_source: int = MAX_PRODUCERS_PER_SOURCE,
    ) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._max_producers = max_producers
        self._max_per_source = max_per_source
        self.introductions = Introductions()
        self.expiration_ms = expiration_ms
        self.map_end_offset = 0
        """All batches below this offset are included in the state."""
        self.is_complete = True
        """Whether they really are: a damaged segment may have hidden some."""
        self.append_ids = AppendIds(append_id_limits)
        self.transactions = Transactions()
        """The transactions that are open, or whose end is not committed yet."""
        self.totals: ProducerTotals | None = None
        """What limits all logs of the broker together, once the log is one of the broker's."""

    def use_totals(self, totals: ProducerTotals) -> None:
        """Be limited, from now on, together with the other logs of a broker."""
        self.totals = totals
        totals.adopt(self)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        return list(self._entries.values())

    def ids(self) -> frozenset[int]:
        """The ids of all producers, as they are now."""
        return frozenset(self._entries)

    def check(self, headers: Sequence[BatchHeader]) -> AppendedBatch | None:
        """Check whether a leader may append these batches, in order; nothing is changed.

        Returns the appended batch that one of them repeats, or None. Raises BrokerError:
        INVALID_PRODUCER_EPOCH for an epoch below the producer's, OUT_OF_ORDER_SEQUENCE_NUMBER for a sequence
        that is neither the next one nor that of a remembered batch, UNKNOWN_PRODUCER_ID for the sequence of a
        batch of an earlier transaction, INVALID_TXN_STATE for a batch outside of the transaction that its
        producer has open. Control batches are not checked here (`check_marker`).
        """
        if len(headers) == 1:
            return self._check_one(headers[0])
        ahead: dict[int, tuple[int, int]] = {}  # Changes by earlier batches of this append.
        for header in headers:
            if header.producer_id < 0 or header.is_control:
                continue
            entry = self._entries.get(header.producer_id)
            if header.producer_id in ahead:
                epoch, last_sequence = ahead[header.producer_id]
            elif entry is not None:
                duplicate = entry.find(header)
                if duplicate is not None:
                    check_same_transaction(header, duplicate, entry.transaction_offset)
                    return duplicate
                epoch, last_sequence = entry.epoch, entry.last_sequence
            else:
                # An unknown producer, perhaps because retention removed all its records: accept any sequence
                # (KIP-360).
                ahead[header.producer_id] = header.producer_epoch, header.last_sequence
                continue
            check_sequence(header, epoch, last_sequence)
            if entry is not None:
                check_inside(header, entry.transaction_offset)
            ahead[header.producer_id] = header.producer_epoch, header.last_sequence
        return None

    def _check_one(self, header: BatchHeader) -> AppendedBatch | None:
        """`check` for the only batch of an append."""
        producer_id = header.producer_id
        if producer_id < 0 or header.is_control:
            return None
        entry = self._entries.get(producer_id)
        if entry is None:
            # An unknown producer, as in `check`.
            return None
        duplicate = entry.find(header)
        if duplicate is None:
            check_sequence(header, entry.epoch, entry.last_sequence)
            if entry.transaction_offset != NO_TRANSACTION:
                check_inside(header, entry.transaction_offset)
        elif header.is_transactional:
            check_same_transaction(header, duplicate, entry.transaction_offset)
        return duplicate

    def check_marker(self, header: BatchHeader, marker: EndMarker) -> None:
        """Check whether a coordinator may end its transaction of a producer; nothing is changed.

        Raises BrokerError: INVALID_PRODUCER_EPOCH for an epoch below the producer's,
        TRANSACTION_COORDINATOR_FENCED for a coordinator that has been replaced.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        check_epoch(header, entry.epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise error_for(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator in epoch {marker.coordinator_epoch} ends a transaction of producer "
                f"{header.producer_id}, which has one in epoch {entry.coordinator_epoch} by now",
            )

    def last_marker_of(self, producer_id: int) -> int:
        """The offset of a producer's last marker that this process has seen; `NO_MARKER` if it has seen
        none."""
        entry = self._entries.get(producer_id)
        return NO_MARKER if entry is None else entry.ended_at

    def continues_transaction(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to a transaction that its producer has open in this log. One of a later
        epoch begins another."""
        entry = self._entries.get(header.producer_id)
        return (
            entry is not None
            and entry.transaction_offset != NO_TRANSACTION
            and entry.epoch == header.producer_epoch
        )

    def is_in_transaction(self, producer_id: int) -> bool:
        """Whether a producer has a transaction open in this log."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_offset != NO_TRANSACTION

    def update(
        self, header: BatchHeader, base_offset: int, now_ms: int, batch: Buffer | None = None
    ) -> AbortedEntry | None:
        """Add an appended batch to the state, without checking it. `batch` holds its bytes, at the header's
        position; a control batch needs them. Returns the transaction that the batch aborts, if it does."""
        _, _, _, _, _, _, _, offset_delta, _, max_timestamp, producer_id, epoch, _, _ = header
        if producer_id < 0:
            return None
        aborted = None
        entry = self._entries.pop(producer_id, None)
        is_new = entry is None
        if entry is None:
            entry = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.last_write_ms = now_ms
        is_marked = not header.is_plain
        if is_marked and header.is_control:
            # A transaction's end (commit or abort): it has no sequence.
            marker = None if batch is None else readable_end_marker(batch, header)
            if marker is not None:
                aborted = self._end(entry, marker, base_offset)
        else:
            values = (header.last_sequence, base_offset + offset_delta, offset_delta, max_timestamp)
            entry.batches.append(_new_tuple(AppendedBatch, values))
            if is_marked and header.is_transactional and entry.transaction_offset == NO_TRANSACTION:
                entry.transaction_offset = base_offset
                self.transactions.begin(base_offset)
        self._entries[producer_id] = entry
        if is_new:
            self._note_new(producer_id, now_ms)
        return aborted

    def _end(self, entry: ProducerEntry, marker: EndMarker, offset: int) -> AbortedEntry | None:
        """End a producer's transaction by the marker at an offset. Returns it if it is aborted."""
        first = entry.transaction_offset
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.transaction_offset, entry.ended_at = NO_TRANSACTION, offset
        if first == NO_TRANSACTION:
            return None
        stable = self.transactions.end(first, offset)
        return None if marker.is_commit else AbortedEntry(entry.producer_id, first, offset, stable)

    def introduce(self, producer_id: int, source: str, now_ms: int) -> None:
        """Note that a source begins to use a producer id, just before its first append. A source that has
        introduced too many loses the longest unused of its own."""
        if producer_id in self._entries:
            return
        if self.introductions.count(source) >= self._max_per_source:
            self._evict(source)
        self._introduced(producer_id, source, now_ms)

    def _introduced(self, producer_id: int, source: str, now_ms: int) -> None:
        if self.totals is not None and producer_id not in self.introductions:
            self.totals.producer_comes(source)
        self.introductions.add(producer_id, source, now_ms)

    def _note_new(self, producer_id: int, now_ms: int) -> None:
        self._introduced(producer_id, UNKNOWN_SOURCE, now_ms)
        while len(self._entries) > self._max_producers:
            if not self._evict(self.introductions.largest()):
                break

    def _evict(self, source: str) -> bool:
        """Forget the longest unused producer of a source. Returns whether that was done: not if those that
        were looked at all have open transactions, which would never end."""
        entries = self._entries

        def last_write_ms(producer_id: int) -> int:
            # A producer that was introduced, and whose append then failed, goes first.
            entry = entries.get(producer_id)
            if entry is None:
                return -1
            return entry.last_write_ms if entry.transaction_offset == NO_TRANSACTION else _LATEST_MS

        producer_id = self.introductions.longest_unused(source, last_write_ms)
        if self.is_in_transaction(producer_id):
            return False
        self._remove(producer_id)
        return True

    @property
    def producer_count(self) -> int:
        """Number of producers, those included that are just about to write for the first time."""
        return len(self.introductions)

    @property
    def id_count(self) -> int:
        """Number of append ids."""
        return len(self.append_ids)

    def count_of(self, source: str) -> int:
        """Number of producers that a source has introduced."""
        return self.introductions.count(source)

    def sources(self) -> Iterable[str]:
        """The sources of the producers."""
        return self.introductions.sources()

    def forget_producers(self, count: int, source: str | None) -> None:
        """Forget so many producers of a source, the longest unused first; of the source with the most if
        `source` is None."""
        for _ in range(min(count, len(self.introductions))):
            if not self._evict(self.introductions.largest() if source is None else source):
                break

    def forget_ids(self, count: int) -> None:
        """Forget so many append ids, the oldest of the producer with the most first."""
        self.append_ids.forget_some(count)

    def _remove(self, producer_id: int) -> None:
        self._entries.pop(producer_id, None)
        self.introductions.discard(producer_id)

    def find(self, header: BatchHeader) -> AppendedBatch | None:
        """The remembered batch that `header` repeats; None if it repeats none."""
        entry = self._entries.get(header.producer_id)
        return None if entry is None else entry.find(header)

    def remember_id(self, batch: memoryview, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember the append id of a batch that is in the log at `base_offset`. If its records cannot be
        read, or compaction has removed the first of them, the id is unknown."""
        try:
            named = named_append_of(batch, header)
        except BrokerError:
            named = None
        if named is None:
            self.append_ids.skip_to(base_offset + 1)
            return
        append_id, digest = named
        append = NamedAppend(
            base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            header.producer_id,
            now_ms,
            digest or NO_DIGEST,
        )
        if self.totals is not None and self.append_ids.find(append_id) is None:
            self.totals.append_id_comes()
        self.append_ids.add(append_id, append, self.introductions.source_of(header.producer_id))

    @property
    def first_open_transaction(self) -> int | None:
        """The offset at which the oldest open transaction began; None if none is open."""
        return self.transactions.first_open

    def expire(self, now_ms: int) -> int:
        """Remove expired producers that have no open transaction. Returns their number."""
        expired = []
        for entry in self._entries.values():
            if now_ms - entry.last_write_ms < self.expiration_ms:
                break
            if entry.transaction_offset == NO_TRANSACTION:
                expired.append(entry.producer_id)
        for producer_id in expired:
            self._remove(producer_id)
        return len(expired)

    def clear(self, map_end_offset: int) -> None:
        """Forget everything: the log has no batches before `map_end_offset`, or they have not been read."""
        self._entries.clear()
        self.introductions.clear()
        self.append_ids.clear(map_end_offset)
        self.transactions.clear()
        self.map_end_offset = map_end_offset
        self.is_complete = True

    def encode(self) -> bytes:
        """The state as a Kafka snapshot, version 1.

        Kafka's entry has only the last batch of a producer. All remembered batches follow after the entries,
        and then the append ids, in bytes that Kafka's reader covers by its CRC but does not parse: Holdfast
        restores five batches, Kafka one.
        """
        entries = list(self._entries.values())
        body = bytearray(_COUNT.pack(len(entries)))
        remembered = bytearray()
        for entry in entries:
            last = entry.batches[-1] if entry.batches else AppendedBatch(NO_SEQUENCE, -1, 0, -1)
            body += _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_write_ms,
                entry.coordinator_epoch,
                entry.transaction_offset,
            )
            for batch in entry.batches:
                remembered += _BATCH.pack(entry.producer_id, *batch)
        body += remembered
        body += self.transactions.encode()
        body += self.append_ids.encode()
        return _HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, data: bytes, map_end_offset: int) -> None:
        """Replace the state by that of a snapshot. Raises ValueError for a damaged snapshot."""
        entries = decode_snapshot(data)
        count = _COUNT.unpack_from(data, _HEAD.size)[0]
        rows = memoryview(data)[_HEAD.size + _COUNT.size + count * _ENTRY.size :]
        self.append_ids.restore(rows, map_end_offset)
        begun = [entry.transaction_offset for entry in entries]
        self.transactions.restore([first for first in begun if first != NO_TRANSACTION], rows)
        # Oldest first, whichever program wrote the file.
        self._entries = {
            entry.producer_id: entry for entry in sorted(entries, key=lambda entry: entry.last_write_ms)
        }
        self.introductions.clear()
        for entry in self._entries.values():
            self.introductions.add(entry.producer_id, UNKNOWN_SOURCE, entry.last_write_ms)
        self.map_end_offset = map_end_offset
        if self.totals is not None:
            self.totals.adopt(self)


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The entries of a snapshot, Kafka's or Holdfast's. Raises ValueError for a damaged snapshot."""
    body = memoryview(data)[_HEAD.size :]
    if len(body) < _COUNT.size:
        raise ValueError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise ValueError(f"unsupported producer snapshot version {version}")
    if crc32c(body) != crc:
        raise ValueError("the CRC-32C of the producer snapshot does not match")
    count = _COUNT.unpack_from(body)[0]
    entries_end = _COUNT.size + count * _ENTRY.size
    if count < 0 or entries_end > len(body) or (len(body) - entries_end) % _BATCH.size:
        raise ValueError(f"{count} producers do not fit into {len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    newest: dict[int, AppendedBatch] = {}
    for values in _ENTRY.iter_unpack(body[_COUNT.size : entries_end]):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, *rest = values
        entry = ProducerEntry(producer_id, epoch)
        entry.last_write_ms = timestamp
        entry.coordinator_epoch, entry.transaction_offset = rest
        entries[producer_id] = entry
        if last_sequence >= 0:
            newest[producer_id] = AppendedBatch(last_sequence, last_offset, offset_delta, timestamp)
    for producer_id, *batch in _BATCH.iter_unpack(body[entries_end:]):
        if producer_id in entries:
            entries[producer_id].batches.append(AppendedBatch(*batch))
    for producer_id, last in newest.items():
        # Kafka's snapshots have only the last batch.
        if not entries[producer_id].batches:
            entries[producer_id].batches.append(last)
    return list(entries.values())
