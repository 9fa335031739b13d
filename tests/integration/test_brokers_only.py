"""What is for brokers only does nothing for a client: on a listener of their own, and on a shared one with a
secret.

Each attack is made by a raw socket on the listener of clients, against real brokers.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker, known_brokers
from holdfast_log.clients.admin import Admin, ClientQuotaEntity
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.authenticate_broker import AuthenticateBrokerRequest
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from holdfast_log.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.hostile_requests import harmful, internal_requests
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until
from tests.models.batches import batch

CLOSED = {"AllocateProducerIds", "GetReplicaLogInfo"}
"""Internal APIs whose requests close the connection: brokers do not serve the first, and the answer to the
second has no error of the whole request."""
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
PATIENT = {"zookeeper.session.timeout.ms": "120000", "replica.lag.time.max.ms": "600000"}
"""Settings of brokers that keep a follower that stands still in sync, and registered."""


def secret_file(directory: Path, content: str | None = None) -> str:
    path = directory / "cluster.secret"
    path.write_text(f"{content or secrets.token_hex(32)}\n")
    path.chmod(0o600)
    return str(path)


def shared_with_secret(broker_port: int, directory: Path) -> dict[str, str]:
    """Settings of a broker with one listener, on which brokers need the secret."""
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "cluster.secret.file": secret_file(directory),
    }


@pytest.fixture(scope="module", params=["own listener", "shared listener with a secret"])
def broker(
    request: pytest.FixtureRequest, zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BackgroundBroker]:
    directory = tmp_path_factory.mktemp("brokers-only")
    cluster = Cluster(directory, f"{zookeeper_server}/{directory.name}")
    started = cluster.add({"socket.request.max.elements": "1000"})
    if request.param != "own listener":
        started.properties |= shared_with_secret(started.port, directory)
    started.start()
    started.wait_ready()
    with RawSocket(started.port) as client:
        # A consumer has the topic of offsets created, which is to be there before a test compares states.
        until(lambda: has_coordinator(client))
    try:
        yield started
    finally:
        cluster.stop()
        cluster.show()


def has_coordinator(client: RawSocket) -> bool:
    (found,) = client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])).coordinators
    return bool(found.error_code == ErrorCode.NONE)


def topic_id_of(broker: BackgroundBroker, topic: str) -> uuid.UUID:
    with RawSocket(broker.port) as client:
        (found,) = [each for each in client.call(MetadataRequest(topics=None)).topics if each.name == topic]
    return found.topic_id


def state_of(broker: BackgroundBroker, topic: str) -> tuple[Any, ...]:
    """What clients see of the cluster, and what is on the disk of the topic."""
    with RawSocket(broker.port) as client:
        metadata = client.call(MetadataRequest(topics=None))
    files = sorted(path.name for path in broker.log_dirs[0].glob(f"{topic}-0/*.log"))
    return metadata.brokers, metadata.controller_id, metadata.topics, files


@pytest.mark.parametrize(
    ("request_class", "version"),
    internal_requests(),
    ids=lambda each: getattr(each, "__name__", None) or f"version {each}",
)
def test_every_version_of_every_api_between_brokers_is_refused_to_clients(
    request_class: type[Request[Any]], version: int, broker: BackgroundBroker
) -> None:
    topic = f"walk-{request_class.api.key}-{version}"
    clients.create_topic(broker.address, topic)
    clients.produce(broker.address, topic, [b"kept"])
    before = state_of(broker, topic)
    order = harmful(request_class, version, topic, topic_id_of(broker, topic))

    with RawSocket(broker.port) as attacker:
        answer = attacker.ask(order, version)

    if request_class.api.name in CLOSED:
        assert answer is None
    elif request_class is AuthenticateBrokerRequest:
        # Everybody may begin: the answer has a nonce, or says that there is no secret.
        assert answer is not None and answer.proof == b""
        assert answer.error_code == (0 if answer.nonce else ErrorCode.SECURITY_DISABLED)
    elif request_class is WriteTxnMarkersRequest:
        # The answer has an error for each partition.
        assert answer is not None
        rows = [row for each in answer.markers for topic in each.topics for row in topic.partitions]
        assert {row.error_code for row in rows} == {REFUSED}
    else:
        assert answer is not None and answer.error_code == REFUSED
    assert state_of(broker, topic) == before
    assert clients.consume(broker.address, topic, 1) == [b"kept"]


def test_a_client_that_poses_as_a_replica_is_refused(broker: BackgroundBroker) -> None:
    topic = "posing"
    clients.create_topic(broker.address, topic)
    clients.produce(broker.address, topic, [b"kept"])
    topic_id = topic_id_of(broker, topic)
    with RawSocket(broker.port) as attacker:
        for version in range(4, FetchRequest.api.max_version + 1):
            wanted = FetchTopic(
                **({"topic": topic} if version < 13 else {"topic_id": topic_id}),
                partitions=[FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)],
            )
            poses = (
                {"replica_id": 2}
                if version < 15
                else {"replica_state": ReplicaState(replica_id=2, replica_epoch=1)}
            )
            fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[wanted], **poses)
            answer = attacker.call(fetch, version)
            codes = (
                [answer.error_code]
                if version >= 7
                else [row.error_code for each in answer.responses for row in each.partitions]
            )
            assert codes == [REFUSED], version

        times = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        offsets = attacker.call(ListOffsetsRequest(replica_id=2, topics=[times]))
        assert [row.error_code for each in offsets.topics for row in each.partitions] == [REFUSED]

        epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        epochs = attacker.call(
            OffsetForLeaderEpochRequest(
                replica_id=2, topics=[OffsetForLeaderTopic(topic=topic, partitions=[epoch])]
            )
        )
        assert [row.error_code for each in epochs.topics for row in each.partitions] == [REFUSED]


def test_a_client_has_the_limit_of_clients_for_requests_between_brokers(broker: BackgroundBroker) -> None:
    states = [StopReplicaTopicState(topic_name="t", partition_states=[])] * 1001
    with RawSocket(broker.port) as attacker:
        answer = attacker.ask(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=states))
    assert answer is None, "the connection is closed"


def test_a_forged_fetch_acknowledges_nothing_while_the_follower_stands_still(cluster: Cluster) -> None:
    leader, follower = cluster.start(2, PATIENT)
    topic = "acknowledged"
    clients.create_topic(leader.address, topic, replicas=2)
    with RawSocket(leader.port) as client:
        (found,) = [each for each in client.call(MetadataRequest(topics=None)).topics if each.name == topic]
    if found.partitions[0].leader_id != leader.broker_id:
        leader, follower = follower, leader
    clients.produce(leader.address, topic, [b"0"])
    follower.pause()
    try:
        with RawSocket(leader.port) as producer, RawSocket(leader.port) as attacker:
            data = TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=batch(b"1"))]
            )
            producer.send_request(ProduceRequest(acks=-1, timeout_ms=3_000, topic_data=[data]), 8)
            wanted = FetchTopic(
                topic_id=found.topic_id,
                partitions=[FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)],
            )
            state = ReplicaState(replica_id=follower.broker_id, replica_epoch=-1)
            fetch = FetchRequest(
                max_wait_ms=0, min_bytes=0, max_bytes=1000, replica_state=state, topics=[wanted]
            )
            assert attacker.call(fetch).error_code == REFUSED
            frame = producer.next_frame()
        assert frame is not None
        answer = decode_response(ProduceRequest, 8, frame)
        (row,) = answer.responses[0].partition_responses
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    finally:
        follower.resume()


def test_a_client_named_like_a_broker_has_quotas(broker: BackgroundBroker) -> None:
    topic = "named-like-a-broker"
    clients.create_topic(broker.address, topic)
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch(bytes(5000)))]
    )
    produce = ProduceRequest(acks=1, timeout_ms=3_000, topic_data=[data])
    entity = ClientQuotaEntity.of(client_id="broker-1")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": 1000.0}})
    with RawSocket(broker.port, client_id="broker-1") as named_so:
        until(lambda: bool(named_so.call(produce).throttle_time_ms))


def test_brokers_with_the_secret_replicate_through_a_shared_listener_and_others_do_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    secret = secrets.token_hex(32)
    started = []
    for number, content in enumerate([secret, secret, "x" * 64]):
        broker = cluster.add()
        (tmp_path / str(number)).mkdir()
        broker.properties |= shared_with_secret(broker.port, tmp_path / str(number))
        secret_file(tmp_path / str(number), content)
        started.append(broker)
    for broker in started[:2]:
        broker.start()
    for broker in started[:2]:
        broker.wait_ready(2)
    clients.create_topic(cluster.brokers[0].address, "replicated", replicas=2)
    clients.produce(cluster.brokers[0].address, "replicated", [b"1"], acks="all")

    stranger = started[2]
    stranger.start()
    until(lambda: "cluster.secret.file" in "".join(each.log for each in started[:2]))
    assert known_brokers("127.0.0.1", stranger.port) == 0, "the controller cannot tell it of the cluster"
    clients.produce(cluster.brokers[0].address, "replicated", [b"2"], acks="all")
    stranger.kill()


def test_brokers_change_from_a_shared_listener_to_their_own_one_after_the_other(cluster: Cluster) -> None:
    """Three rounds: both listeners count, then the new one is used, then the old one counts no more."""
    both = {"broker.listeners.trusted": "PLAINTEXT,INTERNAL"}
    started = cluster.start(2, {"inter.broker.listener.name": "PLAINTEXT"})
    clients.create_topic(cluster.bootstrap, "kept", replicas=2, config={"min.insync.replicas": "2"})
    written = 0

    def restart_each(changed: dict[str, str], *, removed: str | None = None) -> None:
        nonlocal written
        for broker in started:
            broker.stop()
            broker.properties |= changed
            if removed is not None:
                del broker.properties[removed]
            broker.start()
            cluster.make_whole()
            written += 1
            clients.produce(cluster.bootstrap, "kept", [b"%d" % written], acks="all")

    restart_each(both)
    restart_each({"inter.broker.listener.name": "INTERNAL"})
    restart_each({}, removed="broker.listeners.trusted")
    assert len(clients.consume(cluster.bootstrap, "kept", written)) == written
    with RawSocket(started[0].port) as attacker:
        order = StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[])
        assert attacker.call(order).error_code == REFUSED


def test_the_broker_says_at_start_that_clients_and_brokers_share_a_listener(cluster: Cluster) -> None:
    own, shared = cluster.add(), cluster.add()
    shared.properties |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{shared.port}",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    own.start()
    own.wait_ready()
    shared.start()
    until(lambda: "Clients and brokers share the listener" in shared.log)
    assert shared.log.count("Clients and brokers share the listener") == 1
    assert "cluster.secret.file" in shared.log
    assert "share the listener" not in own.log
