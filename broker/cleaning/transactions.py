"""What compaction does with the batches of transactions (KIP-98, KIP-534).

Compaction does not pass the last stable offset, so each transaction that it meets has ended. Records of
aborted transactions are removed. A marker stays as long as a batch of its transaction was there when the pass
began: a reader needs it, and so does the index of aborted transactions, which then keeps its entry. The
first pass that finds none gives the marker a delete horizon, and a pass after that time removes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.protocol import compaction
from holdfast_log.protocol.batches import NO_TIMESTAMP, BatchHeader
from holdfast_log.protocol.compaction import Rules
from holdfast_log.protocol.control_records import readable_end_marker, with_delete_horizon


class PassTransactions:
    """The transactions of a log that one pass reads in order, from an offset on. `bare` are the ids and
    epochs of producers of which the log remembers nothing but a marker.

    A log may have an aborted transaction for every 150 bytes. So those of a part are learnt at a time: who
    reads a batch that this does not cover stops there until more has been learnt.
    """

    def __init__(self, first_offset: int, bare: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.known_to = first_offset
        """All aborted transactions with records before it are known."""
        self.is_behind = True
        """Whether the next batch needs more than what is known."""
        self._has_learnt = False
        self._coming: list[AbortedEntry] = []
        """The aborted transactions that begin after the present batch, the first one last."""
        self._bare = bare
        self._aborted: dict[int, AbortedEntry] = {}
        """The aborted transactions that are open at the present batch, by producer."""
        self._seen: set[int] = set()
        """The producers that have a batch in the transaction that is open at the present batch."""

    def learn(self, aborted: Iterable[AbortedEntry], known_to: int) -> None:
        """Take the aborted transactions with records from where the known ones end to before `known_to`."""
        new = [each for each in aborted if not self._has_learnt or each.first_offset >= self.known_to]
        self._coming += new
        self._coming.sort(key=lambda each: each.first_offset, reverse=True)
        self.known_to, self._has_learnt, self.is_behind = known_to, True, False

    def covers(self, header: BatchHeader) -> bool:
        """Whether enough is known for the next batch of the log; if not, this `is_behind`."""
        self.is_behind = header.last_offset >= self.known_to
        return not self.is_behind

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the next batch of the log, which holds records, belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        self._seen.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, batch: bytes, header: BatchHeader) -> tuple[bool, AbortedEntry | None]:
        """Whether the next batch of the log, a control batch, is needed no more, and the transaction that the
        index of aborted ones has to keep because of it."""
        self._begin_up_to(header.last_offset)
        marker = readable_end_marker(batch, header)
        if marker is None:
            return not header.record_count, None
        producer_id = header.producer_id
        aborted = self._aborted.pop(producer_id, None) if not marker.is_commit else None
        is_seen = producer_id in self._seen
        self._seen.discard(producer_id)
        return not is_seen, aborted if is_seen else None

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether a control batch is the only one left that has its producer's epoch."""
        return (header.producer_id, header.producer_epoch) in self._bare

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            begun = self._coming.pop()
            self._aborted.setdefault(begun.producer_id, begun)


def without_records(header: BatchHeader, *, is_kept: bool) -> bytes:
    """What remains of a batch whose records are all removed: its header if that `is_kept`."""
    nothing = (b"", 0, NO_TIMESTAMP, False, False)
    return compaction.rewritten(header, nothing, NO_TIMESTAMP, is_kept=is_kept)


def remaining_marker(
    batch: bytes, header: BatchHeader, rules: Rules, *, may_go: bool, is_kept: bool
) -> bytes:
    """What remains of a control batch. `may_go`: no batch of its transaction was there."""
    if not may_go or not header.record_count:
        return batch if header.record_count or is_kept else b""
    if not header.has_delete_horizon:
        return with_delete_horizon(batch, header, rules.horizon_ms)
    if header.base_timestamp > rules.now_ms:
        return batch
    return without_records(header, is_kept=is_kept)
