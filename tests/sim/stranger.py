"""Simulated strangers: clients that never claim a partition, and write to it whenever a broker lets them.

Where a topic has `single.writer=claimed`, brokers admit them while the partition has no owner. A stranger
sends each batch once, like a stock client without retries, so that a batch lands where it was let in or
nowhere.
"""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import BatchBuilder
from tests.sim.client import Client, Surroundings
from tests.sim.history import NO_ID, Batch, Outcome, TopicPartition

_TICK_S = 0.3
_RARE_TICK_S = 2.0
_RARE_SHARE = 0.5
_ACKS_LEADER_SHARE = 0.3
_TIMEOUT_MS = 3000


class Stranger(Client):
    """A client that writes to the partition `at` without owning it, one batch at a time."""

    def __init__(self, around: Surroundings, name: str, at: TopicPartition) -> None:
        super().__init__(around, name)
        self.at = at
        self.is_making = True
        self._made = 0
        self._is_writing = False
        self._pause_s = _RARE_TICK_S if self.rng.random() < _RARE_SHARE else _TICK_S

    def begin(self) -> None:
        super().begin()
        self._tick()

    @property
    def is_idle(self) -> bool:
        """Whether no batch is under way."""
        return not self._is_writing

    def _tick(self) -> None:
        self.later(self._pause_s * self.rng.uniform(0.2, 1.8), self._tick)
        if not self.is_making or self._is_writing:
            return
        leader = self.leader_of(self.at)
        if leader is None:
            self.refresh()
        else:
            self._write(leader[0])

    def _write(self, address: Address) -> None:
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
        request = ProduceRequest(
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.at[0], partition_data=[data])],
        )
        self._is_writing = True
        self.send(address, request).addCallbacks(
            lambda response: self._answered(batch, response), lambda failure: self._unanswered(batch)
        )

    def _unanswered(self, batch: Batch) -> None:
        self._is_writing = False
        batch.outcome = Outcome.UNKNOWN
        self.refresh()

    def _answered(self, batch: Batch, response: ProduceResponse) -> None:
        self.history.operations += 1
        self._is_writing = False
        row = response.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            batch.outcome, batch.offset = Outcome.ACKED, row.base_offset
            return
        batch.outcome = Outcome.UNKNOWN
        if row.error_code != ErrorCode.POLICY_VIOLATION:
            self.refresh()
