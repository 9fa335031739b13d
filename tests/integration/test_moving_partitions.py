"""Scripts that move leadership and replicas, on three real brokers, with records in what moves."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from click.testing import CliRunner
from kafka import KafkaAdminClient as StockAdmin
from kafka import TopicPartition as StockPartition

from clients.admin import Admin
from clients.message import TopicPartition
from clients.tools.configs import configs
from clients.tools.leader_election import leader_election
from clients.tools.partitions_file import read_assignments
from clients.tools.reassign_partitions import reassign_partitions
from clients.tools.topics import topics
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce
from tests.integration.test_replication import PROPERTIES, values

DEADLINE_S = 60.0


def program(cluster: Cluster, command: click.Command, *arguments: str, status: int = 0) -> str:
    """What a program prints; it must end with this status."""
    result = CliRunner().invoke(
        command, ["--bootstrap-server", cluster.bootstrap, *arguments], standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == status, result.output
    return result.output


def until_printed(cluster: Cluster, wanted: str, command: click.Command, *arguments: str) -> str:
    """Run a program until it prints what is wanted."""
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


def test_partitions_move_with_their_records_and_leadership_is_given_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", 3, 2)
    for partition in range(3):
        produce(cluster.bootstrap, "events", values(500), partition, acks="all")
    before = dict(enumerate(replicas_of(cluster, "events")))

    # A plan for two brokers.
    named = tmp_path / "topics.json"
    named.write_text(json.dumps({"topics": [{"topic": "events"}]}))
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
    targets = read_assignments(str(plan))
    assert {broker for replicas in targets.values() for broker in replicas} == {1, 2}

    # It is carried out, and nothing is lost.
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in program(cluster, reassign_partitions, "--execute", *file)
    until_printed(cluster, "No partition reassignments found", reassign_partitions, "--list")
    assert program(cluster, reassign_partitions, "--verify", *file).count("is completed") == 3
    for partition, (leader, replicas) in enumerate(replicas_of(cluster, "events")):
        assert replicas == targets[TopicPartition("events", partition)]
        assert leader in replicas
        assert consume(cluster.bootstrap, "events", 500, partition) == values(500)
        produce(cluster.bootstrap, "events", values(10, 500), partition, acks="all")
    # What moved away has been removed there.
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        there = [row.partition.topic for each in admin.describe_log_dirs([3]) for row in each.replicas]
    assert "events" not in there
    assert before != dict(enumerate(replicas_of(cluster, "events")))

    # A broker that has been away gets its leadership back by hand.
    leaving = cluster.brokers[0]
    leaving.stop()
    leaving.start()
    leaving.wait_ready(3)
    until_printed(cluster, "Partition: 2", topics, "--describe", "--topic", "events")
    deadline = time.monotonic() + DEADLINE_S
    while program(cluster, topics, "--describe", "--topic", "events", "--under-replicated-partitions"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    elected = program(cluster, leader_election, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    assert [leader for leader, _ in replicas_of(cluster, "events")] == [
        targets[TopicPartition("events", partition)][0] for partition in range(3)
    ]


def test_a_move_keeps_to_its_throttle_until_that_is_raised_and_takes_it_along(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(2, PROPERTIES)
    create_topic(cluster.bootstrap, "events", config={"min.insync.replicas": "1"})
    produce(cluster.bootstrap, "events", [bytes(500_000)] * 10)
    ((leader, _),) = replicas_of(cluster, "events")
    move = tmp_path / "move.json"
    replicas = [3 - leader]
    move.write_text(json.dumps({"partitions": [{"topic": "events", "partition": 0, "replicas": replicas}]}))
    file = ("--reassignment-json-file", str(move))
    # A second's worth is far less than what the first fetches bring: the move comes to a halt.
    started = program(cluster, reassign_partitions, "--execute", *file, "--throttle", "1000")
    assert "throttle limit was set to 1000 B/s" in started
    topic_lists = program(cluster, configs, "--topic", "events", "--describe")
    assert f"leader.replication.throttled.replicas=0:{leader} " in topic_lists
    assert f"follower.replication.throttled.replicas=0:{3 - leader} " in topic_lists
    assert "is still in progress" in program(cluster, reassign_partitions, "--verify", *file, status=1)

    program(cluster, reassign_partitions, "--execute", *file, "--additional", "--throttle", "1000000000")
    until_printed(cluster, "No partition reassignments found", reassign_partitions, "--list")
    verified = program(cluster, reassign_partitions, "--verify", *file)
    assert verified.splitlines()[-3:] == [
        "Cleared the throttle of broker 1.",
        "Cleared the throttle of broker 2.",
        "Cleared the throttle of topic events.",
    ]
    # The broker that is asked may not have heard of it yet.
    for whose in (("--topic", "events"), ("--entity-type", "brokers")):
        deadline = time.monotonic() + DEADLINE_S
        while "throttled" in program(cluster, configs, *whose, "--describe"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert len(consume(cluster.bootstrap, "events", 10)) == 10


def test_a_move_to_a_paused_broker_can_be_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start(3, {**PROPERTIES, "zookeeper.session.timeout.ms": "60000"})
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        controller = admin.describe_cluster().controller
    assert controller is not None
    create_topic(cluster.bootstrap, "events")
    ((leader, _),) = replicas_of(cluster, "events")
    paused = next(broker for broker in cluster.brokers if broker.broker_id not in (leader, controller.id))
    move = tmp_path / "move.json"
    move.write_text(
        json.dumps({"partitions": [{"topic": "events", "partition": 0, "replicas": [paused.broker_id]}]})
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
        assert "on the move already" in program(awake, reassign_partitions, "--execute", *file, status=1)
        assert "Successfully cancelled" in program(awake, reassign_partitions, "--cancel", *file)
        assert "None of the specified" in program(awake, reassign_partitions, "--cancel", *file)
        assert "rather than" in program(awake, reassign_partitions, "--verify", *file, status=1)
    finally:
        paused.resume()
    assert replicas_of(cluster, "events") == [(leader, (leader,))]


def test_settings_are_shown_and_changed(cluster: Cluster) -> None:
    cluster.start(1)
    create_topic(cluster.bootstrap, "events")
    added = "retention.ms=1000,cleanup.policy=[compact,delete]"
    assert "Completed updating" in program(
        cluster, configs, "--alter", "--topic", "events", "--add-config", added
    )
    shown = program(cluster, configs, "--describe", "--topic", "events")
    assert "retention.ms=1000" in shown
    assert "cleanup.policy=compact,delete" in shown
    assert "segment.bytes" not in shown
    assert "segment.bytes" in program(cluster, configs, "--describe", "--topic", "events", "--all")
    program(cluster, configs, "--alter", "--topic", "events", "--delete-config", "retention.ms")
    shown = program(cluster, configs, "--describe", "--entity-type", "topics")
    assert "retention.ms" not in shown
    assert "broker.id=1" in program(cluster, configs, "--describe", "--broker", "1", "--all")


def test_partitions_in_trouble_are_told_apart(cluster: Cluster) -> None:
    cluster.start(3, {**PROPERTIES, "controlled.shutdown.max.retries": "0"})
    create_topic(cluster.bootstrap, "sound", 1, 3, {"min.insync.replicas": "1"})
    create_topic(cluster.bootstrap, "strict", 1, 3, {"min.insync.replicas": "3"})
    create_topic(cluster.bootstrap, "tight", 1, 3, {"min.insync.replicas": "2"})

    def shown(option: str) -> list[str]:
        lines = program(cluster, topics, "--describe", option).splitlines()
        return [line.split("\t")[1].removeprefix("Topic: ") for line in lines]

    assert shown("--under-replicated-partitions") == []
    assert shown("--at-min-isr-partitions") == ["strict"]
    cluster.brokers[2].stop()
    deadline = time.monotonic() + DEADLINE_S
    while shown("--under-replicated-partitions") != ["sound", "strict", "tight"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert shown("--under-min-isr-partitions") == ["strict"]
    assert shown("--at-min-isr-partitions") == ["tight"]
    assert shown("--unavailable-partitions") == []


def test_a_stock_client_moves_and_elects(cluster: Cluster) -> None:
    cluster.start(2, PROPERTIES)
    create_topic(cluster.bootstrap, "events")
    ((leader, _),) = replicas_of(cluster, "events")
    other = 3 - leader
    stock = StockAdmin(bootstrap_servers=cluster.bootstrap)
    try:
        partition = StockPartition("events", 0)
        assert stock.alter_partition_reassignments({partition: [other, leader]}) == {partition: None}
        deadline = time.monotonic() + DEADLINE_S
        while stock.list_partition_reassignments():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        stock.elect_leaders(0, {"events": [0]}, raise_errors=False)
        assert replicas_of(cluster, "events") == [(other, (other, leader))]
        refused = stock.alter_partition_reassignments({partition: [99]})
        assert refused[partition] is not None
    finally:
        stock.close()
