"""A simulated client that repeatedly asks for the end offsets of partitions (ListOffsets)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.replication.partition import LATEST
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.sim.client import PASSING, Client, Surroundings
from tests.sim.history import Incarnation, TopicPartition
from tests.sim.told_offsets import ToldOffsets

_PAUSE_S = 0.5
_EXPECTED = PASSING | {ErrorCode.OFFSET_NOT_AVAILABLE}


class EndWatcher(Client):
    """Asks the leaders of some topics for the end offset of every partition. Each request states the leader
    epoch that the client knows."""

    def __init__(self, around: Surroundings, name: str, *, follows: Sequence[str], told: ToldOffsets) -> None:
        super().__init__(around, name)
        self._follows = follows
        self._told = told
        self._is_asking: dict[Address, None] = {}

    def begin(self) -> None:
        super().begin()
        self._tick()

    def _tick(self) -> None:
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for name in self._follows:
            for number in self.topics[name].leaders if name in self.topics else ():
                leader = self.leader_of((name, number))
                if leader is None:
                    self.refresh()
                elif leader[0] not in self._is_asking:
                    by_leader.setdefault(leader[0], {})[name, number] = leader[1]
        for address, epochs in by_leader.items():
            self._ask(address, epochs)
        self.later(_PAUSE_S * self.rng.uniform(0.5, 1.5), self._tick)

    def _ask(self, address: Address, epochs: dict[TopicPartition, int]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, number), epoch in epochs.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=LATEST)
            )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values()))
        self._is_asking[address] = None
        ids = {at: self.topics[at[0]].topic_id for at in epochs}
        places = {at: Incarnation(at, topic_id) for at, topic_id in ids.items()}
        asked_s = self.world.seconds()

        def answered(response: ListOffsetsResponse) -> None:
            del self._is_asking[address]
            self._answered(response, epochs, places, asked_s)

        def failed(_: object) -> None:
            del self._is_asking[address]
            self.refresh()

        self.send(address, request).addCallbacks(answered, failed)

    def _answered(
        self,
        response: ListOffsetsResponse,
        epochs: dict[TopicPartition, int],
        places: dict[TopicPartition, Incarnation],
        asked_s: float,
    ) -> None:
        self.history.operations += 1
        for topic in response.topics:
            for row in topic.partitions:
                at = (topic.name, row.partition_index)
                if row.error_code == ErrorCode.NONE:
                    self._told.told(self.name, places[at], epochs[at], row.offset, asked_s=asked_s)
                    continue
                if row.error_code not in _EXPECTED:
                    code = ErrorCode(row.error_code).name
                    self.history.violation(f"{self.name} got {code} for the end of {at[0]}-{at[1]}")
                self.refresh()
