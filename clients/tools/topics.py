"""scripts/topics.sh: create, list, describe, alter and delete topics."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click

from holdfast_log.clients.admin import (
    Admin,
    ConfigResource,
    ConfigSource,
    NewTopic,
    TopicDescription,
)
from holdfast_log.clients.connection.cluster_view import PartitionInfo
from holdfast_log.clients.errors import UnsupportedRequestError
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    pairs,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.topic_pattern import topic_pattern
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import ErrorCode, TopicExistsError, error_for

_PATIENCE_MS = 15_000
"""Time in ms until the tool gives up on a broker that does not answer."""


@click.command(context_settings=CONTEXT)
@bootstrap_option
@click.option("--create", "action", flag_value="create", help="Create a topic.")
@click.option("--list", "action", flag_value="list", help="List the names of all topics.")
@click.option("--describe", "action", flag_value="describe", help="Show topics and their partitions.")
@click.option("--alter", "action", flag_value="alter", help="Raise the number of partitions of topics.")
@click.option("--delete", "action", flag_value="delete", help="Delete topics.")
@click.option("--topic", help="The topic; for --list, --describe, --alter and --delete a regular expression.")
@click.option("--topic-id", metavar="ID", help="With --describe, instead of --topic: the topic with this id.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions of the topic.")
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Number of replicas of each partition of a new topic.",
)
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2",
    help="Instead of --partitions and --replication-factor: the brokers of each new partition, preferred "
    "leader first.",
)
@click.option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of the new topic. May be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="With --create: do nothing if the topic exists.")
@click.option(
    "--if-exists",
    is_flag=True,
    help="With --alter, --delete, --describe: do nothing if the topic does not exist.",
)
@click.option("--exclude-internal", is_flag=True, help="Exclude internal topics.")
@click.option(
    "--topics-with-overrides", is_flag=True, help="With --describe: only topics with overridden settings."
)
@click.option(
    "--unavailable-partitions", is_flag=True, help="With --describe: only partitions without a leader."
)
@click.option(
    "--under-replicated-partitions", is_flag=True, help="With --describe: only under-replicated partitions."
)
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with fewer in-sync replicas than min.insync.replicas.",
)
@click.option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with exactly min.insync.replicas in-sync replicas.",
)
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def topics(
    bootstrap: str,
    action: str | None,
    topic: str | None,
    topic_id: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
    topics_with_overrides: bool,
    unavailable_partitions: bool,
    under_replicated_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
    as_json: bool,
    command_config: str | None,
) -> None:
    """Create, list, describe, alter or delete topics.

    \b
    topics.sh --bootstrap-server localhost:9092 --create --topic orders --partitions 6
    topics.sh --bootstrap-server localhost:9092 --describe --topic 'orders.*'
    topics.sh --bootstrap-server localhost:9092 --alter --topic orders --partitions 12
    """
    if action is None:
        raise click.UsageError("one of --create, --list, --describe, --alter, --delete is needed")
    if topic is None and action in ("create", "alter", "delete"):
        raise click.UsageError(f"--{action} needs --topic")
    if topic_id is not None and (action != "describe" or topic is not None):
        raise click.UsageError("--topic-id goes with --describe, without --topic")
    if as_json and action not in ("list", "describe"):
        raise click.UsageError("--json goes with --list and --describe")
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "topics",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        match action:
            case "create":
                new = NewTopic(
                    topic or "",
                    partitions or -1,
                    replication_factor or -1,
                    pairs(configs),
                    _assignment(replica_assignment),
                )
                create(admin, new, if_not_exists)
            case "list":
                found = matching(admin, topic, exclude_internal)
                if as_json:
                    print_json([{"topic": name} for name in found])
                else:
                    for name in found:
                        click.echo(name)
            case "alter":
                if partitions is None:
                    raise click.UsageError("--alter needs --partitions")
                alter(admin, topic or "", partitions, _assignment(replica_assignment), if_exists)
            case "delete":
                names = existing(admin, topic, exclude_internal=False, if_exists=if_exists)
                if names:
                    admin.delete_topics(names)
            case "describe":
                if topic_id is None:
                    names = existing(admin, topic, exclude_internal, if_exists or topic is None)
                else:
                    names = with_id(admin, topic_id, if_exists)
                wanted = _partition_filter(
                    unavailable_partitions,
                    under_replicated_partitions,
                    under_min_isr_partitions,
                    at_min_isr_partitions,
                )
                describe(admin, names, wanted, topics_with_overrides, as_json=as_json)


def create(admin: Admin, topic: NewTopic, if_not_exists: bool) -> None:
    """Create a topic and print a confirmation. Raises TopicExistsError unless `if_not_exists`."""
    try:
        admin.create_topics([topic])
    except TopicExistsError:
        if not if_not_exists:
            raise
    else:
        click.echo(f"Created topic {topic.name}.")


def alter(
    admin: Admin,
    pattern: str,
    partitions: int,
    assignment: dict[int, list[int]] | None,
    if_exists: bool,
) -> None:
    """Raise the number of partitions of the topics that match."""
    for name in existing(admin, pattern, exclude_internal=False, if_exists=if_exists):
        replicas = None if assignment is None else {name: list(assignment.values())}
        admin.create_partitions({name: partitions}, assignments=replicas)


def matching(admin: Admin, pattern: str | None, exclude_internal: bool) -> list[str]:
    """The names of the topics that match `pattern` as a whole, or all."""
    names = admin.list_topics(include_internal=not exclude_internal)
    if pattern is None:
        return names
    wanted = topic_pattern(pattern)
    return [name for name in names if wanted.fullmatch(name)]


def existing(admin: Admin, pattern: str | None, exclude_internal: bool, if_exists: bool) -> list[str]:
    """The topics that match `pattern`, or all. Raises UnknownTopicOrPartitionError for none unless
    `if_exists`."""
    names = matching(admin, pattern, exclude_internal)
    if not names and not if_exists:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {pattern}")
    return names


def with_id(admin: Admin, topic_id: str, if_exists: bool) -> list[str]:
    """The topic with this id. Raises UnknownTopicOrPartitionError for none unless `if_exists`."""
    names = [each.name for each in admin.describe_topics() if _short(each.id) == topic_id]
    if not names and not if_exists:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
    return names


@dataclass(frozen=True)
class PartitionFilter:
    """Selects the partitions to print, by their state and their topic's min.insync.replicas."""

    matches: Callable[[PartitionInfo, int], bool]
    needs_min_isr: bool = False


def _partition_filter(
    unavailable: bool, under_replicated: bool, under_min_isr: bool, at_min_isr: bool
) -> PartitionFilter | None:
    """The filter that the options name; None to print all partitions and the topics' own lines."""
    if [unavailable, under_replicated, under_min_isr, at_min_isr].count(True) > 1:
        raise click.UsageError("only one of the options that choose partitions may be given")
    if unavailable:
        return PartitionFilter(lambda row, min_isr: row.leader < 0)
    if under_replicated:
        return PartitionFilter(lambda row, min_isr: len(row.isr) < len(row.replicas))
    if under_min_isr:
        return PartitionFilter(lambda row, min_isr: len(row.isr) < min_isr, needs_min_isr=True)
    if at_min_isr:
        return PartitionFilter(lambda row, min_isr: len(row.isr) == min_isr, needs_min_isr=True)
    return None


def describe(
    admin: Admin,
    names: list[str],
    wanted: PartitionFilter | None,
    only_with_overrides: bool,
    *,
    as_json: bool = False,
) -> None:
    """Print topics and the partitions that are wanted, in the format of Kafka's tool or as JSON."""
    found = admin.describe_topics(names) if names else []
    needs_overrides = as_json or wanted is None or only_with_overrides
    overrides = _overrides(admin, found) if found and needs_overrides else {}
    min_isr = _min_isr(admin, found) if wanted is not None and wanted.needs_min_isr else {}
    chosen = [
        (each, _matching_rows(each, wanted, min_isr.get(each.name, 1)))
        for each in sorted(found, key=lambda each: each.name)
        if not only_with_overrides or overrides.get(each.name)
    ]
    if as_json:
        print_json([as_object(each, overrides.get(each.name, {}), rows) for each, rows in chosen])
        return
    for each, rows in chosen:
        if wanted is None:
            configs = overrides.get(each.name, {})
            click.echo(topic_line(each, ",".join(f"{name}={value}" for name, value in configs.items())))
        if not only_with_overrides:
            for row in rows:
                click.echo(partition_line(each.name, row))


def _matching_rows(
    topic: TopicDescription, wanted: PartitionFilter | None, min_isr: int
) -> list[PartitionInfo]:
    return [row for row in topic.partitions if wanted is None or wanted.matches(row, min_isr)]


def _overrides(admin: Admin, found: Iterable[TopicDescription]) -> dict[str, dict[str, str | None]]:
    """For each topic its own settings."""
    resources = [ConfigResource(ResourceType.TOPIC, each.name) for each in found]
    try:
        described = admin.describe_configs(resources)
    except UnsupportedRequestError:
        return {}
    return {
        resource.name: {
            entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC
        }
        for resource, entries in described.items()
    }


def _min_isr(admin: Admin, found: Iterable[TopicDescription]) -> dict[str, int]:
    """The topics' min.insync.replicas."""
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, each.name) for each in found])
    return {
        resource.name: int(entry.value)
        for resource, entries in described.items()
        for entry in entries
        if entry.name == "min.insync.replicas" and entry.value is not None
    }


def as_object(
    topic: TopicDescription, configs: dict[str, str | None], rows: Iterable[PartitionInfo]
) -> dict[str, Any]:
    """What --describe --json prints for a topic. `leader` is null if there is none."""
    return {
        "topic": topic.name,
        "topicId": _short(topic.id),
        "isInternal": topic.is_internal,
        "configs": configs,
        "partitions": [
            {
                "partition": row.partition,
                "leader": row.leader if row.leader >= 0 else None,
                "replicas": list(row.replicas),
                "isr": list(row.isr),
            }
            for row in rows
        ],
    }


def topic_line(topic: TopicDescription, configs: str) -> str:
    """The line that --describe prints for a topic."""
    replication_factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    return (
        f"Topic: {topic.name}\tTopicId: {_short(topic.id)}\tPartitionCount: {len(topic.partitions)}\t"
        f"ReplicationFactor: {replication_factor}\tConfigs: {configs}"
    )


def partition_line(topic: str, row: PartitionInfo) -> str:
    """The line that --describe prints for a partition."""
    leader = str(row.leader) if row.leader >= 0 else "none"
    return (
        f"\tTopic: {topic}\tPartition: {row.partition}\tLeader: {leader}\t"
        f"Replicas: {_joined(row.replicas)}\tIsr: {_joined(row.isr)}"
    )


def _joined(nodes: Iterable[int]) -> str:
    return ",".join(str(node) for node in nodes)


def _short(topic_id: UUID) -> str:
    """A topic id in Kafka's text form."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def _assignment(text: str | None) -> dict[int, list[int]] | None:
    if text is None:
        return None
    try:
        return {
            index: [int(node) for node in replicas.split(":")]
            for index, replicas in enumerate(text.split(","))
        }
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text!r} is not of the form 0:1,1:2") from None


if __name__ == "__main__":
    run(topics)
