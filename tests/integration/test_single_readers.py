"""Groups with single readers against real brokers, with paused members and failing leaders."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.group_membership import CreateGroupRequest, RegisterConsumerRequest
from holdfast_log.protocol.messages.group_readers import (
    AttachedPartition,
    AttachReaderRequest,
    ReadPartitions,
)
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.member_process import MemberProcess
from tests.integration.raw_socket import RawSocket
from tests.integration.reading_member import HEARTBEAT_MS, single_reader

R = TypeVar("R", bound=Response)
WAIT_S = 240
SESSION_MS = 10_000
"""Session timeout of members of which a test lets one expire."""
BROKERS = {
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "2",
}
RECORDS = 200
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(cluster_of_module: Cluster) -> Cluster:
    """Two brokers, so that most claims go from the coordinator to another broker."""
    cluster_of_module.start(2, BROKERS)
    return cluster_of_module


def new_topic(cluster: Cluster, name: str, partitions: int = PARTITIONS, replicas: int = 1) -> str:
    """Create a topic with `RECORDS` records in each partition. Returns its name."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic(name, partitions, replicas)])
    fill(cluster, name, partitions)
    return name


def fill(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> None:
    for partition in range(partitions):
        clients.produce(cluster.bootstrap, topic, [b"%d" % n for n in range(RECORDS)], partition)


def consumer_on(cluster: Cluster, group: str, topic: str, session_ms: int = SESSION_MS) -> Consumer:
    consumer = Consumer(single_reader(cluster.bootstrap, group, session_ms))
    consumer.add_topic(topic)
    return consumer


def until(condition: Callable[[], bool], turn: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        turn()


@pytest.fixture
def member(cluster: Cluster) -> Iterator[MemberProcess]:
    topic = new_topic(cluster, "watched")
    member = MemberProcess(cluster.bootstrap, "watchers", topic, SESSION_MS)
    yield member
    member.end()


def test_a_member_paused_beyond_its_session_delivers_no_record_of_lost_partitions(
    cluster: Cluster, member: MemberProcess
) -> None:
    other = consumer_on(cluster, "watchers", "watched")
    read = [0] * PARTITIONS

    def other_polls() -> None:
        for record in other.poll(50):
            read[record.partition] += 1

    def both_poll() -> None:
        member.poll()
        other_polls()

    delivered: list[tuple[int, int]] = []

    def it_reads_ahead() -> bool:
        delivered.extend(map(tuple, member.told["records"]))
        return len(member.told["owned"]) == PARTITIONS // 2 and member.told["ahead"] > 0 and bool(delivered)

    until(it_reads_ahead, both_poll)
    generation, share = member.told["generation"], sorted(member.told["owned"])

    member.signal(signal.SIGSTOP)
    before = read[share[0]]
    until(lambda: read[share[0]] > before, other_polls)
    member.signal(signal.SIGCONT)

    delivered_late = 0
    polls = 0
    while member.poll()["generation"] <= generation:
        polls += 1
        delivered_late += len(member.told["records"])
        other_polls()
        assert polls < 1000
    assert (delivered_late, sorted(member.told["lost"])) == (0, share)
    other.close()


class ZombieMember:
    """A member on plain sockets that sends no heartbeats."""

    def __init__(self, cluster: Cluster, group: str, topic: str, session_ms: int) -> None:
        self.group, self.topic = group, topic
        self._cluster = cluster
        first = RawSocket(cluster.brokers[0].port)
        self.ask(first, CreateGroupRequest(
            consumer_group=group, session_timeout=session_ms, topics=[topic], single_reader=True
        ))  # fmt: skip
        found = self.ask(first, FindCoordinatorRequest(key=group, coordinator_keys=[group]))
        self.coordinator = RawSocket(found.coordinators[0].port)
        answer = self.ask(
            self.coordinator, RegisterConsumerRequest(consumer_group=group, consumer_id="zombie")
        )
        assert (answer.error_code, answer.single_reader) == (0, True)
        self.generation = answer.controller_generation
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            (info,) = admin.describe_topics([topic])
        self.topic_id = info.id
        leader = next(each for each in cluster.brokers if each.broker_id == info.partitions[0].leader)
        self.leader = RawSocket(leader.port)

    def ask(self, socket: RawSocket, request: Request[R]) -> R:
        answer = socket.ask(request)
        assert answer is not None
        return answer

    def attach(self) -> AttachedPartition:
        request = AttachReaderRequest(
            group=self.group,
            member_id="zombie",
            generation=self.generation,
            topics=[ReadPartitions(topic=self.topic, partitions=[0])],
        )
        (row,) = self.ask(self.leader, request).partitions
        return row

    def fetch(self) -> PartitionData:
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=self.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        ((row,),) = [topic.partitions for topic in self.ask(self.leader, request).responses]
        return row

    def commit(self, offset: int) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id="zombie",
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        return self.ask(self.coordinator, request).topics[0].partitions[0].error_code


def test_the_leader_refuses_a_member_that_ignores_its_removal(cluster: Cluster) -> None:
    topic = new_topic(cluster, "haunted", 1)
    # Nobody renews this session: it has to last until the zombie has read and committed.
    session_ms = 20_000
    zombie = ZombieMember(cluster, "haunted-group", topic, session_ms)
    until(lambda: zombie.attach().error_code == ErrorCode.NONE, lambda: time.sleep(0.05))
    assert (zombie.fetch().error_code, zombie.commit(5)) == (0, 0)

    with consumer_on(cluster, "haunted-group", topic, session_ms) as heir:
        seen: list[int] = []
        until(lambda: len(seen) == RECORDS - 5, lambda: seen.extend(r.offset for r in heir.poll(50)))
        fetched = zombie.fetch()
        assert (fetched.error_code, fetched.records) == (ErrorCode.OWNERSHIP_FENCED, b"")
        assert fetched.error_message is not None and "stop reading, send the group's" in fetched.error_message
        assert zombie.attach().error_code == ErrorCode.OWNERSHIP_FENCED
        assert zombie.commit(3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert seen == list(range(5, RECORDS))


class Committing(RebalanceListener):
    """Commits what the member gives up. A heartbeat that gets no answer has it register anew, and it goes on
    at the group's offsets."""

    consumer: Consumer

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.consumer.commit()


def are_in_sync(admin: Admin, *topics: str) -> bool:
    """Whether both brokers are in sync for all partitions of the topics."""
    described = admin.describe_topics(topics)
    return all(len(partition.isr) == 2 for topic in described for partition in topic.partitions)


@pytest.mark.parametrize("has_unanswered_heartbeat", [False, True])
def test_members_continue_at_the_next_leader(cluster: Cluster, has_unanswered_heartbeat: bool) -> None:
    topic = new_topic(cluster, f"moving-{has_unanswered_heartbeat}", 2, 2)
    group, listener = f"movers-{has_unanswered_heartbeat}", Committing()
    seen: list[tuple[int, int]] = []
    with Consumer(single_reader(cluster.bootstrap, group, 60_000), rebalance_listener=listener) as consumer:
        listener.consumer = consumer
        consumer.add_topic(topic)

        def turn() -> None:
            seen.extend((record.partition, record.offset) for record in consumer.poll(100))

        until(lambda: len(seen) == 2 * RECORDS, turn)
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            # A broker that was lost before may still be catching up, and could not take over.
            until(lambda: are_in_sync(admin, topic, "__consumer_offsets"), turn)
            coordinator = admin.describe_groups([group])[group].coordinator.id
        lost = cluster.brokers[1]
        if has_unanswered_heartbeat:
            lost = cluster.brokers[coordinator - 1]
            lost.pause()
            asked_s = time.monotonic() + 4 * HEARTBEAT_MS / 1000
            until(lambda: time.monotonic() > asked_s, turn)
        cluster.lose(lost)
        fill(cluster, topic, 2)
        until(lambda: len(seen) >= 4 * RECORDS, turn)
    assert sorted(seen) == [(partition, n) for partition in range(2) for n in range(2 * RECORDS)]
    cluster.make_whole()
