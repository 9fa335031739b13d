"""Opens the consumer for a read, and looks up topics and offsets in the cluster to plan the read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from clients.connection.connection import ANY_NODE, Connection
from clients.consumer import Consumer
from clients.errors import ConfigError
from pipeline.options import CLIENT_PREFIX, OptionError
from protocol.errors import ErrorCode, UnknownTopicOrPartitionError
from protocol.messages.metadata import MetadataRequest
from protocol.topic_partition import TopicPartition

_DEFAULTS = {"client.id": "holdfast-spark"}
# A task reads exactly its range of offsets or fails; its consumer must never reset its position.
_RESET, _NEVER = "auto.offset.reset", "none"


def open_consumer(client: Mapping[str, str]) -> Consumer:
    """A consumer with the properties given as options. Raises `OptionError`."""
    if client.get(_RESET, _NEVER) != _NEVER:
        raise OptionError(f"{CLIENT_PREFIX}{_RESET} cannot be set: startingOffsets says where a read begins")
    try:
        return Consumer({**_DEFAULTS, **client, _RESET: _NEVER})
    except ConfigError as error:
        raise OptionError(f"{CLIENT_PREFIX}…: {error}") from None


class ClusterLookup:
    """`pipeline.offsets.Lookup` through a consumer. Methods raise the errors of the clients."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._consumer = open_consumer(client)

    def topics(self) -> Sequence[str]:
        with Connection(self._client["bootstrap.servers"], self._consumer.settings) as connection:
            answer = connection.ask(ANY_NODE, MetadataRequest(topics=None))
        return [
            topic.name
            for topic in answer.topics
            if topic.name is not None and topic.error_code == ErrorCode.NONE and not topic.is_internal
        ]

    def partitions(self, topic: str) -> Sequence[int]:
        try:
            return self._consumer.partitions_for(topic)
        except UnknownTopicOrPartitionError:
            return ()

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._consumer.beginning_offsets(partitions)

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._consumer.end_offsets(partitions)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        found = self._consumer.offsets_for_times(times_ms)
        return {partition: None if answer is None else answer.offset for partition, answer in found.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
