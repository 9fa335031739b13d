"""scripts/reassign-partitions.sh moves replicas to named log directories, on two brokers with two each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.tools.configs import configs
from holdfast_log.clients.tools.reassign_partitions import reassign_partitions
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce
from tests.integration.test_moving_partitions import program, until_printed
from tests.integration.waiting import until

RECORDS = [bytes(100_000)] * 100
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    """Two brokers. The directories of broker N are `<its directory>/first` and `second`."""
    for _ in range(2):
        broker = cluster.add({"offsets.topic.replication.factor": "1"})
        paths = [str(broker.directory / name) for name in ("first", "second")]
        broker.properties["log.dirs"] = ",".join(paths)
        broker.start()
    for broker in cluster.brokers:
        broker.wait_ready(2)
    yield cluster


def directory(cluster: Cluster, broker: int, name: str) -> str:
    return str(cluster.brokers[broker - 1].directory / name)


def placed(cluster: Cluster, topic: str) -> dict[tuple[int, bool], str]:
    """The names of the directories of partition 0, by broker and whether the replica is a future one."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        return {
            (each.node, row.is_future): Path(each.path).name
            for each in admin.describe_log_dirs()
            for row in each.replicas
            if row.partition == TopicPartition(topic, 0)
        }


def plan(path: Path, topic: str, replicas: Sequence[int], directories: Sequence[str]) -> tuple[str, str]:
    row = {"topic": topic, "partition": 0, "replicas": list(replicas), "log_dirs": list(directories)}
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return "--reassignment-json-file", str(path)


@pytest.mark.timeout(900)
def test_a_replica_moves_within_its_broker_and_to_a_directory_of_another_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, "t", 1, 1)
    produce(cluster.bootstrap, "t", RECORDS)
    ((here, _), there) = next(iter(placed(cluster, "t").items()))
    other = {"first": "second", "second": "first"}[there]

    # Within the broker, at a rate that takes for ever, until it is raised.
    target = directory(cluster, here, other)
    file = plan(tmp_path / "within.json", "t", [here], [target])
    started = program(
        cluster, reassign_partitions, "--execute", *file, "--replica-alter-log-dirs-throttle", "1000"
    )
    assert "The replica-alter-dir throttle limit was set to 1000 B/s" in started
    assert (
        f"Successfully started moving log directory to {target} for replica t-0 with broker {here}" in started
    )
    until(lambda: placed(cluster, "t") == {(here, False): there, (here, True): other})
    shown = program(cluster, configs, "--describe", "--entity-type", "brokers", "--entity-name", str(here))
    assert f"{RATE}=1000 " in shown
    verified = program(cluster, reassign_partitions, "--verify", *file, status=1)
    assert f"Reassignment of replica t-0-{here} is still in progress." in verified
    rows = json.loads(program(cluster, reassign_partitions, "--verify", *file, "--json", status=1))
    assert rows[0]["log_dirs"] == [{"broker": here, "log_dir": target, "state": "in progress"}]
    program(
        cluster, configs, "--alter", "--entity-type", "brokers", "--entity-name", str(here),
        "--add-config", f"{RATE}=1000000000",
    )  # fmt: skip
    until(lambda: placed(cluster, "t") == {(here, False): other})
    verified = program(cluster, reassign_partitions, "--verify", *file)
    assert f"Reassignment of replica t-0-{here} completed successfully." in verified
    assert f"Cleared the throttle of broker {here}." in verified
    until(lambda: RATE not in program(cluster, configs, "--describe", "--entity-type", "brokers"))

    # To a directory of the other broker: it is created there, and not moved within that broker.
    for name in ("second", "first"):
        away = 3 - here
        target = directory(cluster, away, name)
        file = plan(tmp_path / "across.json", "t", [away], [target])
        program(cluster, reassign_partitions, "--execute", *file, "--timeout", "120000")
        until_printed(
            cluster, f"replica t-0-{away} completed successfully", reassign_partitions, "--verify", *file
        )
        until(lambda name=name, away=away: placed(cluster, "t") == {(away, False): name})
        here = away
    assert len(consume(cluster.bootstrap, "t", len(RECORDS))) == len(RECORDS)


@pytest.mark.timeout(900)
def test_a_move_between_directories_is_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "t", 1, 1)
    produce(cluster.bootstrap, "t", RECORDS)
    ((here, _), there) = next(iter(placed(cluster, "t").items()))
    other = {"first": "second", "second": "first"}[there]
    file = plan(tmp_path / "plan.json", "t", [here], [directory(cluster, here, other)])
    program(cluster, reassign_partitions, "--execute", *file, "--replica-alter-log-dirs-throttle", "1000")
    until(lambda: (here, True) in placed(cluster, "t"))
    cancelled = program(cluster, reassign_partitions, "--cancel", *file)
    assert f"Successfully cancelled log directory moves for t-0-{here}" in cancelled
    assert f"Cleared the throttle of broker {here}." in cancelled
    until(lambda: placed(cluster, "t") == {(here, False): there})
    verified = program(cluster, reassign_partitions, "--verify", *file, status=1)
    assert f"Partition t-0 on broker {here} is not being moved" in verified
    assert "None of the specified" in program(cluster, reassign_partitions, "--cancel", *file)


def test_a_plan_that_names_no_directory_of_a_broker_changes_nothing(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create_topic(cluster.bootstrap, "t", 1, 1)
    ((here, _), there) = next(iter(placed(cluster, "t").items()))
    file = plan(tmp_path / "plan.json", "t", [3 - here], ["/no/such/directory"])
    refused = program(cluster, reassign_partitions, "--execute", *file, status=1)
    assert "no such directory in log.dirs" in refused
    assert placed(cluster, "t") == {(here, False): there}
    listed = program(cluster, reassign_partitions, "--list")
    assert "No partition reassignments found" in listed
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        answers = admin.alter_replica_log_dirs(here, {TopicPartition("none", 0): "/no/such/directory"})
        assert [error and error.code for error in answers.values()] == [ErrorCode.LOG_DIR_NOT_FOUND]
