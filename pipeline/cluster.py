"""Opens the consumer for a read, and looks up topics and offsets in the cluster to plan the read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.settings import Setting
from holdfast_log.pipeline.option_table import CLIENT_PREFIX, OptionError
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.topic_partition import TopicPartition

_TASK_DEFAULTS = {"client.id": "holdfast-spark"}
# A user waits for the plan: the error with the addresses that do not answer must come within 10 s.
_PLAN_DEFAULTS = {"bootstrap.timeout.ms": "8000"}
# A task reads exactly its range of offsets or fails; its consumer must never reset its position.
_FIXED = {"auto.offset.reset": "none"}


def properties_for(rows: Sequence[Setting], client: Mapping[str, str]) -> dict[str, str]:
    """Those of a job's properties that one of its clients has: it may have clients of several kinds."""
    names = {row.name for row in rows}
    return {name: value for name, value in client.items() if name in names}


def open_consumer(client: Mapping[str, str], fence: OwnerFence | None = None) -> Consumer:
    """A consumer with the properties given as options, and the fence of an owner. Raises `OptionError`."""
    try:
        return Consumer({**_TASK_DEFAULTS, **client, **_FIXED}, fence=fence)
    except ConfigError as error:
        raise OptionError(f"{CLIENT_PREFIX}…: {error}") from None


class ClusterLookup:
    """`pipeline.offsets.Lookup` through a consumer and a connection, which stay open until `close`.

    Methods raise the errors of the clients: UnreachableError, with the cause of each address, if no broker
    has ever answered. Later they wait for brokers that are away, for default.api.timeout.ms.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        self._consumer = open_consumer({**_PLAN_DEFAULTS, **client})
        self._connection = Connection(client["bootstrap.servers"], self._consumer.settings)

    def topics(self) -> Sequence[str]:
        return self._consumer.topics()

    def partitions(self, topic: str) -> Sequence[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (found,) = self._connection.ask(ANY_NODE, request).topics
        match found.error_code:
            case ErrorCode.NONE | ErrorCode.LEADER_NOT_AVAILABLE:
                return [row.partition_index for row in found.partitions]
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return ()
            case code:
                raise error_for(code, f"topic {topic}")

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._consumer.beginning_offsets(partitions)

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._consumer.end_offsets(partitions)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        found = self._consumer.offsets_for_times(times_ms)
        return {partition: None if answer is None else answer.offset for partition, answer in found.items()}

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
