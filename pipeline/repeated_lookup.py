"""Repeats look-ups that a broker refused, as fetchOffset.numRetries and fetchOffset.retryIntervalMs say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from holdfast_log.pipeline.offsets import Lookup
from holdfast_log.pipeline.options import LookupRetries
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.one_line import one_line
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger("holdfast.spark")

_Answer = TypeVar("_Answer")


class RepeatedLookup:
    """Another `Lookup`, whose look-ups are repeated if a broker answers with an error. `sleep` uses seconds.

    Errors of the client (no broker answers) are raised at once: the client has already tried for its timeout.
    """

    def __init__(self, lookup: Lookup, retries: LookupRetries, sleep: Callable[[float], None]) -> None:
        self._lookup = lookup
        self._retries = retries
        self._sleep = sleep

    def topics(self) -> Sequence[str]:
        return self._repeated(self._lookup.topics)

    def partitions(self, topic: str) -> Sequence[int]:
        return self._repeated(lambda: self._lookup.partitions(topic))

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._repeated(lambda: self._lookup.earliest(partitions))

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._repeated(lambda: self._lookup.latest(partitions))

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        return self._repeated(lambda: self._lookup.at_times(times_ms))

    def _repeated(self, look_up: Callable[[], _Answer]) -> _Answer:
        for _ in range(self._retries.count):
            try:
                return look_up()
            except BrokerError as error:
                _log.warning(
                    "A broker refused a look-up of offsets, which is repeated: %s", one_line(str(error))
                )
            self._sleep(self._retries.interval_ms / 1000)
        return look_up()
