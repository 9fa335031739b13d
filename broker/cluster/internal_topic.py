"""Creates an internal topic at the first lookup of a key that is kept in it, and finds keys' coordinators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.coordinator.shards.partitions import partition_of_key
from holdfast_log.protocol.errors import BrokerError, ErrorCode

_log = logging.getLogger(__name__)


class InternalTopic:
    """Maps keys to their coordinators. `create` has the cluster's controller create topics. `replicas` is the
    setting of the topic's replication factor, and `user` who cannot work without the topic."""

    def __init__(
        self,
        name: str,
        metadata: MetadataCache,
        create: Callable[[list[str]], Deferred[dict[str, ErrorCode]]],
        *,
        replicas: str,
        user: str,
    ) -> None:
        self.name = name
        self._metadata = metadata
        self._create = create
        self._replicas = replicas
        self._user = user
        self._waiting: list[Deferred[None]] | None = None
        self._last_error: ErrorCode | None = None

    def partition_of(self, key: str) -> int | None:
        """The partition that stores a key; None while the topic does not exist."""
        topic = self._metadata.topics.get(self.name)
        return None if topic is None else partition_of_key(key, len(topic.partitions))

    def leader_of(self, key: str) -> int:
        """The broker that coordinates a key. Raises COORDINATOR_NOT_AVAILABLE if there is none."""
        partition = self.partition_of(key)
        if partition is None:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.name} does not exist yet"
                if self._last_error is None
                else f"the controller could not create {self.name}: {self._last_error.name}",
            )
        known = self._metadata.partition(self.name, partition)
        if known is None or not self._metadata.is_live(known.leader):
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.name}-{partition} has no leader",
            )
        return known.leader

    def ensure(self) -> Deferred[None]:
        """Fires when the topic exists, or this attempt to create it has failed. Never fails."""
        if self.name in self._metadata.topics:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if self._waiting is None:
            self._waiting = [done]
            self._create([self.name]).addCallback(self._created)
        else:
            self._waiting.append(done)
        return done

    def _created(self, errors: Mapping[str, ErrorCode]) -> None:
        error: ErrorCode | None = errors[self.name]
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            error = None
        elif error is not self._last_error:
            _log.warning(
                "The controller could not create %s: %s. %s cannot work until it exists; it "
                "needs as many live brokers as %s, and that must not be below "
                "min.insync.replicas",
                self.name,
                error,
                self._user,
                self._replicas,
            )
        self._last_error = error
        waiting, self._waiting = self._waiting or [], None
        for done in waiting:
            done.callback(None)
