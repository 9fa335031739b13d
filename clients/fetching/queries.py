"""A consumer's questions about topics, whether it reads them or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast_log.clients.arguments import A_NAME, A_TIMEOUT, PARTITIONS, checked, no_attribute
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.errors import RequestTimeoutError, with_cause
from holdfast_log.clients.fetching.arguments import METHODS_OF_OTHER_CLIENTS, TIMES
from holdfast_log.clients.fetching.consumer_use import ConsumerUse, one_thread
from holdfast_log.clients.fetching.isolation import Isolation
from holdfast_log.clients.fetching.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    look_up_offsets,
    wait_for_metadata,
)
from holdfast_log.protocol.errors import error_for
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.topic_partition import TopicPartition


class ConsumerQueries:
    """The methods of a consumer that need no positions. Timeouts in ms; None is `default.api.timeout.ms`."""

    def __init__(
        self,
        connection: Connection,
        use: ConsumerUse,
        api_timeout_ms: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> None:
        self._connection = connection
        self._use = use
        self._metadata = connection.metadata
        self._network = connection.network
        self._api_timeout_ms = api_timeout_ms
        self._isolation = isolation

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name, METHODS_OF_OTHER_CLIENTS)

    @one_thread
    @checked(topic=A_NAME, timeout_ms=A_TIMEOUT)
    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[int]:
        """The numbers of a topic's partitions.

        Raises UnknownTopicOrPartitionError if the topic does not exist, RequestTimeoutError.
        """
        limit_ms = self._limit_ms(timeout_ms)
        deadline_ms = self._network.now_ms() + limit_ms
        self._metadata.want(topic)
        while topic not in self._metadata.topics:
            error = self._metadata.topic_error(topic)
            if error is not None:
                raise error_for(error.code, f"topic {topic}: {error.message}")
            left_ms = deadline_ms - self._network.now_ms()
            if left_ms <= 0:
                raise RequestTimeoutError(
                    with_cause(
                        f"no broker described topic {topic} within {limit_ms} ms",
                        self._connection.standing(ANY_NODE),
                    )
                )
            wait_for_metadata(self._connection, left_ms)
        return [row.partition for row in self._metadata.topics[topic].partitions]

    @one_thread
    @checked(timeout_ms=A_TIMEOUT)
    def topics(self, timeout_ms: int | None = None) -> list[str]:
        """The names of all topics that are not internal, sorted."""
        limit_ms = self._limit_ms(timeout_ms)
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self._connection.ask(ANY_NODE, request, limit_ms)
        return sorted(row.name for row in response.topics if row.name is not None and not row.is_internal)

    @one_thread
    @checked(partitions=PARTITIONS, timeout_ms=A_TIMEOUT)
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._offsets(dict.fromkeys(partitions, EARLIEST), timeout_ms)

    @one_thread
    @checked(partitions=PARTITIONS, timeout_ms=A_TIMEOUT)
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition that this consumer may see."""
        return self._offsets(dict.fromkeys(partitions, LATEST), timeout_ms)

    @one_thread
    @checked(times=TIMES, timeout_ms=A_TIMEOUT)
    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (ms since the epoch); None if there is none."""
        limit_ms = self._limit_ms(timeout_ms)
        found = look_up_offsets(self._connection, times, limit_ms, self._isolation)
        return {key: None if answer.offset < 0 else answer for key, answer in found.items()}

    def _offsets(
        self, times: Mapping[TopicPartition, int], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        limit_ms = self._limit_ms(timeout_ms)
        found = look_up_offsets(self._connection, times, limit_ms, self._isolation)
        return {key: answer.offset for key, answer in found.items()}

    def _limit_ms(self, timeout_ms: int | None) -> int:
        return self._api_timeout_ms if timeout_ms is None else timeout_ms
