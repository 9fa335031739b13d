"""Owners against real brokers and a real ZooKeeper: restarts, leaders that fail, topics that come anew."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.ownership import LossReason
from protocol.messages.producer_access import ProducerAccessMode
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.owners import Owner, produce_request


@pytest.fixture
def port(cluster: Cluster) -> int:
    (broker,) = cluster.start()
    clients.create_topic(cluster.bootstrap, "log")
    return broker.port


def test_an_owner_is_severed_and_cannot_write_any_more(port: int) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    assert anna.claim("log").generation == 1
    assert [anna.write("log") for _ in range(3)] == [0, 0, 0]
    assert ben.write("log") == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    taken = ben.claim("log", generation=1)

    assert (taken.error_code, taken.generation, taken.fence_offset) == (0, 2, 3)
    assert anna.socket.is_hung_up()
    assert ben.write("log") == 0
    anna.reconnect()
    fenced = anna.resume("log")
    assert (fenced.error_code, fenced.reason) == (ErrorCode.OWNERSHIP_FENCED, LossReason.STOLEN)
    assert (fenced.generation, fenced.owner_id) == (2, "ben")
    assert anna.write("log") == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_what_a_severed_connection_had_queued_is_not_written(port: int) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    anna.claim("log")
    fence = ben.claim("log").fence_offset

    for _ in range(50):
        anna.socket.send_request(produce_request("log", b"late"))

    assert ben.produce("log").base_offset == fence


def test_owners_survive_a_restart_of_the_broker(cluster: Cluster, port: int) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    anna.claim("log")
    anna.claim("log", generation=110)
    anna.claim("log", generation=110)
    cluster.brokers[0].kill()
    cluster.brokers[0].start()
    cluster.brokers[0].wait_ready()

    ben.reconnect(cluster.brokers[0].port)
    refused = ben.claim("log", generation=-1)
    assert (refused.error_code, refused.owner_id) == (ErrorCode.RESOURCE_OWNED, "anna")
    assert ben.write("log") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    anna.reconnect(cluster.brokers[0].port)
    resumed = anna.resume("log")
    assert (resumed.error_code, resumed.generation) == (0, 110)
    assert anna.write("log") == 0
    assert ben.claim("log", generation=110).generation == 111


def test_names_are_owned_at_the_coordinator_of_their_group(port: int) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    anna.wait_for_coordinator()

    assert anna.claim("leader", partition=-1).generation == 1
    assert ben.claim("leader", partition=-1).generation == 2

    assert anna.socket.is_hung_up()


def test_exclusive_producers(port: int) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    assert anna.access_to("log", ProducerAccessMode.EXCLUSIVE).epoch == 1
    assert ben.access_to("log", ProducerAccessMode.EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED
    queued = ben.access_to("log", ProducerAccessMode.WAIT_FOR_EXCLUSIVE, wait_ms=-1)
    assert (queued.error_code, queued.position) == (ErrorCode.CLAIM_QUEUED, 1)
    ben.incarnation = -1

    anna.socket.close()

    promoted = ben.renew("log", max_wait_ms=10_000)
    while promoted.error_code == ErrorCode.CLAIM_QUEUED:
        promoted = ben.renew("log", max_wait_ms=10_000)
    assert (promoted.error_code, promoted.generation) == (0, 2)
    assert ben.write("log") == 0
    anna.reconnect()
    fenced = anna.access_to("log", ProducerAccessMode.EXCLUSIVE, epoch=1)
    assert fenced.error_code == ErrorCode.PRODUCER_FENCED
