"""The base of simulated clients: a process, channels to brokers, and a view of the cluster.

They use the codecs and the broker's own `BrokerChannel`. Like Kafka's own clients they ask any broker for
metadata, follow leaders by epoch, and retry errors.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.outbound import BrokerChannel, ChannelSettings
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.models.network import ProcessNetwork, SimNetwork
from tests.models.world import Process, World
from tests.sim.history import History, TopicPartition

R = TypeVar("R", bound=Response)

OWNERS_GROUP = "owners"
"""Group in which writers, and owners of names, claim resources (own API)."""
RETRY_S = 0.1
_REQUEST_TIMEOUT_MS = 5000
_METADATA_AGE_S = 8.0

PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors that a correct cluster may answer under faults. Clients retry them."""
NOT_THE_WRITER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OWNERSHIP_FENCED,
        ErrorCode.OWNERSHIP_DETACHED,
    }
)
"""Refusals of a batch by an owned partition, because another client is its writer, or nobody is."""


@dataclass(frozen=True, slots=True)
class Decider:
    """What judges know about a broker that decides about a resource.

    `life` numbers the broker's process; it has run without a pause since `awake_since_s`. `believed_epoch` is
    the leader epoch in which the broker believes it leads the deciding partition (-1: it does not lead it).
    `is_current` is true if ZooKeeper agrees.
    """

    life: int
    awake_since_s: float
    believed_epoch: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every client of a simulation is constructed with.

    `life_of` returns the number of the broker process at an address. `decider` returns what judges know about
    the broker that decides about a resource; clients do not act on it.
    """

    world: World
    network: SimNetwork
    history: History
    bootstrap: Sequence[Address]
    life_of: Callable[[Address], int]
    decider: Callable[[Address, TopicPartition], Decider]


@dataclass(slots=True)
class KnownTopic:
    """A topic in a Metadata response: its id, and leader (-1: none) and leader epoch of each partition."""

    topic_id: uuid.UUID
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)


class Client:
    """One process that talks to brokers."""

    def __init__(self, around: Surroundings, name: str) -> None:
        self.name = name
        self.world = around.world
        self.history = around.history
        self.life_of = around.life_of
        self.process = Process(around.world, name)
        self.rng: random.Random = self.process.rng("client")
        self.topics: dict[str, KnownTopic] = {}
        """Every broker that any Metadata response listed. A broker that has just started may list fewer."""
        self.present: dict[str, None] = {}
        """Topic names in the last Metadata response."""
        self.controller_id = -1
        self.network: ProcessNetwork = around.network.for_process(self.process)
        self._bootstrap = list(around.bootstrap)
        self._brokers: dict[int, Address] = {}
        self._channels: dict[Address, BrokerChannel] = {}
        self._is_refreshing = False

    def start(self) -> None:
        self.process.run(self.begin)

    def begin(self) -> None:
        """Called once, when the process starts."""
        self.keep_fresh()

    def later(self, seconds: float, function: Any, *arguments: Any) -> None:
        self.process.clock.callLater(seconds, function, *arguments)

    def address_of(self, broker_id: int) -> Address | None:
        return self._brokers.get(broker_id)

    def brokers(self) -> list[int]:
        """Ids of the known brokers."""
        return list(self._brokers)

    def leader_of(self, at: TopicPartition) -> tuple[Address, int] | None:
        """Address and epoch of a partition's leader; None if unknown."""
        topic = self.topics.get(at[0])
        if topic is None:
            return None
        broker_id, epoch = topic.leaders.get(at[1], (-1, -1))
        address = self._brokers.get(broker_id)
        return None if address is None else (address, epoch)

    def send(self, address: Address, request: Request[R], version: int | None = None) -> Deferred[R]:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = BrokerChannel(
                address,
                self.network,
                self.process.clock,
                self.rng.random,
                ChannelSettings(self.name, request_timeout_ms=_REQUEST_TIMEOUT_MS, connect_timeout_ms=1000),
            )
        return channel.send(request, version)

    def line_to(self, address: Address) -> object | None:
        """An object that identifies the present connection to a broker; each reconnect yields another."""
        channel = self._channels.get(address)
        return None if channel is None or not channel.is_connected else channel._link

    def anyone(self) -> Address:
        known = list(self._brokers.values()) or self._bootstrap
        return self.rng.choice(known)

    def is_connected(self, address: Address) -> bool:
        """Whether a request to the broker is sent at once, over an open connection."""
        channel = self._channels.get(address)
        return channel is not None and channel.is_connected

    def drop(self, address: Address) -> None:
        """Close the connection to a broker. Its unanswered requests fail."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    # Metadata

    def keep_fresh(self) -> None:
        """Ask for metadata now and periodically: brokers do not announce new partitions."""
        self.refresh()
        self.later(_METADATA_AGE_S, self.keep_fresh)

    def refresh(self) -> None:
        """Ask for metadata, unless a request is pending."""
        if self._is_refreshing:
            return
        self._is_refreshing = True
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.send(self.anyone(), request)
        answer.addCallbacks(self._refreshed, self._refresh_failed)

    def _refresh_failed(self, failure: Failure) -> None:
        self._brokers = {}  # The known addresses may be stale: start over from the bootstrap servers.
        self.later(RETRY_S, self._refresh_again)

    def _refresh_again(self) -> None:
        self._is_refreshing = False
        self.refresh()

    def _refreshed(self, response: MetadataResponse) -> None:
        self._is_refreshing = False
        self.history.operations += 1
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        self.present.clear()
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                self.present[topic.name or ""] = None
                self._learn(topic.name or "", topic)
        self.metadata_arrived()

    def _learn(self, name: str, topic: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            known = self.topics[name] = KnownTopic(topic.topic_id)
        for partition in topic.partitions:
            _, epoch = known.leaders.get(partition.partition_index, (-1, -1))
            # A response with an older leader epoch does not replace a newer one (KIP-320).
            if partition.leader_epoch >= epoch:
                known.leaders[partition.partition_index] = (partition.leader_id, partition.leader_epoch)

    def metadata_arrived(self) -> None:
        """Called after every Metadata response."""
