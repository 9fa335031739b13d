"""A client that reads partitions from their beginning and follows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from holdfast_log.checker.calls import ReadCall
from holdfast_log.checker.clients.crew import CheckSettings
from holdfast_log.clients.consumer import Consumer
from holdfast_log.protocol.topic_partition import TopicPartition

_POLL_MS = 200


class Follower:
    """Records what it reads, in the order in which it reads it."""

    def __init__(self, name: str, settings: CheckSettings, places: Sequence[TopicPartition]) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._consumer = Consumer({**settings.properties(), "auto.offset.reset": "earliest"})
        for place in places:
            self._consumer.add_topic(*place)

    def step(self) -> None:
        asked_s = self._recorder.now_s()
        read: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
        for record in self._consumer.poll(_POLL_MS):
            read[record.topic, record.partition].append((record.offset, record.value.decode()))
        answered_s = self._recorder.now_s()
        for place, records in read.items():
            self._recorder.add(ReadCall(self.name, *place, asked_s, answered_s, tuple(records)))

    def close(self) -> None:
        self._consumer.close()
