"""The order in which a broker applies the controller's metadata updates and role assignments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.update_metadata import UpdateMetadataHandler
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.orders.strays import Strays
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.broker.world import World
from tests.models.orders import broker_metadata, leader_and_isr, partition_metadata, update_metadata

BROKER_EPOCH = 50


class NotedStrays:
    """Records the updates after which the broker looks for stray logs."""

    def __init__(self) -> None:
        self.told: list[UpdateMetadataRequest] = []

    def before_roles(self, request: LeaderAndIsrRequest) -> None: ...

    def after_metadata(self, request: UpdateMetadataRequest) -> None:
        self.told.append(request)


class SlowRoles:
    """Begins roles when the test says so."""

    def __init__(self) -> None:
        self.outcome: Deferred[LeaderAndIsrResponse] = Deferred()

    def apply_leader_and_isr(self, *arguments: object) -> Deferred[LeaderAndIsrResponse]:
        return self.outcome


class Told:
    """A broker that gets requests from the test's controller."""

    def __init__(self, directory: Path, *, is_registered: bool = True) -> None:
        self.world = World(directory)
        self.metadata: MetadataCache = self.world.metadata
        self.strays = NotedStrays()
        self.roles = SlowRoles()
        self.registration = SimpleNamespace(broker_epoch=BROKER_EPOCH)
        self.orders = ControllerOrders(
            self.metadata,
            self.world.replicas,
            cast(Roles, self.roles),
            cast(DynamicConfigs, None),
            lambda request: succeed(None),
            self.registration,
            cast(Strays, self.strays),
            self.world.right,
            lambda broker_epoch: None,
        )
        if is_registered:
            self.orders.begin()
        self.world.dispatcher.add([UpdateMetadataHandler(self.orders)])
        self.client = self.world.client()

    def tell(
        self,
        *,
        live: Sequence[int] = (1,),
        controller_epoch: int = 1,
        broker_epoch: int = BROKER_EPOCH,
        leaders: Sequence[int] = (),
    ) -> None:
        """An update with the live brokers, and the partitions of topic t by their leaders."""
        states = [
            partition_metadata(index, leader=leader, isr=[leader], controller_epoch=controller_epoch)
            for index, leader in enumerate(leaders)
        ]
        epochs = {"controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
        self.client.ask(update_metadata(states=states, live=list(map(broker_metadata, live)), **epochs))

    def begin_roles(self) -> None:
        """Assign leaderships to this broker; `end_roles` completes them."""
        request = leader_and_isr(broker_epoch=BROKER_EPOCH)
        request.topic_states = []
        self.orders.leader_and_isr(request)

    def end_roles(self) -> None:
        self.roles.outcome.callback(LeaderAndIsrResponse(error_code=0, topics=[]))

    def leaders(self) -> list[int]:
        """The metadata of topic t that clients get."""
        topic = self.metadata.topics.get("t")
        return [] if topic is None else [partition.leader for partition in topic.partitions.values()]

    def codes(self) -> list[int]:
        return [answer.error_code for answer in self.client.answers()]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_clients_get_new_leaders_while_roles_are_still_beginning(told: Told) -> None:
    told.tell(live=[1, 2, 3], leaders=[2, 2])
    told.begin_roles()
    told.tell(live=[1, 3], leaders=[1, 3])

    assert told.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert (sorted(told.metadata.brokers), told.leaders()) == ([1, 3], [1, 3])
    assert len(told.strays.told) == 1, "whether a log is a stray shows when all roles have begun"
    told.end_roles()
    assert len(told.strays.told) == 2


def test_new_partitions_are_shown_once_created_and_in_the_order_of_updates(told: Told) -> None:
    told.tell(live=[1, 2, 3], leaders=[2])
    assert told.codes() == [ErrorCode.NONE]
    told.begin_roles()
    told.tell(live=[1, 2, 3], leaders=[2, 1])
    told.tell(live=[1, 3], leaders=[3])
    assert (told.codes(), told.leaders()) == ([], [2])

    told.end_roles()

    assert told.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert (sorted(told.metadata.brokers), told.leaders()) == ([1, 3], [3, 1])


def test_an_unregistered_broker_accepts_no_update(tmp_path: Path) -> None:
    told = Told(tmp_path, is_registered=False)
    told.registration.broker_epoch = -1
    told.tell(live=[1, 2], broker_epoch=BROKER_EPOCH - 10)
    told.tell(live=[1, 3])
    assert (told.codes(), told.metadata.brokers) == ([], {})

    told.registration.broker_epoch = BROKER_EPOCH
    told.orders.begin()

    assert told.codes() == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]
    assert sorted(told.metadata.brokers) == [1, 3]
    assert [len(request.live_brokers) for request in told.strays.told] == [2], "for the second only"


def test_updates_of_a_replaced_controller_are_refused(told: Told) -> None:
    told.tell(live=[1, 3], controller_epoch=7)
    told.tell(live=[1, 2], controller_epoch=6)

    assert told.codes() == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert sorted(told.metadata.brokers) == [1, 3]
    assert [request.controller_epoch for request in told.strays.told] == [7]
