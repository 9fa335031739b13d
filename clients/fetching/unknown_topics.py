"""Notices topics and partitions that a consumer should read and that do not exist, and reports each once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.feedback.connection_log import warn
from holdfast_log.clients.feedback.events import Events, TopicUnknown
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.topic_partition import TopicPartition

_GRACE_MS = 3_000
"""How long a topic or partition is unknown before it is reported: a broker learns late of a new one."""
_WHOLE_TOPIC = -1
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(topic: str) -> None:
    """Raises InvalidTopicError if no topic can have this name."""
    if not isinstance(topic, str) or not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise error_for(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic!r} cannot be the name of a topic: a name has 1 to 249 letters, digits, dots, hyphens "
            "and underscores of ASCII",
        )


class UnknownTopics:
    """The topics and partitions of one consumer that do not exist.

    With `raises`, their errors are for `poll` to raise; otherwise an event and a warning to the logger
    `log_name` report them. One that has existed since is reported again if it vanishes.
    """

    def __init__(
        self, metadata: Metadata, fetcher: Fetcher, events: Events, log_name: str, *, raises: bool
    ) -> None:
        self._metadata = metadata
        self._fetcher = fetcher
        self._events = events
        self._log_name = log_name
        self._raises = raises
        self._since_ms: dict[TopicPartition, int] = {}
        """When each topic (with the partition -1) or partition was first seen to be unknown."""
        self._reported: set[TopicPartition] = set()
        self._seen_update = 0

    def look(self, now_ms: int) -> None:
        """Report what has been unknown for long enough, if the metadata was renewed since the last look."""
        if self._seen_update == self._metadata.update_count:
            return
        self._seen_update = self._metadata.update_count
        unknown = dict(self._unknown())
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in unknown}
        self._reported &= unknown.keys()
        for key, error in unknown.items():
            is_known_late = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if key not in self._reported and now_ms - self._since_ms[key] >= _GRACE_MS * is_known_late:
                self._reported.add(key)
                self._report(key, error)

    def error(self, partition: TopicPartition) -> BrokerError | None:
        """Why there are no records of a partition: it or its topic does not exist. None if both do, or while
        that is unknown."""
        return _topic_error(self._metadata, partition.topic) or _partition_error(self._metadata, partition)

    def _unknown(self) -> Iterator[tuple[TopicPartition, BrokerError]]:
        for topic in self._metadata.errors:
            error = _topic_error(self._metadata, topic)
            if error is not None:
                yield TopicPartition(topic, _WHOLE_TOPIC), error
        for partition in self._fetcher.positions:
            error = _partition_error(self._metadata, partition)
            if error is not None:
                yield partition, error
                self._metadata.renew()  # It may be added.

    def _report(self, key: TopicPartition, error: BrokerError) -> None:
        if self._raises or error.code is ErrorCode.INVALID_TOPIC_EXCEPTION:
            self._fetcher.report(error)
        else:
            self._events.note(TopicUnknown(*key, error))
            warn(self._log_name, error.message)


def _topic_error(metadata: Metadata, topic: str) -> BrokerError | None:
    error = metadata.topic_error(topic)
    if error is None or topic in metadata.topics:
        return None
    match error.code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error_for(
                error.code,
                f"topic {topic} does not exist: create it, or correct the name in add_topic(). It is read as "
                "soon as it exists. With allow.auto.create.topics=true this consumer asks the brokers to "
                "create topics",
            )
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return error_for(error.code, f"topic {topic}: {error.message}")
    return None


def _partition_error(metadata: Metadata, partition: TopicPartition) -> BrokerError | None:
    info = metadata.topics.get(partition.topic)
    if info is None or 0 <= partition.partition < len(info.partitions):
        return None
    return error_for(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {partition.topic} has no partition {partition.partition}: its partitions are 0 to "
        f"{len(info.partitions) - 1}. The partition is read as soon as it exists",
    )
