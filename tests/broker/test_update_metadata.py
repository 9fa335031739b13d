"""When what the controller says of the cluster is taken, beside what it says of this broker's replicas."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from twisted.internet.defer import Deferred, DeferredLock

from broker.handlers.update_metadata import UpdateMetadataHandler
from broker.metadata import MetadataCache
from broker.strays import Strays
from protocol.errors import ErrorCode
from protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.broker.world import World

BROKER_EPOCH = 50
TOPIC_ID = uuid.UUID(int=5)


class NotedStrays:
    """Notes by which news strays are looked for."""

    def __init__(self) -> None:
        self.told: list[UpdateMetadataRequest] = []

    def after_metadata(self, request: UpdateMetadataRequest) -> None:
        self.told.append(request)


class Told:
    """A broker that the test's controller tells about the cluster."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.metadata: MetadataCache = self.world.metadata
        self.in_order = DeferredLock()
        self.roles = DeferredLock()
        self.strays = NotedStrays()
        self.broker_epoch = BROKER_EPOCH
        self.world.dispatcher.add(
            [
                UpdateMetadataHandler(
                    self.metadata,
                    lambda: self.broker_epoch,
                    self.in_order,
                    self.roles,
                    cast(Strays, self.strays),
                )
            ]
        )
        self.client = self.world.client()

    def tell(
        self,
        *,
        live: Sequence[int] = (1,),
        controller_epoch: int = 1,
        broker_epoch: int = BROKER_EPOCH,
        leaders: Sequence[int] = (),
    ) -> None:
        """What the controller says of the live brokers, and of the partitions of topic t by their leaders."""
        states = [
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=controller_epoch,
                leader=leader,
                leader_epoch=0,
                isr=[leader],
                zk_version=0,
                replicas=[1, 3],
                offline_replicas=[],
            )
            for index, leader in enumerate(leaders)
        ]
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=states)
        self.client.ask(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=controller_epoch,
                broker_epoch=broker_epoch,
                topic_states=[topic] if leaders else [],
                live_brokers=[UpdateMetadataBroker(id=broker, endpoints=[], rack=None) for broker in live],
            )
        )

    def leaders(self) -> list[int]:
        """What clients are told of topic t."""
        topic = self.metadata.topics.get("t")
        return [] if topic is None else [partition.leader for partition in topic.partitions.values()]

    def codes(self) -> list[int]:
        return [answer.error_code for answer in self.client.answers()]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_clients_are_told_of_next_leaders_while_roles_are_still_being_begun(told: Told) -> None:
    told.tell(live=[1, 2, 3], leaders=[2, 2])
    roles: Deferred[None] = Deferred()
    told.roles.run(lambda: roles)
    told.tell(live=[1, 3], leaders=[1, 3])

    assert told.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert (sorted(told.metadata.brokers), told.leaders()) == ([1, 3], [1, 3])
    assert len(told.strays.told) == 1, "whether a log is a stray shows when all roles have begun"
    roles.callback(None)
    assert len(told.strays.told) == 2


def test_new_partitions_are_shown_when_they_are_there_and_nothing_overtakes_them(told: Told) -> None:
    told.tell(live=[1, 2, 3], leaders=[2])
    assert told.codes() == [ErrorCode.NONE]
    roles: Deferred[None] = Deferred()
    told.roles.run(lambda: roles)
    told.tell(live=[1, 2, 3], leaders=[2, 1])
    told.tell(live=[1, 3], leaders=[3])
    assert (told.codes(), told.leaders()) == ([], [2])

    roles.callback(None)

    assert told.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert (sorted(told.metadata.brokers), told.leaders()) == ([1, 3], [3, 1])


def test_before_the_broker_is_registered_nothing_is_taken(told: Told) -> None:
    told.broker_epoch = -1
    told.in_order.acquire()
    told.roles.acquire()
    told.tell(live=[1, 2], broker_epoch=BROKER_EPOCH - 10)
    told.tell(live=[1, 3])
    assert (told.codes(), told.metadata.brokers) == ([], {})

    told.broker_epoch = BROKER_EPOCH
    told.in_order.release()
    told.roles.release()

    assert told.codes() == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]
    assert sorted(told.metadata.brokers) == [1, 3]
    assert [len(request.live_brokers) for request in told.strays.told] == [2], "for the second only"


def test_a_controller_that_was_replaced_tells_nothing(told: Told) -> None:
    told.tell(live=[1, 3], controller_epoch=7)
    told.tell(live=[1, 2], controller_epoch=6)

    assert told.codes() == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert sorted(told.metadata.brokers) == [1, 3]
    assert [request.controller_epoch for request in told.strays.told] == [7]
