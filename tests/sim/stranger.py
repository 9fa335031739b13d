"""Simulated strangers: clients that never claim a partition, and write to it whenever a broker lets them.

Where a topic has `single.writer=claimed`, brokers admit them while the partition has no owner. A stranger
sends each batch once, like a stock client without retries, so that a batch lands where it was let in or
nowhere.
"""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse
from holdfast_log.protocol.records import BatchBuilder
from tests.sim.client import Surroundings
from tests.sim.history import NO_ID, Batch, Outcome, TopicPartition
from tests.sim.partition_client import PartitionClient

_TICK_S = 0.3
_RARE_TICK_S = 2.0
_RARE_SHARE = 0.5
_ACKS_LEADER_SHARE = 0.3


class Stranger(PartitionClient):
    """A client that writes to the partition `at` without owning it, one batch at a time."""

    def __init__(self, around: Surroundings, name: str, at: TopicPartition) -> None:
        super().__init__(around, name, at, _TICK_S)
        self._made = 0
        if self.rng.random() < _RARE_SHARE:
            self.pause_s = _RARE_TICK_S

    def act(self, address: Address) -> None:
        acks = 1 if self.rng.random() < _ACKS_LEADER_SHARE else -1
        values = [f"{self.name}/{self._made}.{index}".encode() for index in range(self.rng.randint(1, 2))]
        topic = self.topics.get(self.at[0])
        batch = Batch(
            self.name, self.at, self._made, values, acks, False, self.world.seconds(), sends=1,
            topic_id=NO_ID if topic is None else topic.topic_id,
        )  # fmt: skip
        self._made += 1
        self.history.batches.append(batch)
        builder = BatchBuilder()
        for value in values:
            builder.append(self.process.clock.date_ms(), None, value)
        data = PartitionProduceData(index=self.at[1], records=builder.build())
        self.produce(
            address, data, lambda row: self._answered(batch, row), lambda: self._unanswered(batch), acks
        )

    @staticmethod
    def _unanswered(batch: Batch) -> None:
        batch.outcome = Outcome.UNKNOWN

    def _answered(self, batch: Batch, row: PartitionProduceResponse) -> None:
        if row.error_code == ErrorCode.NONE:
            batch.outcome, batch.offset = Outcome.ACKED, row.base_offset
            return
        batch.outcome = Outcome.UNKNOWN
        if row.error_code != ErrorCode.POLICY_VIOLATION:
            self.refresh()
