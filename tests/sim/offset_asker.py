"""The base of simulated clients that repeatedly ask the leaders of partitions for offsets (ListOffsets)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.sim.client import PASSING, Client, Surroundings
from tests.sim.history import Incarnation, TopicPartition

_EXPECTED = PASSING | {ErrorCode.OFFSET_NOT_AVAILABLE}


class OffsetAsker(Client):
    """Asks the leaders of some topics about every partition, about every `pause_s` seconds. Each request
    states the leader epochs that the client knows, and one leader has one request under way."""

    def __init__(self, around: Surroundings, name: str, *, follows: Sequence[str], pause_s: float) -> None:
        super().__init__(around, name)
        self._follows = follows
        self._pause_s = pause_s
        self._is_asking: dict[Address, None] = {}

    # Overridden in subclasses

    def timestamp(self) -> int:
        """The timestamp for the next request."""
        raise NotImplementedError

    def judge(
        self,
        place: Incarnation,
        epoch: int,
        timestamp: int,
        row: ListOffsetsPartitionResponse,
        *,
        asked_s: float,
    ) -> None:
        """Check an answer without an error to a request with this leader epoch and timestamp."""
        raise NotImplementedError

    # One request after another

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
        self.later(self._pause_s * self.rng.uniform(0.5, 1.5), self._tick)

    def _ask(self, address: Address, epochs: Mapping[TopicPartition, int]) -> None:
        timestamp = self.timestamp()
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, number), epoch in epochs.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=timestamp)
            )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values()))
        self._is_asking[address] = None
        places = {at: Incarnation(at, self.topics[at[0]].topic_id) for at in epochs}
        asked_s = self.world.seconds()

        def answered(response: ListOffsetsResponse) -> None:
            del self._is_asking[address]
            self.history.operations += 1
            for topic in response.topics:
                for row in topic.partitions:
                    at = (topic.name, row.partition_index)
                    if row.error_code == ErrorCode.NONE:
                        self.judge(places[at], epochs[at], timestamp, row, asked_s=asked_s)
                    else:
                        self._refused(places[at], timestamp, row.error_code)

        def failed(_: object) -> None:
            del self._is_asking[address]
            self.refresh()

        self.send(address, request).addCallbacks(answered, failed)

    def _refused(self, place: Incarnation, timestamp: int, code: int) -> None:
        if code not in _EXPECTED:
            name = ErrorCode(code).name
            self.history.violation(f"{self.name} got {name} for the offset of {place} at time {timestamp}")
        self.refresh()
