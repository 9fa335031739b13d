"""Owners against real brokers and a real ZooKeeper, with restarts, failing leaders and recreated topics."""

from __future__ import annotations

import itertools

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.owners import Owner, produce_request, wait_for_leader

_topics = itertools.count(1)


@pytest.fixture
def port(broker: BackgroundBroker) -> int:
    return broker.port


@pytest.fixture
def log(broker: BackgroundBroker) -> str:
    """A topic with one partition."""
    topic = f"log-{next(_topics)}"
    clients.create_topic(broker.address, topic)
    return topic


def test_an_owner_whose_resource_is_stolen_is_severed_and_cannot_write(port: int, log: str) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    assert anna.claim(log).generation == 1
    assert [anna.write(log) for _ in range(3)] == [0, 0, 0]
    assert ben.write(log) == ErrorCode.POLICY_VIOLATION

    taken = ben.claim(log, generation=1)

    assert (taken.error_code, taken.generation, taken.fence_offset) == (0, 2, 3)
    assert anna.socket.is_hung_up()
    assert ben.write(log) == 0
    anna.reconnect()
    fenced = anna.resume(log)
    assert (fenced.error_code, fenced.reason) == (ErrorCode.OWNERSHIP_FENCED, LossReason.STOLEN)
    assert (fenced.generation, fenced.owner_id) == (2, "ben")
    assert anna.write(log) == ErrorCode.POLICY_VIOLATION


def test_requests_queued_on_a_severed_connection_are_not_written(port: int, log: str) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    anna.claim(log)
    fence = ben.claim(log).fence_offset

    for _ in range(50):
        anna.socket.send_request(produce_request(log, b"late"))

    assert ben.produce(log).base_offset == fence


def test_owners_survive_a_restart_of_the_broker(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    clients.create_topic(cluster.bootstrap, "log")
    port = broker.port
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    anna.claim("log")
    anna.claim("log", generation=110)
    anna.claim("log", generation=110)
    broker.kill()
    broker.start()
    broker.wait_ready()
    wait_for_leader([broker], "log")

    ben.reconnect(broker.port)
    refused = ben.claim("log", generation=-1)
    assert (refused.error_code, refused.owner_id) == (ErrorCode.RESOURCE_OWNED, "anna")
    assert ben.write("log") == ErrorCode.POLICY_VIOLATION
    anna.reconnect(broker.port)
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


def test_a_waiting_exclusive_producer_is_promoted_when_the_owner_disconnects(port: int, log: str) -> None:
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    assert anna.access_to(log, ProducerAccessMode.EXCLUSIVE).epoch == 1
    assert ben.access_to(log, ProducerAccessMode.EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED
    queued = ben.access_to(log, ProducerAccessMode.WAIT_FOR_EXCLUSIVE, wait_ms=-1)
    assert (queued.error_code, queued.position) == (ErrorCode.CLAIM_QUEUED, 1)
    ben.incarnation = -1

    anna.socket.close()

    promoted = ben.renew(log, max_wait_ms=10_000)
    while promoted.error_code == ErrorCode.CLAIM_QUEUED:
        promoted = ben.renew(log, max_wait_ms=10_000)
    assert (promoted.error_code, promoted.generation) == (0, 2)
    assert ben.write(log) == 0
    anna.reconnect()
    fenced = anna.access_to(log, ProducerAccessMode.EXCLUSIVE, epoch=1)
    assert fenced.error_code == ErrorCode.PRODUCER_FENCED


def test_a_recreated_topic_has_no_owner(broker: BackgroundBroker, log: str) -> None:
    """Case 17: "Ownership is keyed by topic id; deletion fences"."""
    anna, ben = Owner(broker.port, "anna"), Owner(broker.port, "ben")
    anna.claim(log)
    anna.claim(log, generation=50)

    clients.delete_topic(broker.address, log)
    assert anna.socket.is_hung_up()
    clients.create_topic(broker.address, log)

    assert ben.write(log) == 0
    assert ben.claim(log, generation=1).generation == 1
    anna.reconnect()
    assert anna.resume(log).error_code == ErrorCode.OWNERSHIP_FENCED


def test_owners_survive_the_failure_of_the_leader(cluster: Cluster) -> None:
    cluster.start(3)
    clients.create_topic(cluster.bootstrap, "log", replicas=3)
    leader = wait_for_leader(cluster.brokers, "log")
    port = cluster.brokers[leader - 1].port
    anna, ben = Owner(port, "anna"), Owner(port, "ben")
    assert anna.claim("log").generation == 1
    assert anna.write("log", b"first") == 0
    assert ben.claim("log").fence_offset == 1
    assert ben.write("log", b"second") == 0

    cluster.lose(cluster.brokers[leader - 1])
    others = [broker for broker in cluster.brokers if broker.broker_id != leader]
    next_leader = wait_for_leader(others, "log", other_than=leader)

    port = cluster.brokers[next_leader - 1].port
    anna.reconnect(port)
    assert anna.write("log", b"late") == ErrorCode.POLICY_VIOLATION
    assert anna.resume("log").error_code == ErrorCode.OWNERSHIP_FENCED
    ben.reconnect(port)
    resumed = ben.resume("log")
    assert (resumed.error_code, resumed.generation) == (0, 2)
    # The fence offset is written just after the grant. A leader that has not read it sets a later fence.
    assert resumed.fence_offset in (1, 2)
    assert ben.produce("log", b"third").base_offset == 2
    assert anna.claim("log", generation=1).error_code == ErrorCode.STALE_GENERATION
    assert anna.claim("log", generation=2).fence_offset == 3


def test_an_owner_can_bind_a_stock_client_as_the_only_writer(broker: BackgroundBroker, log: str) -> None:
    """Another process claims the partition and binds the stock client's id."""
    keeper = Owner(broker.port, "keeper")
    keeper.claim(log, writer_client_id="loader")

    assert clients.produce(broker.address, log, [b"a"], **{"client.id": "loader"}) == [0]
    error = clients.produce_error(broker.address, log, **{"client.id": "another"})
    assert error == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("policy", ["off", "claimed", "required"])
def test_single_writer_decides_whether_a_stock_client_may_write(
    broker: BackgroundBroker, policy: str
) -> None:
    topic = f"log-{policy}"
    clients.create_topic(broker.address, topic, config={"single.writer": policy})

    may_write_unowned = clients.produce_error(broker.address, topic) is None
    Owner(broker.port, "anna").claim(topic)
    anna = Owner(broker.port, "anna")
    anna.claim(topic)
    may_write_owned = clients.produce_error(broker.address, topic) is None

    assert (may_write_unowned, may_write_owned) == (policy != "required", policy == "off")
    assert anna.write(topic) == 0
    assert anna.write(topic, acks=1) == (0 if policy == "off" else ErrorCode.INVALID_REQUIRED_ACKS)


def test_case_8_a_half_open_connection_loses_its_resource_after_its_session(port: int, log: str) -> None:
    """ "Half-open TCP": the socket stays open, but carries no more bytes."""
    dead, ben = Owner(port, "dead"), Owner(port, "ben")
    dead.claim(log, session_ms=10_000)  # Long enough that ben is there before.
    queued = ben.claim(log, generation=-1, wait_timeout_ms=-1)
    assert (queued.error_code, queued.position) == (ErrorCode.CLAIM_QUEUED, 1)

    while (standing := ben.renew(log, max_wait_ms=5000)).error_code == ErrorCode.CLAIM_QUEUED:
        pass

    assert (standing.error_code, standing.generation) == (0, 2)
    assert dead.socket.is_hung_up()


def test_an_interrupted_load_resumes_without_duplicates(port: int, log: str) -> None:
    """ "Even if the list is much larger than the buffer size or the producer has to be restarted, each
    message will be appended to the log just once" (KIP-27)."""
    values = [b"%d" % number for number in range(30)]
    for _ in range(3):
        loader = Owner(port, "loader")
        offset = 0
        attempt = 0
        while offset < len(values):
            answer = loader.produce(log, values[offset], expected_offset=offset, attempt=attempt)
            if answer.error_code == 0 and offset % 11 == 10:
                break  # The loader restarts, and does not know the offset that it has reached.
            attempt += answer.error_code == ErrorCode.OFFSET_MISMATCH
            offset = answer.next_offset
    assert clients.consume(f"127.0.0.1:{port}", log, len(values)) == values
