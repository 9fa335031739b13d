"""Stray logs: logs on this broker's disks of partitions that are no longer assigned to it.

While a broker is down, its replicas may be moved to other brokers, and topics may be deleted and created
again under the same names. It receives no StopReplica for these. It recognises their logs by topic id once
the controller has sent a LeaderAndIsr of type FULL and the UpdateMetadata after it, which lists every
partition of the cluster.

A stray log is not deleted: it is moved to a directory whose name ends in `-stray`, for an administrator to
inspect and remove. A log that may still be needed is not moved.
"""

from __future__ import annotations

import logging
import uuid

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.coordinator.controller.requests import FULL
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class Strays:
    """Finds stray logs. Both methods take orders for the broker's present registration, in order."""

    def __init__(self, local_id: int, logs: LogManager, replicas: Replicas, roles: Roles) -> None:
        self._local_id = local_id
        self._logs = logs
        self._replicas = replicas
        self._roles = roles
        self._full: LeaderAndIsrRequest | None = None
        """The order that lists all replicas of this broker, until the next UpdateMetadata."""

    def before_roles(self, request: LeaderAndIsrRequest) -> None:
        """Call before a LeaderAndIsr is carried out: moves logs of deleted topics aside, if new topics have
        their names.

        A request of any type can name a new topic: the broker may have deleted the old one's log and answered
        the StopReplica, and a power failure may then have brought the log back.
        """
        if request.controller_epoch < self._roles.controller_epoch:
            return
        if request.type == FULL:
            self._full = request
        for topic in request.topic_states:
            for state in topic.partition_states:
                self._replace_older(TopicPartition(topic.topic_name, state.partition_index), topic.topic_id)

    def _replace_older(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        if topic_id == ZERO_ID or self._replicas.find(*partition) is not None:
            return
        # Another log directory may have another log of the partition.
        log = self._logs.find(partition)
        while log is not None and log.topic_id not in (None, topic_id):
            why = f"it belongs to the deleted topic with id {log.topic_id}"
            if not self._move_aside(partition, why):
                return
            log = self._logs.find(partition)

    def after_metadata(self, request: UpdateMetadataRequest) -> None:
        """Call after an UpdateMetadata: the first one after a full LeaderAndIsr lists the whole cluster."""
        full, self._full = self._full, None
        if full is None or request.controller_epoch != full.controller_epoch:
            return
        mine = {
            (topic.topic_id, state.partition_index)
            for topic in full.topic_states
            for state in topic.partition_states
        }
        elsewhere = {
            (topic.topic_id, state.partition_index): self._local_id not in state.replicas
            for topic in request.topic_states
            for state in topic.partition_states
        }
        for log in list(self._logs):
            partition = log.topic_partition
            if log.topic_id is None or self._replicas.find(*partition) is not None:
                continue
            key = (log.topic_id, partition.partition)
            if key not in mine and elsewhere.get(key, True):
                why = "has moved to other brokers" if key in elsewhere else "is no longer in the cluster"
                self._move_aside(partition, f"its partition {why}")

    def _move_aside(self, partition: TopicPartition, why: str) -> bool:
        try:
            path = self._logs.move_aside(partition)
        except BrokerError as error:
            _log.error("Moving the stray log of %s aside failed; it stays in place: %s", partition, error)
            return False
        _log.warning(
            "Moved the stray log of %s, because %s, to %s, which may be removed", partition, why, path
        )
        return True
