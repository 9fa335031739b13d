"""A broker with ownership, without its process: real logs and handlers, and a model of ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast_log.broker.ownership import settings as ownership_settings
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.authorization import Authorizer, call_on_change
from holdfast_log.broker.wiring.ownership import build_ownership
from holdfast_log.clients.settings import Settings
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES, OWNED_TOPICS
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    encode_partition_state,
    partition_state_path,
)
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.messages.ownership import (
    Access,
    ResourceStanding,
)
from holdfast_log.testing.fakes.handlers import AnswerParts, handlers_about
from tests.broker.world import LOCAL_ID, Client, World, only_produced, produce_request
from tests.models.batches import batch
from tests.models.instant_zookeeper import InstantZooKeeper
from tests.models.ownership_requests import OwnershipRequests

SESSION_MS = 10_000


class OwnershipWorld(World):
    """Broker 1 with ownership. Partition 0 of `__consumer_offsets` keeps all groups."""

    def __init__(
        self,
        directory: Path,
        topic_config: dict[str, Any] | None = None,
        authorizer: Authorizer | None = None,
        **own: Any,
    ) -> None:
        super().__init__(directory, topic_config=topic_config, authorizer=authorizer)
        self.zookeeper = InstantZooKeeper()
        for path in (OWNED_TOPICS, OWNED_NAMES):
            self.zookeeper.znodes[path] = (b"", 0)
        self.ownership = build_ownership(
            Settings(ownership_settings.SETTINGS, own),
            self.surroundings(self.zookeeper),
            self.replicas,
            lambda group: 0,
            self.right,
            self.fetches,
            self.dispatcher.rights,
        )
        if self.ownership.revocation is not None:
            call_on_change(authorizer, self.ownership.revocation.rules_changed)
        service = self.ownership.service
        self.right.add_listener(service.right_changed)
        self.replicas.add_role_listener(service.role_changed)
        self.replicas.conditions.add_mismatch_listener(service.append_mismatched)
        self.dispatcher.add(
            handlers_about(OwnershipService, self.ownership, AnswerParts(LongAnswers(self.clock)))
        )

    def lead(self, topic: str, index: int = 0, *, leader_epoch: int = 0, **options: Any) -> None:
        """Make this broker lead a partition, in ZooKeeper and by a LeaderAndIsr request."""
        state = PartitionState(LOCAL_ID, leader_epoch, (LOCAL_ID,), 1)
        path = partition_state_path(topic, index)
        version = self.zookeeper.znodes[path][1] + 1 if path in self.zookeeper.znodes else 0
        self.zookeeper.znodes[path] = (encode_partition_state(state), version)
        request = self.leader_and_isr(topic, index, leader_epoch=leader_epoch)
        prepared = self.ownership.service.prepare(request)
        while not prepared.called and not self.zookeeper.is_held:
            self.clock.advance(0)  # Names are loaded in turns of the reactor.
        self.assign(topic, index, leader_epoch=leader_epoch, partition_epoch=version, **options)

    def owner(self, owner_id: str, group: str = "app", access: Access = Access.WRITE) -> Owner:
        return Owner(self, owner_id, group, access)

    def judged_owner(self, owner_id: str, group: str = "app", access: Access = Access.WRITE) -> Owner:
        """An owner on a listener that brokers do not use, whom the authorizer judges."""
        owner = Owner(self, owner_id, group, access)
        owner.client = self.stranger()
        return owner


class Owner(OwnershipRequests):
    """A client that claims resources."""

    session_timeout_ms = SESSION_MS
    timeout_ms = 5000

    def __init__(self, world: OwnershipWorld, owner_id: str, group: str, access: Access) -> None:
        super().__init__(owner_id, group, access)
        self._world = world
        self.client: Client = world.client()

    def reconnect(self) -> None:
        self.client = self._world.client()

    def claim(self, topic: str, generation: int = 1, partition: int = 0, **fields: Any) -> ResourceStanding:
        (standing,) = self.client.call(self.claim_request(topic, generation, partition, **fields)).resources
        self.take(standing)
        return standing

    def ask(self, request: Request[Any]) -> None:
        self.client.ask(request)

    def resume(self, topic: str, partition: int = 0) -> ResourceStanding:
        (standing,) = self.client.call(self.resume_request(topic, partition)).resources
        return standing

    def renew(self, topic: str, partition: int = 0) -> ResourceStanding:
        (standing,) = self.client.call(self.renew_request(topic, partition)).resources
        return standing

    def write(self, topic: str, index: int = 0, acks: int = -1) -> int:
        """Append a record; the error code."""
        request = produce_request(topic, batch(b"x"), index, acks=acks)
        return only_produced(self.client.call(request)).error_code
