"""One partition of a fake cluster: its log in memory, and what the broker's `ProducerStates` remember."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_log.broker.log.append_ids import NamedAppend
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.transactions import AbortedEntry
from holdfast_log.clients.fetching.isolation import skipped
from holdfast_log.protocol.batches import BatchHeader, assign, split
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import (
    AbortedTransaction,
)
from holdfast_log.protocol.records import Record, append_id_of, iterate


@dataclass
class FakePartition:
    """One partition's log: batches as bytes, offsets assigned."""

    leader: int
    leader_epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    max_batch_bytes: int = 2**31
    batches: list[bytes] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    """Aborted transactions that a test has made up; those of producers are in `ended`."""
    ended: list[AbortedEntry] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    followers: dict[int, int | None] = field(default_factory=dict)
    """The followers that serve consumers, and where the log of each ends; None: where the leader's ends."""

    def end_at(self, node: int) -> int:
        """Where the log of the leader or of a follower ends."""
        end = self.followers.get(node)
        return self.end_offset if end is None else end

    def has_seen(self, records: memoryview) -> bool:
        """Whether a batch repeats one of its producer's last batches, or an append with the same id."""
        (header,) = split(bytearray(records))
        return self.producers.find(header) is not None or self.named(records) is not None

    def named(self, records: memoryview) -> NamedAppend | None:
        """The append with the id of this batch; None if there is none, or its producer sends it again."""
        (header,) = split(bytearray(records))
        if not header.has_append_id or self.producers.find(header) is not None:
            return None
        return self.producers.append_ids.find(append_id_of(records, header) or b"")

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        """Append one batch, unless it is a duplicate or refused. Returns its error and first offset."""
        batch = bytearray(records)
        (header,) = split(batch)
        if header.size > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        named = self.named(records)
        if named is not None:
            return ErrorCode.NONE, named.first_offset
        try:
            repeated = self.producers.check([header])
        except BrokerError as error:
            return ErrorCode(error.code), -1
        if repeated is not None:
            return ErrorCode.NONE, repeated.first_offset
        offset = self.end_offset
        assign(batch, 0, offset, self.leader_epoch)
        self._remember(memoryview(batch), header, offset)
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count
        return ErrorCode.NONE, offset

    def end_transaction(self, marker: bytearray) -> None:
        """Append a coordinator's marker."""
        (header,) = split(marker)
        assign(marker, 0, self.end_offset, self.leader_epoch)
        self._remember(memoryview(marker), header, self.end_offset)
        self.batches.append(bytes(marker))
        self.end_offset += 1

    @property
    def stable_offset(self) -> int:
        """The last stable offset."""
        first_open = self.producers.first_open_transaction
        return self.end_offset if first_open is None else first_open

    def aborted_from(self, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records from an offset on."""
        return self.aborted + [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in self.ended
            if each.last_offset >= offset
        ]

    def cut(self, offset: int) -> None:
        """Lose all batches from `offset` on, as in an unclean election, which begins a new leader epoch."""
        self.batches = [batch for batch in self.batches if split(batch)[0].next_offset <= offset]
        self.end_offset = split(self.batches[-1])[0].next_offset if self.batches else 0
        self.leader_epoch += 1
        self.producers.clear(0)
        self.ended.clear()
        for batch in self.batches:
            (header,) = split(batch)
            self._remember(memoryview(batch), header, header.base_offset)

    def _remember(self, batch: memoryview, header: BatchHeader, offset: int) -> None:
        aborted = self.producers.update(header, offset, 0, batch)
        if aborted is not None:
            self.ended.append(aborted)
        if header.has_append_id:
            self.producers.remember_id(batch, header, offset, now_ms=0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that has records, and the offset after its last one."""
        headers = [header for batch in self.batches for header in split(batch)]
        found = [header for header in headers if header.leader_epoch <= epoch]
        if not found:
            return -1, -1
        if len(found) == len(headers) and self.leader_epoch <= epoch:
            return self.leader_epoch, self.end_offset
        return found[-1].leader_epoch, found[-1].next_offset

    def records(self) -> list[Record]:
        """All records but markers, whether their transaction is committed or not."""
        return [
            record for batch in self.batches if not split(batch)[0].is_control for record in iterate(batch)
        ]

    def committed_records(self) -> list[Record]:
        """The records that readers of committed records get."""
        log = memoryview(b"".join(self.batches))
        headers = split(log)
        is_left_out = skipped(log, headers, self.aborted_from(0))
        return [
            record
            for header, left_out in zip(headers, is_left_out, strict=True)
            if not left_out and header.base_offset < self.stable_offset
            for record in iterate(log, header)
        ]
