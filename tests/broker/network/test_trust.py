"""What a connection may do depends on its listener or on the secret, and on nothing that the client says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.network.admission import BrokerAdmission
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.endpoints import Endpoint, Endpoints
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.listener import ListenerLimits, Listeners
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.wiring.node import WiredBroker, build_broker
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.world import World, fetch_request
from tests.models.wires import FakeNetwork

LIMITS = ConnectionLimits(1 << 20, 1 << 20, 100)
OWN = BrokerAdmission(frozenset(("INTERNAL",)), "INTERNAL", has_secret=False)
SHARED = BrokerAdmission(frozenset(("PLAINTEXT",)), None, has_secret=False)
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def leading_in(path: Path) -> World:
    """A broker that leads partition 0 of topic t, which broker 2 follows."""
    world = World(path)
    world.assign("t", replicas=(1, 2))
    return world


def wired_in(path: Path, admission: BrokerAdmission) -> WiredBroker:
    world = World(path)
    zookeeper = cast(ZooKeeper, SimpleNamespace(add_listener=lambda listener: None))
    identity = BrokerIdentity(1, "cluster", "INTERNAL")
    settings = broker_settings({"zookeeper.connect": "z:1"})
    return build_broker(settings, world.surroundings(zookeeper), world.logs, identity, admission, pytest.fail)


def test_only_connections_to_trusted_listeners_count_as_brokers() -> None:
    network = FakeNetwork()
    limits = ListenerLimits(100, 100, 60_000, LIMITS)
    listeners = Listeners(network, Clock(), lambda *given: None, limits, trusted=OWN.trusted)
    both = tuple(Endpoint(name, "PLAINTEXT", "127.0.0.1", 0) for name in ("PLAINTEXT", "INTERNAL"))
    listeners.start(Endpoints(both, both, "INTERNAL", brokers_have_own=True))
    accepted = [port.accept(Address("192.0.2.1", 5000)) for port in network.ports]
    assert [cast(ServerConnection, each).is_broker for each in accepted] == [False, True]


def test_a_fetch_with_a_replica_id_is_a_brokers_only(path: Path) -> None:
    world = leading_in(path)
    fetch = fetch_request(world.topic_id("t"), 0, replica_id=2)
    assert world.stranger("replica-fetcher-2-0").call(fetch).error_code == REFUSED
    assert world.client().call(fetch).error_code == ErrorCode.NONE


def test_offsets_for_a_replica_are_a_brokers_only(path: Path) -> None:
    world = leading_in(path)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=2, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    codes = []
    for client in (world.stranger(), world.client()):
        (row,) = client.call(request).topics[0].partitions
        codes.append(row.error_code)
    assert codes == [REFUSED, ErrorCode.NONE]


def test_epochs_for_a_replica_are_a_brokers_only(path: Path) -> None:
    world = leading_in(path)
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic="t", partitions=[wanted])
    codes = []
    for client in (world.stranger(), world.client()):
        (row,) = client.call(OffsetForLeaderEpochRequest(replica_id=2, topics=[topic])).topics[0].partitions
        codes.append(row.error_code)
    assert codes == [REFUSED, ErrorCode.NONE]


def test_a_name_frees_from_quotas_only_where_brokers_have_no_listener_of_their_own(path: Path) -> None:
    charged = {}
    for admission in (OWN, SHARED):
        broker = wired_in(path / str(admission.own), admission)
        broker.quotas.limits.configs_changed("clients", "<default>", {"producer_byte_rate": "1"})
        for is_broker in (False, True):
            for name in ("broker-1", "app"):
                connection = ServerConnection(
                    1, "L", Address("192.0.2.1", 1), lambda *given: None, LIMITS, Clock(), is_broker=is_broker
                )
                connection.client_id = name
                ms = broker.quotas.clients.charge(QuotaKey.PRODUCE, connection, name, 1_000_000)
                charged[admission.own, is_broker, name] = ms > 0
    assert charged == {
        ("INTERNAL", False, "broker-1"): True,
        ("INTERNAL", False, "app"): True,
        ("INTERNAL", True, "broker-1"): False,
        ("INTERNAL", True, "app"): False,
        (None, False, "broker-1"): True,
        (None, False, "app"): True,
        (None, True, "broker-1"): False,
        (None, True, "app"): True,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path
