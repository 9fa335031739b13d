"""A client of a small key-value register, which is the replay of one partition's log.

Every call reads the log up to its end, and is then appended exactly there, or not at all (KIP-27): a put as
`put KEY VALUE`, a get as `get KEY VALUE`. So a get that succeeds has seen every put before it.
"""

from __future__ import annotations

import random

from holdfast_log.checker.calls import ABSENT, KeyCall, Outcome
from holdfast_log.checker.clients.appends import append
from holdfast_log.checker.clients.crew import CheckSettings, new_value
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import OffsetMismatchError
from holdfast_log.protocol.topic_partition import TopicPartition

KEYS = ("anna", "ben", "carla")
_POLL_MS = 100
_READ_TIMEOUT_S = 6.0
_ATTEMPTS = 5
_CLOSE_MS = 3_000


class RegisterClient:
    """Puts a key if it still has the version that this client saw last, or gets it."""

    def __init__(self, name: str, settings: CheckSettings, place: TopicPartition) -> None:
        self.name = name
        self._recorder = settings.recorder
        self._place = place
        self._producer = Producer(settings.producer_properties())
        self._consumer = Consumer(settings.properties())
        self._versions: dict[str, int] = {}
        self._upcoming = 0

    def step(self) -> None:
        key = random.choice(KEYS)
        wants_put = random.random() < 0.5
        expected = self._versions.get(key, ABSENT)
        asked_s = self._recorder.now_s()
        for _ in range(_ATTEMPTS):
            self._read_on()
            version = self._versions.get(key, ABSENT)
            # A put that does not find its version answers the present one, as a get does.
            is_put = wants_put and version == expected
            if self._has_appended(key, asked_s, version, is_put=is_put):
                return

    def close(self) -> None:
        self._producer.close(_CLOSE_MS)
        self._consumer.close()

    def _has_appended(self, key: str, asked_s: float, version: int, *, is_put: bool) -> bool:
        """Append the call where this client has read to. Returns False if the log has grown meanwhile."""
        value = f"{'put' if is_put else 'get'} {key} {new_value(self.name)}"
        outcome, made = Outcome.UNKNOWN, version
        try:
            done = append(
                self._recorder,
                self.name,
                self._producer,
                self._place,
                (value,),
                expected_offset=self._upcoming,
            )
            outcome, made = Outcome.DONE, done.offset if is_put else version
        except OffsetMismatchError:
            outcome = Outcome.REFUSED
        finally:
            if outcome is not Outcome.REFUSED:
                unknown = ABSENT if is_put and outcome is Outcome.UNKNOWN else made
                self._recorder.add(
                    KeyCall(
                        self.name,
                        *self._place,
                        key,
                        is_put,
                        asked_s,
                        self._recorder.now_s(),
                        outcome,
                        unknown,
                        expected_version=version if is_put else ABSENT,
                        value=value,
                    )
                )
        return outcome is Outcome.DONE

    def _read_on(self) -> None:
        """Replay the log up to its end. Raises RequestTimeoutError if that takes too long."""
        end = self._consumer.end_offsets([self._place])[self._place]
        if self._upcoming >= end:
            return
        deadline_s = self._recorder.now_s() + _READ_TIMEOUT_S
        self._consumer.add_topic(*self._place)
        try:
            self._consumer.seek(self._place, self._upcoming)
            while self._upcoming < end:
                for record in self._consumer.poll(_POLL_MS):
                    verb, key, _ = record.value.decode().split()
                    if verb == "put":
                        self._versions[key] = record.offset
                    self._upcoming = record.offset + 1
                if self._recorder.now_s() > deadline_s:
                    raise RequestTimeoutError(f"{self._place} was not read up to offset {end} in time")
        finally:
            self._consumer.remove_topic(*self._place)
