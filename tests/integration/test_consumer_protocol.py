"""Our consumer in groups of KIP-848 on real brokers: members in processes that are killed and paused, static
members, regular expressions, a broker without the protocol. What protocols share is in test_group_clients."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import CommitFailedError, UnsupportedRequestError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.member_process import MemberProcess
from tests.integration.reading_member import of_kip_848

WAIT_S = 240
SESSION_MS = 12_000
"""So short because members are killed and paused; so long because a static member has to be back in time."""
BROKER = {
    "offsets.topic.num.partitions": "4",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
PARTITIONS = 4
RECORDS = 200


@pytest.fixture(scope="module")
def bootstrap(cluster_of_module: Cluster) -> str:
    cluster_of_module.start(1, BROKER)
    return cluster_of_module.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60].strip("[]-")
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)])
    for number in range(PARTITIONS):
        clients.produce(bootstrap, name, [b"%d" % n for n in range(RECORDS)], number)
    return str(name)


@pytest.fixture
def process(bootstrap: str, topic: str) -> Iterator[MemberProcess]:
    member = MemberProcess(bootstrap, topic, topic, SESSION_MS, "consumer")
    yield member
    member.end()


@pytest.fixture
def other(bootstrap: str, topic: str) -> Iterator[Consumer]:
    with Consumer(of_kip_848(bootstrap, topic, SESSION_MS)) as consumer:
        consumer.add_topic(topic)
        yield consumer


class Readings:
    """What a process and a consumer of this process have read of the same group's topic."""

    def __init__(self, process: MemberProcess, other: Consumer) -> None:
        self.process = process
        self.other = other
        self.seen: set[tuple[int, int]] = set()

    def process_polls(self) -> list[tuple[int, int]]:
        found = [(partition, offset) for partition, offset in self.process.poll()["records"]]
        self.seen.update(found)
        return found

    def other_polls(self) -> None:
        self.seen.update((record.partition, record.offset) for record in self.other.poll(50))

    def both_poll(self) -> None:
        self.process_polls()
        self.other_polls()

    def counts(self) -> list[int]:
        return [len(self.process.told["owned"]), len(self.other.assignment())]


@pytest.fixture
def readings(process: MemberProcess, other: Consumer) -> Readings:
    readings = Readings(process, other)
    until(lambda: readings.counts() == [2, 2], readings.both_poll)
    return readings


def until(condition: Callable[[], bool], turn: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        turn()


def test_the_partitions_of_a_killed_member_are_read_by_the_others(readings: Readings) -> None:
    readings.process.signal(signal.SIGKILL)
    until(lambda: len(readings.other.assignment()) == PARTITIONS, readings.other_polls)
    everything = {(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)}
    # Nothing was committed: the other one reads from the beginning what the dead one had.
    until(lambda: readings.seen == everything, readings.other_polls)


def test_a_member_that_was_paused_for_its_session_returns_nothing_of_what_it_has_lost(
    readings: Readings,
) -> None:
    had = readings.process.told["owned"]
    readings.process.signal(signal.SIGSTOP)
    until(lambda: len(readings.other.assignment()) == PARTITIONS, readings.other_polls)
    stopped = time.monotonic()
    until(lambda: time.monotonic() > stopped + SESSION_MS / 1000, readings.other_polls)
    readings.process.signal(signal.SIGCONT)
    while not readings.process.told["lost"]:
        assert readings.process_polls() == []
    assert readings.process.told["lost"] == had
    until(lambda: readings.counts() == [2, 2], readings.both_poll)


def test_a_removed_member_cannot_commit(bootstrap: str, topic: str, other: Consumer) -> None:
    until(lambda: len(other.assignment()) == PARTITIONS, lambda: other.poll(50))
    (member_id,) = [other.group_identity().member_id]
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (described,) = admin.describe_groups([topic])[topic].members
        assert described.member_id == member_id
    place = TopicPartition(topic, 0)
    other.commit({place: 5})
    with Consumer(of_kip_848(bootstrap, topic, SESSION_MS)) as stranger, pytest.raises(CommitFailedError):
        stranger.commit({place: 7})
    found = other.committed([place])[place]
    assert found is not None and found.offset == 5


def test_a_regular_expression_is_matched_by_the_broker(bootstrap: str, topic: str) -> None:
    pytest.importorskip("re2", reason="google-re2 is not installed: brokers match no regular expressions")
    with Consumer(of_kip_848(bootstrap, f"of {topic}", SESSION_MS)) as consumer:
        consumer.add_pattern(f"{topic}.*")
        until(lambda: len(consumer.assignment()) == PARTITIONS, lambda: consumer.poll(50))
        later = f"{topic}-later"
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(later, 1)])
        clients.produce(bootstrap, later, [b"new"])
        values: list[object] = []
        until(
            lambda: b"new" in values,
            lambda: values.extend(record.value for record in consumer.poll(50) if record.topic == later),
        )


def test_a_static_member_gets_its_partitions_back(bootstrap: str, topic: str, other: Consumer) -> None:
    settings = {**of_kip_848(bootstrap, topic, SESSION_MS), "group.instance.id": "one"}

    def share(member: Consumer) -> set[int]:
        return {each.partition for each in member.assignment()}

    def joined() -> tuple[Consumer, set[int]]:
        member = Consumer(settings)
        member.add_topic(topic)

        def both_poll() -> None:
            member.poll(50)
            other.poll(50)

        until(lambda: len(share(member)) == len(share(other)) == 2, both_poll)
        return member, share(member)

    first, had = joined()
    stays = share(other)
    first.close()
    again, has = joined()
    again.close()
    assert (has, share(other)) == (had, stays)


def test_a_broker_without_the_protocol_is_an_error_that_says_what_to_do(cluster: Cluster) -> None:
    cluster.start(1, {"group.coordinator.rebalance.protocols": "classic"})
    with Consumer(of_kip_848(cluster.bootstrap, "g", SESSION_MS)) as consumer:
        consumer.add_topic("t")
        with pytest.raises(UnsupportedRequestError, match=r"set group\.protocol=classic"):
            until(lambda: False, lambda: consumer.poll(50))
