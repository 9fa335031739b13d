"""Keeps the records of queries in a compacted topic, and changes them by compare-and-set.

The topic is `holdfast-spark-sinks`, with key.versions=true: the broker refuses a record whose writer has not
seen the last one of its key (docs/key-versions.md). Its refusal says where that one is, so a record is found
without reading the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from holdfast_log.clients.config import ADMIN_ROWS
from holdfast_log.clients.message import NO_VERSION
from holdfast_log.clients.sending.partitioner import by_key
from holdfast_log.pipeline.sink.cluster import SinkCluster
from holdfast_log.pipeline.sink.state import QueryState
from holdfast_log.protocol.errors import KeyVersionMismatchError, TopicExistsError
from holdfast_log.protocol.topic_partition import TopicPartition

STATE_TOPIC = "holdfast-spark-sinks"
_PARTITIONS = 4
_CONFIGS = {"cleanup.policy": "compact", "key.versions": "true", "segment.bytes": str(16 * 2**20)}

RecordChange = Callable[[QueryState | None], QueryState | None]
"""The new record, from the present one; None to leave it as it is."""


class QueryStore:
    """The records of queries, in one cluster. Methods raise the errors of the clients."""

    def __init__(self, cluster: SinkCluster, client: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._client = client
        self._known: dict[str, tuple[int, QueryState]] = {}
        self._has_topic = False

    def change(self, query: str, change: RecordChange) -> QueryState | None:
        """Store what `change` makes of the present record; again if the record changes meanwhile.

        Returns the record that is then stored; None if there is none. `change` may raise.
        """
        key = query.encode()
        version, state = self._present(query)
        while True:
            wanted = change(state)
            if wanted is None:
                return state
            try:
                version = self._cluster.put(self._partition(key), key, wanted.encode(), version)
            except KeyVersionMismatchError as mismatch:
                version, state = self._at(query, mismatch.version)
                if state == wanted:
                    return state  # Its answer was lost, and it was sent again.
                continue
            self._known[query] = version, wanted
            return wanted

    def expect_topic(self) -> None:
        """Do not look whether the topic exists: another process has written a record to it."""
        self._has_topic = True

    def read(self, query: str) -> QueryState | None:
        """The present record; None if there is none."""
        return self._present(query)[1]

    def _present(self, query: str) -> tuple[int, QueryState | None]:
        """The version of the query's key and its record.

        Found by a write that is refused unless there is no record; a record with null as its value, the mark
        of a removed one, is then what it writes.
        """
        key = query.encode()
        try:
            return self._cluster.put(self._partition(key), key, None, NO_VERSION), None
        except KeyVersionMismatchError as mismatch:
            return self._at(query, mismatch.version)

    def _at(self, query: str, version: int) -> tuple[int, QueryState | None]:
        known = self._known.get(query)
        if known is not None and known[0] == version:
            return known
        if version == NO_VERSION:
            return version, None
        try:
            value = self._cluster.value_at(self._partition(query.encode()), version)
        except KeyError:
            return self._present(query)  # A later record has replaced it, and compaction has removed it.
        if value is None:
            return version, None
        state = QueryState.decode(value)
        self._known[query] = version, state
        return version, state

    def _partition(self, key: bytes) -> TopicPartition:
        if not self._has_topic:
            self._ensure_topic()
            self._has_topic = True
        count = len(self._cluster.topic(STATE_TOPIC).partitions)
        number = by_key(STATE_TOPIC, key, count)
        assert number is not None
        return TopicPartition(STATE_TOPIC, number)

    def _ensure_topic(self) -> None:
        """Create the topic unless it exists."""
        # Imported here, because most processes that Spark starts for a micro-batch do not need it.
        from holdfast_log.clients.admin.admin import Admin
        from holdfast_log.clients.admin.topics import NewTopic

        known = {row.name for row in ADMIN_ROWS}
        properties = {name: value for name, value in self._client.items() if name in known}
        with Admin(properties) as admin:
            if STATE_TOPIC in admin.list_topics():
                return
            with suppress(TopicExistsError):
                admin.create_topics([NewTopic(STATE_TOPIC, _PARTITIONS, configs=_CONFIGS)])
