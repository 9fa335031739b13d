"""Clients of topics that change: that are deleted and created again, and that grow."""

from __future__ import annotations

import random
from uuid import UUID

from holdfast_log.checker.calls import NO_OFFSET, Action, AppendCall, Outcome, OwnershipCall
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.checker.clients.raw_appends import RawAppender, batch_of, outcome_of
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

_ADMIN_PROPERTIES = {"default.api.timeout.ms": 5_000}
_LIFE_S = (0.3, 2.0)
_GROWTH_PAUSE_S = (0.5, 1.5)
_PARTITIONS_MAX = 16
_WRITES = 20
_FAITHFUL_SHARE = 0.9


def label_of(topic: str, topic_id: UUID | str) -> str:
    """The name in a history of one topic among those that had the same name."""
    return f"{topic}@{topic_id}"


class Recreator:
    """Deletes a topic and creates it again, again and again."""

    def __init__(self, name: str, settings: CheckSettings, topic: NewTopic) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._topic = topic
        self._admin = Admin({**settings.properties(), **_ADMIN_PROPERTIES})
        self._exists = True
        self._delete_at_s = self._recorder.now_s() + random.uniform(*_LIFE_S)

    def step(self) -> None:
        if not self._exists:
            self._admin.create_topics([self._topic])
            self._exists = True
            self._delete_at_s = self._recorder.now_s() + random.uniform(*_LIFE_S)
        elif self._delete_at_s < self._recorder.now_s():
            self._exists = False
            self._admin.delete_topics([self._topic.name])

    def close(self) -> None:
        self._admin.close()


class FaithfulWriter:
    """Appends conditionally, and means the topic that it has found once: even if it learns that the topic was
    deleted and created again, it goes on for a while with conditions on the one that it knows."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._appender = RawAppender(name, settings, place)
        self._topic_id = ZERO_UUID
        self._end = 0

    def step(self) -> None:
        if not self._appender.find_leader():
            return
        if self._topic_id == ZERO_UUID:
            self._topic_id, self._end = self._appender.topic_id(), 0
        value, place, expected = new_value(self.name), self._appender.place, self._end
        fields = {"expected_offset": expected, "expected_topic_id": self._topic_id}
        asked_s = self._recorder.now_s()
        (answer,) = self._appender.append_all([(batch_of([value]), fields)])
        outcome, offset, end = outcome_of(answer), NO_OFFSET, NO_OFFSET
        if not isinstance(answer, Exception):
            offset, end = answer.base_offset, answer.next_offset
        self._recorder.add(
            AppendCall(
                self.name,
                label_of(place.topic, self._topic_id),
                place.partition,
                (value,),
                asked_s,
                self._recorder.now_s(),
                outcome,
                offset,
                expected,
                end,
            )
        )
        if end != NO_OFFSET:
            self._end = end
        elif outcome is not Outcome.DONE:
            self._appender.leave()
            self._end = 0
            if random.random() > _FAITHFUL_SHARE:
                self._topic_id = ZERO_UUID

    def close(self) -> None:
        self._appender.close()


class Grower:
    """Adds partitions to a topic, and writes to each like a stock client as soon as it is there.

    If the topic has an owner all the time from before the partition is added, only the owner may write to it.
    """

    def __init__(self, name: str, settings: CheckSettings, topic: str) -> None:
        self.name = name
        self._settings = settings
        self._recorder = settings.recorder
        self._topic = topic
        self._admin = Admin({**settings.properties(), **_ADMIN_PROPERTIES})
        self._count = 1
        self._grow_at_s = self._recorder.now_s() + random.uniform(*_GROWTH_PAUSE_S)

    def step(self) -> None:
        if self._count >= _PARTITIONS_MAX or self._recorder.now_s() < self._grow_at_s:
            return
        self._grow_at_s = self._recorder.now_s() + random.uniform(*_GROWTH_PAUSE_S)
        asked_s = self._recorder.now_s()
        self._count += 1
        try:
            self._admin.create_partitions({self._topic: self._count})
        except BrokerError as error:
            if error.code is not ErrorCode.INVALID_PARTITIONS:  # It has them, and the answer was lost.
                self._count -= 1
            raise
        self._write_to(TopicPartition(self._topic, self._count - 1), asked_s)

    def _write_to(self, added: TopicPartition, asked_s: float) -> None:
        appender = RawAppender(self.name, self._settings, added)
        try:
            for _ in range(_WRITES):
                if not appender.find_leader():
                    continue
                (answer,) = appender.append_all([(batch_of([new_value(self.name)]), {})])
                outcome = outcome_of(answer)
                if outcome is not Outcome.UNKNOWN:
                    whole = str(TopicPartition(self._topic, 0))
                    now_s = self._recorder.now_s()
                    self._recorder.add(
                        OwnershipCall(self.name, whole, Action.INTRUDE, asked_s, now_s, outcome)
                    )
                    return
        finally:
            appender.close()

    def close(self) -> None:
        self._admin.close()
