"""Deletes records on request: advances a partition's log start here and on all live replicas (KIP-107).

A client is told that records are deleted once the new log start is in a checkpoint of the leader and of every
replica that is live or in sync: then no crash brings them back while one of these leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import advance_log_start
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition


def delete_records(partition: Partition, offset: int) -> int:
    """Advance the log start to `offset`, or to the high watermark for -1. Returns the new log start.

    Raises BrokerError: POLICY_VIOLATION unless cleanup.policy includes delete, OFFSET_OUT_OF_RANGE beyond the
    high watermark.
    """
    settings = partition.log.settings
    if not settings.is_deleted:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            "records can be deleted only from a topic whose cleanup.policy includes delete; that of "
            f"{partition.topic} is {','.join(settings.cleanup_policy) or 'empty'}",
        )
    if offset == -1:
        offset = partition.high_watermark
    if not 0 <= offset <= partition.high_watermark:
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset > partition.log.log_start_offset:
        advance_log_start(partition.log, offset)
    return offset


@dataclass(slots=True)
class RecordDeletion:
    """A request to delete the records of one partition before `offset`, and the progress of its replicas."""

    topic: str
    index: int
    offset: int
    low_watermark: int = -1
    has_moved: bool = False
    """Whether the request has moved the log start here."""
    error: BrokerError | None = None


class RecordDeletions:
    """Deletes records of partitions that this broker leads. Requests that wait for the other replicas are
    parked in `Replicas.deleters`."""

    def __init__(self, replicas: Replicas, metadata: MetadataCache) -> None:
        self._replicas = replicas
        self._metadata = metadata

    def begin(self, topic: str, index: int, offset: int) -> RecordDeletion:
        """Advance the log start of a partition led by this broker to `offset` (-1: its high watermark). Call
        `tell_readers` afterwards."""
        deletion = RecordDeletion(topic, index, offset)
        if topic in INTERNAL_TOPICS:
            deletion.error = BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers delete records of the internal topic {topic}: they are the state of groups",
            )
            return deletion
        try:
            partition = self._replicas.partition(topic, index)
            partition.leadership()
            start = partition.log.log_start_offset
            deletion.offset = delete_records(partition, offset)
            deletion.has_moved = partition.log.log_start_offset > start
        except BrokerError as error:
            # Its traceback has this frame, which has the deletion: a cycle.
            deletion.error = error.with_traceback(None)
        return deletion

    def tell_readers(self, deletions: Iterable[RecordDeletion]) -> None:
        """Tell readers of the log starts that have moved, once all of a request have begun: of each partition
        once, however often the request names it.

        Consumers' fetches that wait for deleted records are answered. So are followers' fetches that wait for
        records of these partitions: a log start is no record, and would wait with them.
        """
        moved = dict.fromkeys((each.topic, each.index) for each in deletions if each.has_moved)
        for key in starmap(TopicPartition, moved):
            partition = self._replicas.find(*key)
            if partition is not None:
                self._replicas.start_moved(partition)
            watchers = self._replicas.sessions.watchers.get(key)
            # A copy: answering a fetch may open or close sessions.
            for each in [] if watchers is None else list(watchers.awake):
                if each.session.reader.is_follower and each.session.waiting is not None:
                    each.session.waiting.expire()

    def is_done(self, deletion: RecordDeletion) -> bool:
        """Whether a deletion has failed, or all live replicas have carried it out durably."""
        if deletion.error is not None:
            return True
        partition = self._replicas.find(deletion.topic, deletion.index)
        role = None if partition is None else partition.role
        if partition is None or not isinstance(role, Leadership):
            deletion.error = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        durable = partition.log.durable_start_offset
        deletion.low_watermark = role.low_watermark(durable, self._metadata.is_live)
        return deletion.low_watermark >= deletion.offset

    def start_durable(self, log: Log) -> None:
        """Check the deletions that wait for a log of which a later start has become durable."""
        partition = self._replicas.find(*log.topic_partition)
        if partition is not None and partition.log is log:
            self._replicas.deleters.wake(partition.key)
