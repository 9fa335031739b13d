"""Kafka's own kafka-reassign-partitions.sh moves replicas to named log directories (KIP-113): within a broker
and to another one, with both of its throttles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION, TOOLS, VERSION
from holdfast_log.clients.admin import Admin, ConfigResource, ResourceType
from tests.cluster import Cluster
from tests.compat.apache_kafka import class_path
from tests.compat.java_programs import run_tool
from tests.integration.clients import consume, create_topic, produce
from tests.integration.test_moving_directories import cluster as two_directories
from tests.integration.test_moving_directories import directory, placed, plan
from tests.integration.waiting import until

cluster = two_directories
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORDS = [bytes(100_000)] * 100
RATES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


class Tool:
    """kafka-reassign-partitions.sh of one version."""

    def __init__(self, cluster: Cluster, jars: str) -> None:
        self._cluster = cluster
        self._jars = jars

    def run(self, *arguments: str) -> str:
        done = run_tool(self._jars, TOOL, "--bootstrap-server", self._cluster.bootstrap, *arguments)
        assert done.status == 0, done.output[-3000:] + done.errors[-3000:]
        return done.output


@pytest.fixture(params=[VERSION, KRAFT_VERSION])
def jars(request: pytest.FixtureRequest) -> str:
    return class_path(request.param, TOOLS)


def rates(cluster: Cluster) -> dict[int, dict[str, str]]:
    """The throttles that are set at each broker."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        found = admin.describe_configs([ConfigResource(ResourceType.BROKER, name) for name in ("1", "2")])
    return {
        int(resource.name): {
            entry.name: entry.value or "" for entry in entries if entry.name in RATES and not entry.is_default
        }
        for resource, entries in found.items()
    }


def verified(printed: str, replica: str) -> bool:
    """Whether --verify found a replica where it should be, and everything else done."""
    return (
        f"Reassignment of replica {replica} completed successfully" in printed
        and "Clearing broker-level throttles" in printed
    )


@pytest.mark.timeout(1800)
def test_kafkas_tool_moves_replicas_to_directories(jars: str, cluster: Cluster, tmp_path: Path) -> None:
    tool = Tool(cluster, jars)
    create_topic(cluster.bootstrap, "t", 1, 1)
    produce(cluster.bootstrap, "t", RECORDS)
    ((here, _), there) = next(iter(placed(cluster, "t").items()))
    other = {"first": "second", "second": "first"}[there]

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    generated = tool.run("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", str(here))
    proposed = json.loads([line for line in generated.splitlines() if line.startswith("{")][-1])
    assert proposed["partitions"][0]["replicas"] == [here]
    assert proposed["partitions"][0]["log_dirs"] == ["any"]

    # Within the broker. At the first rate the move takes for ever; --additional raises it.
    target = directory(cluster, here, other)
    file = plan(tmp_path / "within.json", "t", [here], [target])
    started = tool.run("--execute", *file, "--replica-alter-log-dirs-throttle", "1000")
    assert "The replica-alter-dir throttle limit was set to 1000 B/s" in started
    assert (
        f"Successfully started moving log directory to {target} for replica t-0 with broker {here}" in started
    )
    assert "is still in progress" in tool.run("--verify", *file)
    assert placed(cluster, "t") == {(here, False): there, (here, True): other}
    assert rates(cluster)[here] == {"replica.alter.log.dirs.io.max.bytes.per.second": "1000"}
    tool.run("--execute", *file, "--additional", "--replica-alter-log-dirs-throttle", "1000000000")
    until(lambda: placed(cluster, "t") == {(here, False): other})
    assert f"Reassignment of replica t-0-{here} completed successfully" in tool.run("--verify", *file)
    until(lambda: rates(cluster) == {1: {}, 2: {}})

    # To a named directory of the other broker.
    for name in ("second", "first"):
        away = 3 - here
        target = directory(cluster, away, name)
        file = plan(tmp_path / "across.json", "t", [away], [target])
        throttles = ("--throttle", "100000000", "--replica-alter-log-dirs-throttle", "200000000")
        started = tool.run("--execute", *file, *throttles, "--timeout", "120000")
        assert f"moving log directory to {target} for replica t-0 with broker {away}" in started
        assert set(rates(cluster)[away].values()) == {"100000000", "200000000"}
        # The tool takes the throttles back once the reassignment is over, too, which it may be later.
        until(lambda file=file, away=away: verified(tool.run("--verify", *file), f"t-0-{away}"))
        until(lambda name=name, away=away: placed(cluster, "t") == {(away, False): name})
        until(lambda: rates(cluster) == {1: {}, 2: {}})
        here = away
    assert len(consume(cluster.bootstrap, "t", len(RECORDS))) == len(RECORDS)
