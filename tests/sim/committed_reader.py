"""Simulated readers of committed records, and of the offsets that transactions commit (KIP-98, KIP-447).

A reader drops what an answer says was aborted, as Kafka's consumers do. No leader may tell it of a last
stable offset that falls, or that lies beyond the high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.control_records import end_marker_of
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import PartitionData
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.sim.client import Client, Surroundings
from tests.sim.consumer import Consumer, Reading
from tests.sim.told_offsets import ToldOffsets
from tests.sim.transaction_history import NOTHING, TransactionHistory
from tests.sim.transactor import group_of

_PAUSE_S = 0.8
_FETCH_VERSION = 7


class CommittedReader(Consumer):
    """Reads the committed records of the topic of transactions."""

    isolation_level = 1

    def __init__(
        self,
        around: Surroundings,
        name: str,
        *,
        follows: Sequence[str],
        version: int,
        told: ToldOffsets,
        transactions: TransactionHistory,
    ) -> None:
        super().__init__(around, name, follows=follows, version=version, told=told)
        self._transactions = transactions

    def limit_of(self, row: PartitionData) -> int:
        return row.last_stable_offset

    def note_offsets(self, reading: Reading, told_by: tuple[int, int], row: PartitionData) -> None:
        super().note_offsets(reading, told_by, row)
        self._transactions.told_stable(
            self.name, reading.place, told_by, row.last_stable_offset, row.high_watermark
        )

    def got(
        self, reading: Reading, records: memoryview, headers: Sequence[BatchHeader], row: PartitionData
    ) -> None:
        """Tell the judges of each record whether it is to be dropped."""
        begins = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
        aborted: set[int] = set()
        for header in headers:
            while begins and begins[0][0] <= header.last_offset:
                aborted.add(begins.pop(0)[1])
            if header.is_control:
                marker = end_marker_of(records, header)
                if marker is not None and not marker.is_commit:
                    aborted.discard(header.producer_id)
                continue
            is_aborted = header.is_transactional and header.producer_id in aborted
            values = self.history.values_of(reading.place, records, header)
            self._transactions.saw(
                self.name, reading.place, header.base_offset, values, is_visible=not is_aborted
            )


class CommittedOffsets(Client):
    """Asks for the offset of the group of one transactional id, and wants a stable one (KIP-447)."""

    def __init__(
        self, around: Surroundings, name: str, transactional_id: str, topic: str, told: TransactionHistory
    ) -> None:
        super().__init__(around, name)
        self._transactional_id = transactional_id
        self._topic = topic
        self._told = told
        self.is_final = False
        """Whether all transactions have ended, so that the next answer is the last one."""

    @property
    def is_done(self) -> bool:
        return self._transactional_id in self._told.final_offsets

    def begin(self) -> None:
        super().begin()
        self._tick()

    def _tick(self) -> None:
        request = FindCoordinatorRequest(key=group_of(self._transactional_id), key_type=0)
        self.send(self.anyone(), request, 3).addCallbacks(self._found, self._again)

    def _again(self, _: object = None) -> None:
        if not self.is_done:
            self.later(_PAUSE_S * self.rng.uniform(0.5, 1.5), self._tick)

    def _found(self, found: FindCoordinatorResponse) -> None:
        if found.error_code != ErrorCode.NONE:
            self._again()
            return
        request = OffsetFetchRequest(
            group_id=group_of(self._transactional_id),
            topics=[OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])],
            groups=[],
            require_stable=True,
        )
        asked = (self._told.least_offset(self._transactional_id), self.is_final)
        answer = self.send(Address(found.host, found.port), request, _FETCH_VERSION)
        answer.addCallbacks(self._answered, self._lost, callbackArgs=asked)

    def _lost(self, failure: Failure) -> None:
        self.refresh()
        self._again()

    def _answered(self, response: OffsetFetchResponse, least: int, is_final: bool) -> None:
        self.history.operations += 1
        row = response.topics[0].partitions[0] if response.topics else None
        if response.error_code == ErrorCode.NONE and row is not None and row.error_code == ErrorCode.NONE:
            offset = max(row.committed_offset, NOTHING)
            self._told.saw_offset(self.name, self._transactional_id, offset, least)
            if is_final:
                self._told.final_offsets[self._transactional_id] = offset
        self._again()
