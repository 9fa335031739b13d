"""Simulated processes that repeat conditional appends with an id which another process has sent.

Such a process stands for one that was started after the first had crashed: it has a connection of its own,
and no producer id. It asks about appends that were acknowledged, and about appends without an outcome.
"""

from __future__ import annotations

from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records import set_producer
from tests.sim.claimant import TIMEOUT_MS
from tests.sim.client import Client, Surroundings
from tests.sim.history import Outcome
from tests.sim.owner_history import OwnedBatch, OwnerHistory

_REPEAT_SHARE = 0.3
_REPEAT_S_MAX = 8.0
_NEVER = 2**40
"""An offset at which no log ends: an append that expects it is only found or refused."""


class Repeater(Client):
    """Repeats appends of one owner."""

    def __init__(self, around: Surroundings, name: str, told: OwnerHistory) -> None:
        super().__init__(around, name)
        self._told = told

    def consider(self, owned: OwnedBatch, data: bytearray) -> None:
        """Perhaps repeat an append, which was sent as `data`, some seconds from now."""
        if owned.append_id and owned.batch.sends and self.rng.random() < _REPEAT_SHARE:
            again = bytearray(data)
            set_producer(again, -1, -1, -1)
            self.later(self.rng.uniform(0, _REPEAT_S_MAX), self._repeat, owned, again)

    def _repeat(self, owned: OwnedBatch, data: bytearray) -> None:
        batch = owned.batch
        leader = self.leader_of(batch.at)
        if leader is None:
            return
        was_acknowledged = batch.outcome is Outcome.ACKED
        part = PartitionProduceData(
            index=batch.at[1],
            records=bytearray(data),
            expected_offset=_NEVER,
            expected_topic_id=batch.topic_id,
            append_id=owned.append_id,
        )
        topics = [TopicProduceData(name=batch.at[0], partition_data=[part])]

        def answered(response: ProduceResponse) -> None:
            self.history.operations += 1
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.NONE:
                self._told.was_repeated(owned, row.base_offset, is_repeat=row.is_repeat)
            elif row.error_code == ErrorCode.OFFSET_MISMATCH and was_acknowledged:
                self._told.was_forgotten(owned)

        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        self.send(leader[0], request).addCallbacks(answered, lambda failure: None)
