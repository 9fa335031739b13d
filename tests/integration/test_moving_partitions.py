"""Scripts that move leadership and replicas of partitions with records, on three real brokers.

A broker's metadata may lag behind the controller, so the tests wait for the expected metadata.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient as StockAdmin
from kafka import TopicPartition as StockPartition

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.tools.configs import configs
from holdfast_log.clients.tools.leader_election import leader_election
from holdfast_log.clients.tools.partitions_file import read_reassignment
from holdfast_log.clients.tools.reassign_partitions import reassign_partitions
from holdfast_log.clients.tools.topics import topics
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce
from tests.integration.test_replication import PROPERTIES, states_in, values
from tests.integration.waiting import DEADLINE_S, until


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """Three running brokers that tests share. A paused broker stays registered for 5 minutes."""
    if not shared_cluster.brokers:
        properties = {"zookeeper.session.timeout.ms": "300000", "controlled.shutdown.max.retries": "0"}
        shared_cluster.start(3, {**PROPERTIES, **properties})
    shared_cluster.make_whole()
    return shared_cluster


def program(cluster: Cluster, command: click.Command, *arguments: str, status: int = 0) -> str:
    """Run a program that must exit with `status`. Returns its output."""
    result = CliRunner().invoke(
        command, ["--bootstrap-server", cluster.bootstrap, *arguments], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == status, result.output
    return result.output


def until_printed(cluster: Cluster, wanted: str, command: click.Command, *arguments: str) -> str:
    """Run a program repeatedly, for up to `DEADLINE_S`, until it prints `wanted`. Returns its output."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        result = CliRunner().invoke(
            command, ["--bootstrap-server", cluster.bootstrap, *arguments], standalone_mode=False
        )
        if wanted in result.output:
            return result.output
        assert time.monotonic() < deadline, result.output
        time.sleep(0.1)


def replicas_of(cluster: Cluster, topic: str) -> list[tuple[int, tuple[int, ...]]]:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        (found,) = admin.describe_topics([topic])
    return [(row.leader, row.replicas) for row in found.partitions]


def live_brokers(address: str) -> list[int]:
    """The brokers in the metadata of the broker at an address."""
    with Admin({"bootstrap.servers": address}) as admin:
        return [node.id for node in admin.describe_cluster().nodes]


def test_partitions_move_with_their_records_and_preferred_leaders_are_elected(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, topic, 3, 2)
    for partition in range(3):
        produce(cluster.bootstrap, topic, values(500), partition, acks="all")
    before = replicas_of(cluster, topic)

    # Generate a plan that uses two brokers.
    named = tmp_path / "topics.json"
    named.write_text(json.dumps({"topics": [{"topic": topic}]}))
    generated = program(
        cluster,
        reassign_partitions,
        "--generate",
        "--topics-to-move-json-file",
        str(named),
        "--broker-list",
        "1,2",
    )
    plan = tmp_path / "plan.json"
    plan.write_text(generated.splitlines()[-1])
    targets = [replicas for _, replicas in sorted(read_reassignment(str(plan)).replicas.items())]
    assert {broker for replicas in targets for broker in replicas} == {1, 2}

    # Carry out the plan. No record is lost.
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in program(cluster, reassign_partitions, "--execute", *file)
    until_printed(cluster, "No partition reassignments found", reassign_partitions, "--list")
    until(lambda: [replicas for _, replicas in replicas_of(cluster, topic)] == targets)
    until(lambda: is_completed(cluster, 3, *file))
    for partition in range(3):
        assert consume(cluster.bootstrap, topic, 500, partition) == values(500)
        produce(cluster.bootstrap, topic, values(10, 500), partition, acks="all")
    # The broker that the replicas left deletes them.
    until(lambda: topic not in topics_on(cluster, 3))
    assert before != replicas_of(cluster, topic)

    # After a broker's restart, an election by hand restores the preferred leaders.
    leaving = cluster.brokers[0]
    leaving.stop()
    leaving.start()
    leaving.wait_ready(3)
    preferred = [replicas[0] for replicas in targets]
    with states_in(cluster) as states:
        for partition, replicas in enumerate(targets):
            states.wait_for_isr(topic, partition, set(replicas))
    elected = program(cluster, leader_election, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    until(lambda: [leader for leader, _ in replicas_of(cluster, topic)] == preferred)


def is_completed(cluster: Cluster, count: int, *file: str) -> bool:
    result = CliRunner().invoke(
        reassign_partitions,
        ["--bootstrap-server", cluster.bootstrap, "--verify", *file],
        standalone_mode=False,
    )
    return result.output.count("is completed") == count and result.return_value == 0


def topics_on(cluster: Cluster, broker_id: int) -> set[str]:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        described = admin.describe_log_dirs([broker_id])
    return {row.partition.topic for each in described for row in each.replicas}


def test_a_move_is_throttled_until_the_rate_is_raised_and_then_clears_the_throttle(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, topic, config={"min.insync.replicas": "1"})
    produce(cluster.bootstrap, topic, [bytes(500_000)] * 10)
    ((leader, _),) = replicas_of(cluster, topic)
    other = leader % 3 + 1
    move = tmp_path / "move.json"
    move.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [other]}]}))
    file = ("--reassignment-json-file", str(move))
    # At 1000 B/s the first fetches use up the rate for hours, so the move stops.
    started = program(cluster, reassign_partitions, "--execute", *file, "--throttle", "1000")
    assert "throttle limit was set to 1000 B/s" in started
    described = ("--topic", topic, "--describe")
    topic_lists = until_printed(cluster, "follower.replication.throttled", configs, *described)
    assert f"leader.replication.throttled.replicas=0:{leader} " in topic_lists
    assert f"follower.replication.throttled.replicas=0:{other} " in topic_lists
    assert "is still in progress" in program(cluster, reassign_partitions, "--verify", *file, status=1)

    program(cluster, reassign_partitions, "--execute", *file, "--additional", "--throttle", "1000000000")
    until_printed(cluster, "No partition reassignments found", reassign_partitions, "--list")
    until(lambda: replicas_of(cluster, topic) == [(other, (other,))])
    verified = until_printed(
        cluster, f"Cleared the throttle of topic {topic}.", reassign_partitions, "--verify", *file
    )
    assert verified.splitlines()[-3:] == [
        *(f"Cleared the throttle of broker {number}." for number in sorted((leader, other))),
        f"Cleared the throttle of topic {topic}.",
    ]
    for whose in (("--topic", topic), ("--entity-type", "brokers")):
        until(lambda whose=whose: ".throttled." not in program(cluster, configs, *whose, "--describe"))
    assert len(consume(cluster.bootstrap, topic, 10)) == 10


def test_a_move_to_a_paused_broker_can_be_cancelled(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        controller = admin.describe_cluster().controller
    assert controller is not None
    create_topic(cluster.bootstrap, topic)
    ((leader, _),) = replicas_of(cluster, topic)
    paused = next(broker for broker in cluster.brokers if broker.broker_id not in (leader, controller.id))
    move = tmp_path / "move.json"
    move.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [paused.broker_id]}]})
    )
    file = ("--reassignment-json-file", str(move))
    awake = Cluster(tmp_path / "none", cluster.zookeeper_connect)
    awake.brokers = [broker for broker in cluster.brokers if broker is not paused]
    paused.pause()
    try:
        program(awake, reassign_partitions, "--execute", *file)
        listed = program(awake, reassign_partitions, "--list")
        assert f"adding: {paused.broker_id}. removing: {leader}." in listed
        assert "is still in progress" in program(awake, reassign_partitions, "--verify", *file, status=1)
        assert "are being moved" in program(awake, reassign_partitions, "--execute", *file, status=1)
        assert "Successfully cancelled" in program(awake, reassign_partitions, "--cancel", *file)
        assert "None of the specified" in program(awake, reassign_partitions, "--cancel", *file)
        assert "rather than" in program(awake, reassign_partitions, "--verify", *file, status=1)
    finally:
        paused.resume()
    until(lambda: replicas_of(cluster, topic) == [(leader, (leader,))])


def test_the_configs_tool_describes_sets_and_deletes_settings(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    added = "retention.ms=1000,cleanup.policy=[compact,delete]"
    assert "Completed updating" in program(
        cluster, configs, "--alter", "--topic", topic, "--add-config", added
    )
    shown = until_printed(cluster, "retention.ms=1000", configs, "--describe", "--topic", topic)
    assert "cleanup.policy=compact,delete" in shown
    assert "segment.bytes" not in shown
    assert "segment.bytes" in program(cluster, configs, "--describe", "--topic", topic, "--all")
    program(cluster, configs, "--alter", "--topic", topic, "--delete-config", "retention.ms")
    until(lambda: "retention.ms" not in program(cluster, configs, "--describe", "--entity-type", "topics"))
    assert "broker.id=1" in program(cluster, configs, "--describe", "--broker", "1", "--all")


def test_the_topics_tool_selects_partitions_by_their_in_sync_replicas(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, "sound", 1, 3, {"min.insync.replicas": "1"})
    create_topic(cluster.bootstrap, "strict", 1, 3, {"min.insync.replicas": "3"})
    create_topic(cluster.bootstrap, "tight", 1, 3, {"min.insync.replicas": "2"})

    def shown(option: str) -> list[str]:
        lines = program(cluster, topics, "--describe", option).splitlines()
        found = [line.split("\t")[1].removeprefix("Topic: ") for line in lines]
        return [topic for topic in found if topic in ("sound", "strict", "tight")]

    until(lambda: shown("--at-min-isr-partitions") == ["strict"])
    until(lambda: shown("--under-replicated-partitions") == [])
    cluster.brokers[2].stop()
    until(lambda: shown("--under-replicated-partitions") == ["sound", "strict", "tight"])
    until(lambda: shown("--under-min-isr-partitions") == ["strict"])
    until(lambda: shown("--at-min-isr-partitions") == ["tight"])
    until(lambda: shown("--unavailable-partitions") == [])


def test_a_stock_client_reassigns_partitions_and_elects_leaders(cluster: Cluster, topic: str) -> None:
    create_topic(cluster.bootstrap, topic)
    ((leader, _),) = replicas_of(cluster, topic)
    other = leader % 3 + 1
    stock = StockAdmin(bootstrap_servers=cluster.bootstrap)
    try:
        partition = StockPartition(topic, 0)
        assert stock.alter_partition_reassignments({partition: [other, leader]}) == {partition: None}
        until(lambda: not stock.list_partition_reassignments())
        stock.elect_leaders(0, {topic: [0]}, raise_errors=False)
        until(lambda: replicas_of(cluster, topic) == [(other, (other, leader))])
        refused = stock.alter_partition_reassignments({partition: [99]})
        assert refused[partition] is not None
    finally:
        stock.close()
