"""scripts/cluster-health.sh: whether a cluster is healthy; if not, its troubles, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from holdfast_log.clients.admin import (
    Admin,
    ClusterDescription,
    ConfigResource,
    LogDir,
    ResourceType,
    TopicDescription,
)
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.command_names import as_typed
from holdfast_log.protocol.errors import BrokerError

_FULL = 0.9
"""Share of a disk from which on it counts as nearly full."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, and what to do about it: one sentence each."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


@dataclass(frozen=True, slots=True)
class ClusterFindings:
    """What brokers say about themselves.

    `min_in_sync` is the setting min.insync.replicas of each topic. `silent` are brokers that did not answer,
    with the reason.
    """

    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    min_in_sync: Mapping[str, int]
    directories: Sequence[LogDir]
    silent: Mapping[int, str]

    @property
    def alive(self) -> set[int]:
        return {node.id for node in self.cluster.nodes}


@click.command("cluster-health", context_settings=CONTEXT)
@bootstrap_option
@click.option("--brokers", type=click.IntRange(1), metavar="N", help="How many brokers there should be.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def cluster_health(bootstrap: str, brokers: int | None, as_json: bool, command_config: str | None) -> int:
    """Check a cluster. Exits with status 0 if it is healthy, else with 1, after a line for each trouble that
    says what to do.

    \b
    cluster-health.sh --bootstrap-server localhost:9092 --brokers 3
    """
    defaults = {"client.id": "cluster-health", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        found = look(admin)
    troubles = list(troubles_of(found, brokers))
    if as_json:
        print_json(
            {
                "healthy": not troubles,
                "brokers": sorted(found.alive),
                "controller": None if found.cluster.controller is None else found.cluster.controller.id,
                "troubles": [{"what": each.what, "remedy": as_typed(each.remedy)} for each in troubles],
            }
        )
        return 1 if troubles else 0
    for trouble in troubles:
        click.echo(as_typed(str(trouble)))
    if not troubles:
        partitions = sum(len(topic.partitions) for topic in found.topics)
        click.echo(
            f"The cluster is healthy: {len(found.alive)} brokers, {len(found.topics)} topics, "
            f"{partitions} partitions."
        )
    return 1 if troubles else 0


def look(admin: Admin) -> ClusterFindings:
    """Ask all brokers."""
    cluster = admin.describe_cluster()
    names = admin.list_topics(include_internal=True)
    topics = admin.describe_topics(names) if names else []
    directories: list[LogDir] = []
    silent: dict[int, str] = {}
    for node in cluster.nodes:
        try:
            directories += admin.describe_log_dirs([node.id])
        except (ClientError, BrokerError) as error:
            silent[node.id] = str(error)
    return ClusterFindings(cluster, topics, _min_in_sync(admin, names), directories, silent)


def _min_in_sync(admin: Admin, names: Sequence[str]) -> dict[str, int]:
    if not names:
        return {}
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names])
    return {
        resource.name: int(entry.value)
        for resource, entries in described.items()
        for entry in entries
        if entry.name == "min.insync.replicas" and entry.value is not None
    }


# -- judging ---------------------------------------------------------------------------------------------


def troubles_of(found: ClusterFindings, brokers: int | None = None) -> Iterator[Trouble]:
    """What is wrong, the worst first. `brokers` is how many there should be; None if that is not known."""
    if found.cluster.controller is None:
        yield Trouble(
            "No broker is the controller: no leader is elected and no topic created.",
            "Look whether the brokers reach ZooKeeper.",
        )
    yield from _without_leader(found)
    yield from _under_minimum(found)
    yield from _dead_brokers(found)
    if brokers is not None and len(found.alive) < brokers:
        yield Trouble(
            f"{len(found.alive)} brokers are alive, not {brokers}: {_ids(found.alive)}.",
            "Start the others; the end of a broker's log says why it ended.",
        )
    for node, reason in found.silent.items():
        yield Trouble(
            f"Broker {node} is registered and does not answer: {reason}.",
            "If its process runs, its event loop hangs: look at its log and restart it.",
        )
    yield from _directories(found)
    yield from _behind(found)


def _named(partitions: Sequence[str]) -> str:
    """How many partitions, and the first of them."""
    return f"{len(partitions)} partitions, the first of them {partitions[0]},"


def _ids(brokers: set[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def _without_leader(found: ClusterFindings) -> Iterator[Trouble]:
    leaderless = [
        f"{topic.name}-{row.partition}"
        for topic in found.topics
        for row in topic.partitions
        if row.leader < 0
    ]
    if leaderless:
        yield Trouble(
            f"{_named(leaderless)} have no leader: nobody can write or read them.",
            "Start the brokers that have their replicas (topics.sh --describe --unavailable-partitions). If "
            "those are lost for good, elect other leaders (leader-election.sh --election-type unclean): "
            "records may be lost.",
        )


def _under_minimum(found: ClusterFindings) -> Iterator[Trouble]:
    few = [
        f"{topic.name}-{row.partition}"
        for topic in found.topics
        for row in topic.partitions
        if row.leader >= 0 and len(row.isr) < found.min_in_sync.get(topic.name, 1)
    ]
    if few:
        yield Trouble(
            f"{_named(few)} have fewer in-sync replicas than min.insync.replicas: writes with acks=all are "
            "refused.",
            "Start the brokers that are down, or wait until their replicas have caught up.",
        )


def _dead_brokers(found: ClusterFindings) -> Iterator[Trouble]:
    missing = Counter(
        replica
        for topic in found.topics
        for row in topic.partitions
        for replica in row.replicas
        if replica not in found.alive
    )
    for broker, count in sorted(missing.items()):
        yield Trouble(
            f"Broker {broker} is down, and has replicas of {count} partitions.",
            "Start it; the end of its log says why it ended. If it is lost, move its replicas to other "
            "brokers (reassign-partitions.sh).",
        )


def _directories(found: ClusterFindings) -> Iterator[Trouble]:
    for directory in found.directories:
        if directory.error is not None:
            yield Trouble(
                f"Log directory {directory.path} of broker {directory.node} has failed: {directory.error}.",
                "Repair or replace the disk, and restart the broker.",
            )
        elif directory.total_bytes > 0 and directory.usable_bytes >= 0:
            used = 1 - directory.usable_bytes / directory.total_bytes
            if used >= _FULL:
                yield Trouble(
                    f"The disk of {directory.path} of broker {directory.node} is {100 * used:.0f} % full.",
                    "Keep records for a shorter time (retention.ms, retention.bytes), or move replicas to "
                    "another broker: a full disk fails.",
                )


def _behind(found: ClusterFindings) -> Iterator[Trouble]:
    """Replicas out of sync on brokers that live: they are slow, or their disk has failed."""
    behind = [
        f"{topic.name}-{row.partition}"
        for topic in found.topics
        for row in topic.partitions
        if any(each not in row.isr and each in found.alive for each in row.replicas)
    ]
    if behind:
        yield Trouble(
            f"{_named(behind)} have replicas out of sync although their brokers live.",
            "They catch up after a restart. If they do not, look at disks, network and processors of those "
            "brokers (topics.sh --describe --under-replicated-partitions).",
        )


if __name__ == "__main__":
    run(cluster_health)
