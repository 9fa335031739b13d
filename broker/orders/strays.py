"""Stray logs: those on this broker's disks whose partitions this broker has no replica of any more.

A broker that was away may come back with replicas that were moved to other brokers meanwhile, or with those
of topics that were deleted and perhaps created again under the same names. It received no StopReplica for
them. It recognises them by the topics' ids once the controller has sent it everything: a LeaderAndIsr of type
FULL, and the UpdateMetadata after it, which lists every partition of the cluster.

Nothing is deleted: a stray log is moved aside, to a directory whose name ends in `-stray`, for an
administrator to look at and remove. A log that may still be needed stays where it is.
"""

from __future__ import annotations

import logging
import uuid

from broker.log.manager import LogManager
from broker.metadata import ZERO_ID
from broker.replication.replicas import Replicas
from broker.replication.roles import Roles
from coordinator.controller.requests import FULL
from protocol.errors import BrokerError
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class Strays:
    """Looks for strays. Both methods take orders for the present registration of the broker, in order."""

    def __init__(self, local_id: int, logs: LogManager, replicas: Replicas, roles: Roles) -> None:
        self._local_id = local_id
        self._logs = logs
        self._replicas = replicas
        self._roles = roles
        self._full: LeaderAndIsrRequest | None = None
        """The order that lists all replicas of this broker, until the metadata after it has come."""

    def before_roles(self, request: LeaderAndIsrRequest) -> None:
        """Call before a LeaderAndIsr is carried out: moves logs of deleted topics out of the way of new
        topics with their names."""
        if request.type != FULL or request.controller_epoch < self._roles.controller_epoch:
            return
        self._full = request
        for topic in request.topic_states:
            for state in topic.partition_states:
                self._replace_older(TopicPartition(topic.topic_name, state.partition_index), topic.topic_id)

    def _replace_older(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        if topic_id == ZERO_ID or self._replicas.find(*partition) is not None:
            return
        # There may be a further log of the partition, in another log directory.
        log = self._logs.find(partition)
        while log is not None and log.topic_id not in (None, topic_id):
            why = f"it belongs to topic id {log.topic_id}, and the topic was created again"
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
            _log.error(
                "The stray log of %s could not be moved aside and stays where it is: %s", partition, error
            )
            return False
        _log.warning(
            "The log of %s is a stray, for %s: moved to %s, which may be removed", partition, why, path
        )
        return True
