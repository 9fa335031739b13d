"""scripts/verifiable-consumer.sh: a group member that reports each of its steps as JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    old_bootstrap_option,
    properties,
    run,
)
from holdfast_log.clients.tools.json_events import tell
from holdfast_log.clients.tools.pace import UNLIMITED
from holdfast_log.clients.tools.stopping import stop_on_signals
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition

_POLL_MS = 500


@click.command("verifiable-consumer", context_settings=CONTEXT)
@old_bootstrap_option
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--group-id", required=True, help="The group to join.")
@click.option("--group-instance-id", help="Join as this static member.")
@click.option("--group-protocol", help="classic, consumer or managed.")
@click.option("--group-remote-assignor", help="group.remote.assignor")
@click.option(
    "--max-messages",
    type=int,
    default=UNLIMITED,
    show_default=True,
    help="Maximum number of messages; -1 for no limit.",
)
@click.option("--session-timeout", type=int, help="session.timeout.ms")
@click.option("--verbose", is_flag=True, help="Report each record.")
@click.option("--enable-autocommit", is_flag=True, help="Commit automatically instead of after every poll.")
@click.option(
    "--reset-policy",
    default="earliest",
    show_default=True,
    help="Where to start without a committed offset: earliest, latest or none.",
)
@click.option(
    "--assignment-strategy", help="partition.assignment.strategy; Kafka's class names are accepted."
)
@click.option(
    "--consumer-property", metavar="KEY=VALUE", multiple=True, help="A consumer property. May be repeated."
)
@click.option(
    "--consumer.config", "config_file", metavar="FILE", help="Properties file with settings of the consumer."
)
def verifiable_consumer(
    bootstrap: str,
    topic: str,
    group_id: str,
    group_instance_id: str | None,
    group_protocol: str | None,
    group_remote_assignor: str | None,
    max_messages: int,
    session_timeout: int | None,
    verbose: bool,
    enable_autocommit: bool,
    reset_policy: str,
    assignment_strategy: str | None,
    consumer_property: tuple[str, ...],
    config_file: str | None,
) -> None:
    """Read a topic as a member of a group and print each event as one line of JSON.

    Ctrl-C stops the program: it commits, leaves the group, and prints a last event.
    """
    given = {
        "group.instance.id": group_instance_id,
        "group.protocol": group_protocol,
        "group.remote.assignor": group_remote_assignor,
        "session.timeout.ms": session_timeout,
        "partition.assignment.strategy": assignment_strategy,
    }
    defaults = {
        "client.id": "verifiable-consumer",
        "group.id": group_id,
        "auto.offset.reset": reset_policy,
        "enable.auto.commit": enable_autocommit,
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    merged = properties(bootstrap, config_file, consumer_property, defaults)
    merged |= {key: value for key, value in given.items() if value is not None}
    left = max_messages
    with stop_on_signals() as stop, Consumer(merged, rebalance_listener=_Telling()) as consumer:
        tell("startup_complete")
        consumer.add_topic(topic)
        while not stop and left:
            records = consumer.poll(_POLL_MS, None if left < 0 else left)
            if not records:
                continue
            _tell_records(records, verbose)
            left -= len(records) if left > 0 else 0
            if not enable_autocommit:
                _commit(consumer, records)
    tell("shutdown_complete")


class _Telling(RebalanceListener):
    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        tell("partitions_assigned", partitions=_listed(partitions))

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        tell("partitions_revoked", partitions=_listed(partitions))


def _listed(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


def by_partition(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, list[int]]:
    """The offsets of records by partition, in the order read."""
    found: dict[TopicPartition, list[int]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
    return found


def _tell_records(records: Sequence[ConsumerRecord], verbose: bool) -> None:
    rows = [
        {
            "topic": topic,
            "partition": number,
            "count": len(offsets),
            "minOffset": offsets[0],
            "maxOffset": offsets[-1],
        }
        for (topic, number), offsets in by_partition(records).items()
    ]
    tell("records_consumed", count=len(records), partitions=rows)
    if verbose:
        for record in records:
            tell(
                "record_data",
                key=_text(record.key),
                value=_text(record.value),
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _commit(consumer: Consumer, records: Sequence[ConsumerRecord]) -> None:
    """Commit the offsets after these records, and print whether the commit succeeded."""
    wanted = {each: offsets[-1] + 1 for each, offsets in by_partition(records).items()}
    rows = [{"topic": topic, "partition": number, "offset": at} for (topic, number), at in wanted.items()]
    try:
        consumer.commit(offsets=wanted)
    except (BrokerError, ClientError) as error:
        tell("offsets_committed", offsets=rows, success=False, error=str(error))
    else:
        tell("offsets_committed", offsets=rows, success=True)


if __name__ == "__main__":
    run(verifiable_consumer)
