"""A client that changes keys, each record on the condition that its key has the version that it knows."""

from __future__ import annotations

import random

from holdfast_log.checker.calls import ABSENT, NO_OFFSET, AppendCall, KeyCall, Outcome
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.checker.clients.raw_appends import RawAppender, batch_of, outcome_of
from holdfast_log.protocol.messages.produce import KeyVersion
from holdfast_log.protocol.topic_partition import TopicPartition

_HOT_KEYS = 3
"""Keys that get half of the records, so that writers contend for them."""
_COLD_KEYS = 60
"""Keys that get the other half: a broker that is wrong about one stays wrong for seconds."""


class KeyedWriter:
    """Puts keys of one partition. What a refusal says about a key counts as a get of it."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._appender = RawAppender(name, settings, place)
        self._versions: dict[str, int] = {}

    def step(self) -> None:
        if not self._appender.find_leader():
            return
        number = random.randrange(random.choice((_HOT_KEYS, _COLD_KEYS)))
        key, value = f"key-{number}", new_value(self.name)
        expected = self._versions.get(key, ABSENT)
        fields = {"expected_versions": [KeyVersion(record=0, version=expected)]}
        asked_s = self._recorder.now_s()
        (answer,) = self._appender.append_all([(batch_of([value], key=key), fields)])
        answered_s = self._recorder.now_s()
        outcome, offset, found = outcome_of(answer), NO_OFFSET, None
        if not isinstance(answer, Exception):
            offset = answer.base_offset
            found = next((each.version for each in answer.key_versions), None)
        place = self._appender.place
        self._recorder.add(AppendCall(self.name, *place, (value,), asked_s, answered_s, outcome, offset))
        if found is not None:
            self._versions[key] = found
            self._recorder.add(
                KeyCall(self.name, *place, key, False, asked_s, answered_s, Outcome.DONE, found)
            )
            return
        made = offset if outcome is Outcome.DONE else ABSENT
        if outcome is Outcome.DONE:
            self._versions[key] = made
        self._recorder.add(
            KeyCall(self.name, *place, key, True, asked_s, answered_s, outcome, made, expected, value)
        )

    def close(self) -> None:
        self._appender.close()
