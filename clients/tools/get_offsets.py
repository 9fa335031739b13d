"""scripts/get-offsets.sh: print offsets of partitions: the first, the next, or the one at a time."""

from __future__ import annotations

import json

import click

from holdfast_log.clients.admin import EARLIEST, LATEST, MAX_TIMESTAMP, Admin, OffsetAndTimestamp
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    json_option,
    old_bootstrap_option,
    properties,
    run,
)
from holdfast_log.clients.tools.partition_patterns import (
    PartitionPattern,
    matches_any,
    parse_partitions,
    parse_patterns,
)
from holdfast_log.clients.tools.topic_pattern import topic_pattern
from holdfast_log.protocol.topic_partition import TopicPartition

_TIMES = {
    "earliest": EARLIEST,
    "-2": EARLIEST,
    "latest": LATEST,
    "-1": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
    "-3": MAX_TIMESTAMP,
}


@click.command("get-offsets", context_settings=CONTEXT)
@old_bootstrap_option
@click.option(
    "--topic-partitions",
    "patterns",
    metavar="PATTERNS",
    help="Partitions, separated by commas: topic, topic:3, topic:2-5 (without 5), topic:2-, topic:-5. "
    "The topic is a regular expression; leave it out for all topics.",
)
@click.option("--topic", metavar="REGEX", help="Instead of --topic-partitions: topics whose name matches.")
@click.option(
    "--partitions", metavar="NUMBERS", help="With --topic: only these partitions, separated by commas."
)
@click.option(
    "--time",
    default="latest",
    show_default=True,
    help="earliest (-2), latest (-1), max-timestamp (-3), or ms since the epoch for the first record at or "
    "after that time.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out topics like __consumer_offsets.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def get_offsets(
    bootstrap: str,
    patterns: str | None,
    topic: str | None,
    partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    as_json: bool,
    command_config: str | None,
) -> int:
    """Print topic:partition:offset for each partition; the offset is empty if no record is that recent.

    \b
    get-offsets.sh --bootstrap-server localhost:9092 --topic orders --time earliest
    get-offsets.sh --bootstrap-server localhost:9092 --topic-partitions orders:0-3,prices
    """
    wanted = chosen(patterns, topic, partitions)
    timestamp = point_in_time(time)
    defaults = {"client.id": "get-offsets", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        led: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for described in admin.describe_topics():
            if exclude_internal_topics and described.is_internal:
                continue
            for row in described.partitions:
                if matches_any(wanted, described.name, row.partition):
                    (leaderless if row.leader < 0 else led).append(
                        TopicPartition(described.name, row.partition)
                    )
        if not led and not leaderless:
            raise click.ClickException("no partition matches; topics.sh --list shows all topics")
        found = admin.list_offsets(dict.fromkeys(led, timestamp))
    show(found, as_json)
    for partition in leaderless:
        click.echo(f"Skip getting offsets for {partition}: it has no leader now", err=True)
    return 1 if leaderless else 0


def chosen(patterns: str | None, topic: str | None, partitions: str | None) -> list[PartitionPattern]:
    """The patterns given by the options. Raises click.UsageError."""
    if patterns is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions excludes --topic and --partitions")
    if patterns is not None:
        return parse_patterns(patterns)
    name = None if topic is None else topic_pattern(topic)
    if partitions is None:
        return [PartitionPattern(name)]
    return [PartitionPattern(name, number, number + 1) for number in parse_partitions(partitions)]


def point_in_time(text: str) -> int:
    """The timestamp field of a ListOffsets request for the text of --time. Raises click.UsageError."""
    if text in _TIMES:
        return _TIMES[text]
    if text.isascii() and text.isdigit():
        return int(text)
    raise click.UsageError(f"--time {text}: give earliest, latest, max-timestamp, or ms since the epoch")


def show(found: dict[TopicPartition, OffsetAndTimestamp], as_json: bool) -> None:
    """Print the offsets found, sorted by partition."""
    rows = [
        (partition.topic, partition.partition, None if at.offset < 0 else at.offset)
        for partition, at in sorted(found.items())
    ]
    if as_json:
        keys = ("topic", "partition", "offset")
        click.echo(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    for topic, number, offset in rows:
        click.echo(f"{topic}:{number}:{'' if offset is None else offset}")


if __name__ == "__main__":
    run(get_offsets)
