"""Logs that are left on this broker's disks although their partitions are no longer its own.

A broker that was away may come back with replicas that were moved to others meanwhile, or with those of
topics that have been deleted, and perhaps made anew under the same names. Nobody told it to let go of them.
It finds out when the controller has told it everything (a LeaderAndIsr of type FULL, and the UpdateMetadata
behind it, which lists every partition of the cluster) by the topics' ids.

Nothing is deleted: a stray log is moved aside, to a directory whose name ends in `-stray`, for somebody to
look at and remove. A log of which there is any doubt stays where it is.
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
    """Looks for strays. Both methods are to be called with requests of this life of the broker, in order."""

    def __init__(self, local_id: int, logs: LogManager, replicas: Replicas, roles: Roles) -> None:
        self._local_id = local_id
        self._logs = logs
        self._replicas = replicas
        self._roles = roles
        self._full: LeaderAndIsrRequest | None = None
        """What lists all replicas of this broker, until the metadata behind it has come."""

    def before_roles(self, request: LeaderAndIsrRequest) -> None:
        """Before a LeaderAndIsr is applied: logs of older topics make way for those of the same names."""
        if request.type != FULL or request.controller_epoch < self._roles.controller_epoch:
            return
        self._full = request
        for topic in request.topic_states:
            for state in topic.partition_states:
                self._replace_older(TopicPartition(topic.topic_name, state.partition_index), topic.topic_id)

    def _replace_older(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        if topic_id == ZERO_ID or self._replicas.find(*partition) is not None:
            return
        # Behind one log there may be another, in another log directory.
        log = self._logs.find(partition)
        while log is not None and log.topic_id not in (None, topic_id):
            why = f"it is of topic id {log.topic_id}, and that topic was made anew"
            if not self._move_aside(partition, why):
                return
            log = self._logs.find(partition)

    def after_metadata(self, request: UpdateMetadataRequest) -> None:
        """After an UpdateMetadata: the first behind a full LeaderAndIsr tells of everything that there is."""
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
                why = "has moved to other brokers" if key in elsewhere else "is not in the cluster any more"
                self._move_aside(partition, f"its partition {why}")

    def _move_aside(self, partition: TopicPartition, why: str) -> bool:
        try:
            path = self._logs.move_aside(partition)
        except BrokerError as error:
            _log.error("the stray log of %s could not be moved aside: %s", partition, error)
            return False
        _log.warning(
            "the log of %s is a stray, for %s: moved to %s, which nobody needs any more", partition, why, path
        )
        return True
