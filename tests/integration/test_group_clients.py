"""Our consumer in groups of real brokers, with all group protocols, and consumer-groups.sh."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.tools.console_consumer import console_consumer
from holdfast_log.clients.tools.consumer_groups import consumer_groups
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster

WAIT_S = 240
SESSION_MS = 60_000
"""Session timeout that does not expire while one thread polls all members in turn."""
SHORT_SESSION_MS = 6_000
"""Session timeout of a test in which a member crashes. A live member may expire too, and join again."""
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


@pytest.fixture
def session_ms() -> int:
    return SESSION_MS


@pytest.fixture
def bootstrap(cluster: Cluster, session_ms: int) -> str:
    cluster.start(1, {**BROKER, "group.consumer.session.timeout.ms": str(session_ms)})
    return cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("flights", 4)])
        yield admin


class Crew:
    """Consumers of one group, polled in turn by one thread."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.session_ms = SESSION_MS
        self.seen: dict[str, list[tuple[int, int]]] = {}
        self.members: dict[str, Consumer] = {}
        self._bootstrap = bootstrap
        self._protocol = protocol

    def join(self, name: str, *topics: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "group.id": "crew",
                "group.protocol": self._protocol,
                "partition.assignment.strategy": "range",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": self.session_ms,
                "heartbeat.interval.ms": 200,
                "auto.commit.interval.ms": 200,
            }
        )
        for topic in topics or ("flights",):
            consumer.add_topic(topic)
        self.members[name] = consumer
        self.seen[name] = []
        return consumer

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def crash(self, name: str) -> None:
        """Close the member's connections without leaving the group."""
        self.members.pop(name)._connection.close()

    def turn(self) -> None:
        for name, consumer in list(self.members.items()):
            self.seen[name] += [(record.partition, record.offset) for record in consumer.poll(20)]

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            self.turn()
            shares = {name: consumer.assignment() for name, consumer in self.members.items()}
            assert time.monotonic() < deadline, shares

    def until_shared(self, count: int = 4) -> None:
        """Poll until `count` partitions are owned, each by one member, and every member owns at least one."""

        def is_shared() -> bool:
            owned = [consumer.assignment() for consumer in self.members.values()]
            every = [partition for share in owned for partition in share]
            generations = {consumer.group_identity().generation for consumer in self.members.values()}
            return all(owned) and len(every) == len(set(every)) == count and len(generations) == 1

        self.until(is_shared)

    def records(self) -> list[tuple[int, int]]:
        return [record for records in self.seen.values() for record in records]

    def until_seen(self, count: int) -> None:
        self.until(lambda: len(self.records()) >= count)

    def close(self) -> None:
        for consumer in self.members.values():
            consumer.close()


@pytest.fixture(params=["classic", "consumer", "managed"])
def crew(request: pytest.FixtureRequest, bootstrap: str, admin: Admin, session_ms: int) -> Iterator[Crew]:
    crew = Crew(bootstrap, request.param)
    crew.session_ms = session_ms
    try:
        yield crew
    finally:
        crew.close()


@pytest.fixture
def managed(bootstrap: str, admin: Admin) -> Iterator[Crew]:
    crew = Crew(bootstrap, "managed")
    try:
        yield crew
    finally:
        crew.close()


def produce(bootstrap: str, count: int, topic: str = "flights", partitions: int = 4) -> None:
    """Write `count` records to each partition."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count * partitions):
            producer.send(Message(topic, value=b"%d" % number, partition=number % partitions))


@pytest.mark.parametrize("session_ms", [SHORT_SESSION_MS])
def test_every_record_is_read_while_members_join_leave_and_crash(crew: Crew, bootstrap: str) -> None:
    produce(bootstrap, 25)
    crew.join("one")
    crew.until_shared()
    crew.join("two")
    crew.until_shared()
    crew.until_seen(100)
    crew.leave("one")
    crew.until_shared()
    crew.join("three")
    crew.until_shared()
    crew.crash("two")
    crew.until_shared()
    produce(bootstrap, 25)
    # Records that the crashed member had not committed are read again.
    crew.until(lambda: len(set(crew.records())) == 200)

    assert sorted(set(crew.records())) == [(number, offset) for number in range(4) for offset in range(50)]


def test_the_next_member_starts_at_the_committed_offset(crew: Crew, bootstrap: str, admin: Admin) -> None:
    produce(bootstrap, 10)
    crew.join("one")
    crew.until_seen(40)
    crew.leave("one")
    produce(bootstrap, 5)
    crew.join("two")
    crew.until_seen(60)
    crew.turn()

    assert sorted(crew.seen["two"]) == [(number, offset) for number in range(4) for offset in range(10, 15)]


def test_new_partitions_and_a_new_topic_are_read_from_offset_0(
    managed: Crew, bootstrap: str, admin: Admin
) -> None:
    managed.join("one", "flights", "carriers")
    managed.join("two", "flights", "carriers")
    managed.until_shared()
    admin.create_partitions({"flights": 6})
    produce(bootstrap, 5, partitions=6)
    managed.until_shared(6)
    admin.create_topics([NewTopic("carriers", 2)])
    produce(bootstrap, 5, "carriers", 2)
    managed.until_shared(8)
    managed.until_seen(40)

    assert len(managed.records()) == 40


def test_a_group_is_rewound_while_its_members_read(managed: Crew, bootstrap: str, admin: Admin) -> None:
    produce(bootstrap, 10)
    managed.join("one")
    managed.join("two")
    managed.until_shared()
    managed.until_seen(40)
    theirs = managed.members["two"].assignment()[0]
    asker = managed.members["one"]
    turn = asker._loop.turn

    def turn_both(wait_ms: int) -> None:
        turn(min(wait_ms, 20))
        managed.seen["two"] += [(r.partition, r.offset) for r in managed.members["two"].poll(20)]

    asker._loop.turn = turn_both  # type: ignore[method-assign]
    assert asker.rewind({theirs: 4}) == {theirs: 4}
    asker._loop.turn = turn  # type: ignore[method-assign]
    managed.until_seen(46)

    again = [record for record in managed.records() if managed.records().count(record) == 2]
    assert sorted(set(again)) == [(theirs.partition, offset) for offset in range(4, 10)]


@pytest.mark.parametrize("protocol", ["consumer", "managed"])
def test_members_continue_at_the_next_coordinator_after_a_kill(cluster: Cluster, protocol: str) -> None:
    brokers = cluster.start(3, BROKER | {"offsets.topic.replication.factor": "3"})
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        admin.create_topics([NewTopic("flights", 4, 3)])
        produce(cluster.bootstrap, 10)
        crew = Crew(cluster.bootstrap, protocol)
        try:
            crew.join("one")
            crew.join("two")
            crew.until_shared()
            crew.until_seen(40)
            coordinator = admin.describe_groups(["crew"])["crew"].coordinator.id
            cluster.lose(brokers[coordinator - 1])
            rest = ",".join(broker.address for broker in brokers if broker.broker_id != coordinator)
            produce(rest, 10)
            crew.until(lambda: len(set(crew.records())) == 80)
        finally:
            crew.close()

    assert sorted(set(crew.records())) == [(number, offset) for number in range(4) for offset in range(20)]


def test_the_console_consumer_starts_at_its_groups_committed_offset(bootstrap: str, admin: Admin) -> None:
    produce(bootstrap, 3)
    command = ["--bootstrap-server", bootstrap, "--topic", "flights", "--group", "shown", "--from-beginning"]
    first = CliRunner().invoke(console_consumer, [*command, "--max-messages", "12"], catch_exceptions=False)
    produce(bootstrap, 1)
    second = CliRunner().invoke(console_consumer, [*command, "--max-messages", "4"], catch_exceptions=False)

    assert (len(first.stdout.split()), sorted(second.stdout.split())) == (12, ["0", "1", "2", "3"])
    assert {stored.offset for stored in admin.list_group_offsets("shown").values()} == {4}


class TestConsumerGroupsTool:
    @pytest.fixture
    def tool(self, bootstrap: str, admin: Admin) -> Callable[..., Result]:
        def run(*arguments: str) -> Result:
            return CliRunner().invoke(
                consumer_groups,
                ["--bootstrap-server", bootstrap, *arguments],
                catch_exceptions=False,
            )

        return run

    def cells(self, result: Result) -> list[list[str]]:
        """The rows of the table on standard output, the headings first."""
        assert result.exit_code == 0, result.output
        return [line.split() for line in result.stdout.strip().splitlines()]

    def test_the_tool_lists_describes_resets_and_deletes_a_group(
        self, tool: Callable[..., Result], bootstrap: str, admin: Admin, tmp_path: Path
    ) -> None:
        produce(bootstrap, 10)
        crew = Crew(bootstrap, "classic")
        crew.join("one")
        crew.until_seen(40)
        crew.members["one"].commit(offsets={TopicPartition("flights", 0): 4})

        assert tool("--list").stdout == "crew\n"
        assert self.cells(tool("--list", "--state")) == [["GROUP", "STATE"], ["crew", "Stable"]]
        assert self.cells(tool("--list", "--state", "Empty")) == [["GROUP", "STATE"]]

        titles, first, *rest = self.cells(tool("--describe", "--group", "crew"))
        assert titles == [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
            "CLIENT-ID",
        ]  # fmt: skip
        assert first[:6] == ["crew", "flights", "0", "4", "10", "6"]
        assert first[8] == "one" and len(rest) == 3
        _, member = self.cells(tool("--describe", "--group", "crew", "--members", "--verbose"))
        assert member[-3:] == ["one", "4", "flights(0,1,2,3)"]
        _, state = self.cells(tool("--describe", "--all-groups", "--state"))
        assert state == ["crew", bootstrap, "(1)", "range", "Stable", "1"]
        as_json = json.loads(tool("--describe", "--group", "crew", "--json").stdout)
        assert as_json[0]["lag"] == 6 and as_json[0]["clientId"] == "one"

        plan = ("--reset-offsets", "--group", "crew", "--topic", "flights")
        refused = CliRunner().invoke(
            consumer_groups, ["--bootstrap-server", bootstrap, *plan, "--to-earliest", "--execute"]
        )
        assert "crew has members" in str(refused.exception)
        assert "could not be deleted" in tool("--delete", "--group", "crew").stderr
        crew.close()

        dry = tool(*plan, "--to-earliest")
        assert self.cells(dry) == [
            ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
            *(["crew", "flights", str(number), "0"] for number in range(4)),
        ]
        assert "--execute is missing" in dry.stderr
        assert admin.list_group_offsets("crew")[TopicPartition("flights", 1)].offset == 10

        some = ("--reset-offsets", "--group", "crew", "--topic", "flights:0,1", "--execute")
        for way, wanted in (
            (("--to-offset", "3"), 3),
            (("--shift-by", "-2"), 1),
            (("--shift-by", "4"), 5),
            (("--to-current",), 5),
            (("--by-duration", "P1D"), 0),
            (("--to-latest",), 10),
            (("--to-datetime", "2001-01-01T00:00:00.000"), 0),
            (("--to-offset", "99"), 10),
        ):
            assert [row[3] for row in self.cells(tool(*some, *way))[1:]] == [str(wanted)] * 2, way
        assert "higher than the latest" in tool(*some, "--to-offset", "99").stderr

        exported = tool("--reset-offsets", "--group", "crew", "--all-topics", "--to-offset", "2", "--export")
        assert exported.stdout == "flights,0,2\nflights,1,2\nflights,2,2\nflights,3,2\n"
        plan_file = tmp_path / "plan.csv"
        plan_file.write_text(exported.stdout)
        tool("--reset-offsets", "--group", "crew", "--from-file", str(plan_file), "--execute")
        assert {stored.offset for stored in admin.list_group_offsets("crew").values()} == {2}

        deleted = tool("--delete-offsets", "--group", "crew", "--topic", "flights:3")
        assert self.cells(deleted) == [["TOPIC", "PARTITION", "STATUS"], ["flights", "3", "Successful"]]
        assert len(admin.list_group_offsets("crew")) == 3
        assert "no active members" in tool("--describe", "--group", "crew").stderr
        assert tool("--delete", "--group", "crew").stdout == (
            "Deletion of requested consumer groups ('crew') was successful.\n"
        )
        gone = tool("--describe", "--group", "crew")
        assert (gone.exit_code, gone.stderr) == (1, "Error: Consumer group 'crew' does not exist.\n")
