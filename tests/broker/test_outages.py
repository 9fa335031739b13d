"""A broker that loses ZooKeeper, registers again, and waits for its orders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.replication.outages import ZooKeeperOutages
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from tests.broker.world import World
from tests.models.orders import leader_and_isr

OLD, NEW = 7, 9
"""Broker epochs of two successive registrations."""


class Standing:
    """A broker with its replicas, whose registration `OLD` has ended."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.outages = ZooKeeperOutages(self.world.right, pytest.fail)
        self.registered(OLD)
        self.outages.ordered(OLD)
        self.outages.suspended()
        self.outages.expired()

    def registered(self, broker_epoch: int) -> None:
        self.outages.registered(cast(Any, None), broker_epoch)

    def acts(self) -> bool:
        """Whether the broker confirms what it leads, and acknowledges what it alone has."""
        may_confirm = self.world.right.may_confirm_any()
        assert may_confirm is not self.world.replicas.right_to_acknowledge.needs_followers
        return may_confirm


@pytest.fixture
def standing(tmp_path: Path) -> Standing:
    return Standing(tmp_path)


def test_a_broker_that_has_registered_again_waits_for_its_orders(standing: Standing) -> None:
    standing.registered(NEW)
    assert not standing.acts()
    standing.outages.ordered(NEW)
    assert standing.acts()


def test_orders_for_the_ended_registration_are_not_enough(standing: Standing) -> None:
    standing.outages.ordered(OLD)
    standing.registered(NEW)
    standing.outages.ordered(OLD)
    assert not standing.acts()


def test_a_connection_that_breaks_and_returns_does_not_replace_the_orders(standing: Standing) -> None:
    standing.registered(NEW)
    standing.outages.suspended()
    standing.outages.resumed()
    assert not standing.acts()
    standing.outages.ordered(NEW)
    assert standing.acts()


def test_orders_that_come_before_the_broker_knows_that_it_is_registered_count(standing: Standing) -> None:
    standing.outages.ordered(NEW)
    assert not standing.acts()
    standing.registered(NEW)
    assert standing.acts()


def test_orders_that_come_while_the_connection_is_broken_count(standing: Standing) -> None:
    standing.registered(NEW)
    standing.outages.suspended()
    standing.outages.ordered(NEW)
    assert standing.acts(), "its lease says how long"
    standing.outages.resumed()
    assert standing.acts()


def test_an_order_is_dropped_if_the_broker_registers_again_while_it_is_prepared(standing: Standing) -> None:
    """The owners are read from ZooKeeper before an order is applied, which may take until then."""
    world, prepared = standing.world, Deferred[None]()
    registration = SimpleNamespace(broker_epoch=OLD)
    orders = ControllerOrders(
        world.metadata,
        world.replicas,
        world.roles,
        cast(DynamicConfigs, None),
        lambda request: prepared,
        registration,
        cast(Any, None),
        world.right,
        standing.outages.ordered,
    )
    orders.begin()
    request = leader_and_isr(broker_epoch=OLD)
    request.topic_states = []
    found: list[LeaderAndIsrResponse | BrokerError] = []
    orders.leader_and_isr(request).addCallbacks(found.append, lambda failure: found.append(failure.value))
    registration.broker_epoch = NEW
    standing.registered(NEW)

    prepared.callback(None)

    (error,) = found
    assert isinstance(error, BrokerError) and error.code is ErrorCode.STALE_BROKER_EPOCH
    assert not standing.acts()
