"""Opens the consumer for a read, and looks up topics and offsets in the cluster to plan the read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClientError, ConfigError, is_retriable
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.settings import Setting
from holdfast_log.pipeline.offsets import PartitionsGoneError
from holdfast_log.pipeline.option_table import CLIENT_PREFIX, OptionError
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast_log.protocol.topic_partition import TopicPartition

_TASK_DEFAULTS = {"client.id": "holdfast-spark"}
# A user waits for the plan: the error with the addresses that do not answer must come within 10 s.
_PLAN_DEFAULTS = {"bootstrap.timeout.ms": "8000"}
# A task reads exactly its range of offsets or fails; its consumer must never reset its position.
_FIXED = {"auto.offset.reset": "none"}
_LOOK_MS = 3000
"""How long a look-up of offsets waits for leaders before it asks whether the topics still exist."""


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
    has ever answered. Later they wait for brokers that are away, for default.api.timeout.ms. `earliest` and
    `latest` raise `PartitionsGoneError` within seconds if a topic was deleted.
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
        return self._found(self._consumer.beginning_offsets, partitions)

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._found(self._consumer.end_offsets, partitions)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        found = self._consumer.offsets_for_times(times_ms)
        return {partition: None if answer is None else answer.offset for partition, answer in found.items()}

    def _found(
        self,
        look_up: Callable[[Sequence[TopicPartition], int], Mapping[TopicPartition, int]],
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, int]:
        """The client alone would wait for the leaders of a deleted topic, as for those of a new one."""
        deadline_s = time.monotonic() + self._consumer.settings["default.api.timeout.ms"] / 1000
        while True:
            left_ms = max(1, int((deadline_s - time.monotonic()) * 1000))
            try:
                return look_up(partitions, min(left_ms, _LOOK_MS))
            except (BrokerError, ClientError) as error:
                gone = self._gone(partitions)
                if gone:
                    raise PartitionsGoneError(gone) from None
                if left_ms <= _LOOK_MS or not is_retriable(error):
                    raise

    def _gone(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that a broker says do not exist. None, if no broker answers."""
        with suppress(BrokerError, ClientError):
            there = {topic: self.partitions(topic) for topic in {topic for topic, _ in partitions}}
            return [each for each in partitions if each.partition not in there[each.topic]]
        return []

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
