"""Clients that repeat their requests, and send requests without waiting for answers."""

from __future__ import annotations

import random
import uuid
from typing import Any

from holdfast_log.checker.calls import NO_APPEND_ID, NO_LINE, NO_OFFSET, AppendCall
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.checker.clients.raw_appends import RawAppender, batch_of, outcome_of
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from holdfast_log.protocol.topic_partition import TopicPartition

_VALUES_MAX = 3
_COPIES_MAX = 4
_REMEMBERED = 200
_WRONG_BY = (-1, 1, 5)


class Repeater:
    """Appends with append ids, and repeats these appends at any later time, as another process would; sends
    several copies of a batch of an idempotent producer; sends conditional batches behind one that expects a
    wrong offset."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._appender = RawAppender(name, settings, place)
        self._end = 0
        self._attempt = 0
        self._named: list[tuple[bytes, tuple[str, ...]]] = []
        """Appends with ids, with their values."""

    def step(self) -> None:
        if self._appender.find_leader():
            random.choice((self._append_once, self._repeat, self._send_copies, self._send_line))()

    def close(self) -> None:
        self._appender.close()

    def _append_once(self) -> None:
        append_id, values = uuid.uuid4().bytes, self._new_values()
        self._named = [*self._named[-_REMEMBERED:], (append_id, values)]
        self._append_named(append_id, values)

    def _repeat(self) -> None:
        if self._named:
            self._append_named(*random.choice(self._named))

    def _append_named(self, append_id: bytes, values: tuple[str, ...]) -> None:
        fields = {"expected_offset": self._end, "append_id": append_id}
        asked_s = self._recorder.now_s()
        (answer,) = self._appender.append_all([(batch_of(values, append_id=append_id), fields)])
        self._record(values, asked_s, answer, self._end, append_id=append_id.hex())
        self._learn(answer)

    def _send_copies(self) -> None:
        producer_id = self._appender.new_producer_id()
        values = self._new_values()
        copy: tuple[bytearray, dict[str, Any]] = (batch_of(values, producer_id=producer_id, sequence=0), {})
        copies = [copy] * random.randint(2, _COPIES_MAX)
        asked_s = self._recorder.now_s()
        for answer in self._appender.append_all(copies):
            self._record(values, asked_s, answer, append_id=f"producer {producer_id}")

    def _send_line(self) -> None:
        """Send a batch that expects a wrong offset, and behind it, in the same attempt, one that expects the
        present end of the log."""
        self._attempt += 1
        line = f"{self.name}/{self._attempt}"
        batches, places = [], []
        for expected in (max(0, self._end + random.choice(_WRONG_BY)), self._end):
            values = self._new_values()
            fields: dict[str, Any] = {"expected_offset": expected, "attempt": self._attempt}
            batches.append((batch_of(values), fields))
            places.append((values, expected))
        asked_s = self._recorder.now_s()
        answers = self._appender.append_all(batches)
        for number, (answer, (values, expected)) in enumerate(zip(answers, places, strict=True)):
            self._record(values, asked_s, answer, expected, line=line, in_line=number)
            self._learn(answer)

    def _new_values(self) -> tuple[str, ...]:
        return tuple(new_value(self.name) for _ in range(random.randint(1, _VALUES_MAX)))

    def _learn(self, answer: PartitionProduceResponse | Exception) -> None:
        if not isinstance(answer, Exception) and answer.next_offset != NO_OFFSET:
            self._end = answer.next_offset

    def _record(
        self,
        values: tuple[str, ...],
        asked_s: float,
        answer: PartitionProduceResponse | Exception,
        expected_offset: int = NO_OFFSET,
        *,
        append_id: str = NO_APPEND_ID,
        line: str = NO_LINE,
        in_line: int = 0,
    ) -> None:
        offset = next_offset = NO_OFFSET
        if not isinstance(answer, Exception):
            offset, next_offset = answer.base_offset, answer.next_offset
        self._recorder.add(
            AppendCall(
                self.name,
                *self._appender.place,
                values,
                asked_s,
                self._recorder.now_s(),
                outcome_of(answer),
                offset,
                expected_offset,
                next_offset,
                append_id=append_id,
                line=line,
                in_line=in_line,
            )
        )
