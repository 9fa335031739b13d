"""A simulated client that looks records up by their time (ListOffsets), also while leaders change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.replication.partition import MAX_TIMESTAMP
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

_PAUSE_S = 0.2
_AGE_S_MAX = 4.0
_MAX_SHARE = 0.5
"""How often the client asks for the record with the latest timestamp of all (KIP-734)."""
_EXPECTED = PASSING | {ErrorCode.OFFSET_NOT_AVAILABLE}


class TimeReader(Client):
    """Asks the leaders of some topics for the first record of a recent moment, or for the latest of all. No
    answer may name a record that is not committed, or an earlier one than was asked for."""

    def __init__(self, around: Surroundings, name: str, *, follows: Sequence[str]) -> None:
        super().__init__(around, name)
        self._follows = follows
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

    def _ask(self, address: Address, epochs: Mapping[TopicPartition, int]) -> None:
        timestamp = MAX_TIMESTAMP
        if self.rng.random() >= _MAX_SHARE:
            timestamp = self.process.clock.date_ms() - int(self.rng.uniform(0.0, _AGE_S_MAX) * 1000)
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=number, current_leader_epoch=epoch, timestamp=timestamp
                    )
                ],
            )
            for (name, number), epoch in epochs.items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
        places = {at: Incarnation(at, self.topics[at[0]].topic_id) for at in epochs}
        self._is_asking[address] = None

        def answered(response: ListOffsetsResponse) -> None:
            del self._is_asking[address]
            self.history.operations += 1
            for at, row in _rows(response):
                self._judge(places[at], timestamp, row)

        def failed(_: object) -> None:
            del self._is_asking[address]
            self.refresh()

        self.send(address, request).addCallbacks(answered, failed)

    def _judge(self, place: Incarnation, timestamp: int, row: ListOffsetsPartitionResponse) -> None:
        if row.error_code != ErrorCode.NONE:
            if row.error_code not in _EXPECTED:
                code = ErrorCode(row.error_code).name
                self.history.violation(f"{self.name} got {code} for the time {timestamp} of {place}")
            self.refresh()
        elif row.offset >= 0:
            what = f"the offset that {self.name} got for the time {timestamp}"
            self.history.told_committed(place, row.offset + 1, what)
            if row.timestamp < timestamp:
                self.history.violation(f"{what} of {place} has the earlier time {row.timestamp}")


def _rows(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
    for topic in response.topics:
        for row in topic.partitions:
            yield (topic.name, row.partition_index), row
