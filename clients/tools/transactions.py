"""scripts/transactions.sh: show transactions and producers, find and abort transactions that hang."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from holdfast_log.clients.admin import Admin, OpenTransaction, ProducerDescription
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.hanging_transactions import (
    SuspectTransaction,
    hanging,
    partitions_to_search,
    suspects,
)
from holdfast_log.clients.tools.table import tabbed_table
from holdfast_log.protocol.topic_partition import TopicPartition

_NONE = "None"
"""Printed, as by Kafka's tool, in place of a time or an offset that there is not."""
_MS_PER_MINUTE = 60_000
_SHORT_MAX = 2**15 - 1
_INT_MAX = 2**31 - 1

_LIST = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE = (
    "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
    "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
)  # fmt: skip
_PRODUCERS = (
    "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
    "CurrentTransactionStartOffset",
)  # fmt: skip
_HANGING = (
    "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
    "Duration(min)",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What the options before the command say."""

    bootstrap: str
    command_config: str | None

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        defaults = {"client.id": "transactions", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
        with Admin(properties(self.bootstrap, self.command_config, (), defaults)) as admin:
            yield admin


_topic_option = click.option("--topic", required=True, help="The topic.")
_partition_option = click.option(
    "--partition", type=click.IntRange(0), required=True, help="The partition's number."
)


@click.group("transactions", context_settings=CONTEXT)
@bootstrap_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
@click.pass_context
def transactions(context: click.Context, bootstrap: str, command_config: str | None) -> None:
    """Show transactions and the producers that write them; find those that hang, and abort them.

    \b
    transactions.sh --bootstrap-server localhost:9092 list
    transactions.sh --bootstrap-server localhost:9092 describe --transactional-id payments
    transactions.sh --bootstrap-server localhost:9092 find-hanging --topic journal
    transactions.sh --bootstrap-server localhost:9092 abort --topic journal --partition 0 --start-offset 7

    A transaction hangs if a partition has it open and no coordinator knows of it: readers of committed
    records wait there until it is aborted.
    """
    context.obj = _Cluster(bootstrap, command_config)


@transactions.command("list")
@click.option(
    "--duration-filter",
    type=click.IntRange(0),
    metavar="MS",
    help="Only transactions open for longer than this.",
)
@json_option
@click.pass_obj
def list_all(cluster: _Cluster, duration_filter: int | None, as_json: bool) -> None:
    """List all transactional ids, with their coordinators and states."""
    with cluster.admin() as admin:
        found = admin.list_transactions(open_longer_than_ms=duration_filter)
    rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found]
    _show(_LIST, rows, as_json)


@transactions.command("describe")
@click.option("--transactional-id", required=True, help="The transactional id.")
@json_option
@click.pass_obj
def describe(cluster: _Cluster, transactional_id: str, as_json: bool) -> None:
    """Describe one transactional id: its producer, and the partitions of its open transaction."""
    with cluster.admin() as admin:
        each = admin.describe_transactions([transactional_id])[transactional_id]
    partitions = [str(at) for at in each.partitions]
    row = (
        each.coordinator,
        transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.state,
        each.timeout_ms,
        each.start_ms,
        None if each.start_ms is None else _now_ms() - each.start_ms,
        partitions if as_json else ",".join(partitions),
    )
    _show(_DESCRIBE, [row], as_json)


@transactions.command("describe-producers")
@click.option("--broker-id", type=click.IntRange(0), help="Ask this broker's replica instead of the leader.")
@_topic_option
@_partition_option
@json_option
@click.pass_obj
def describe_producers(
    cluster: _Cluster, broker_id: int | None, topic: str, partition: int, as_json: bool
) -> None:
    """Describe the producers that a partition remembers, and where their open transactions begin."""
    at = TopicPartition(topic, partition)
    with cluster.admin() as admin:
        found = admin.describe_producers([at], broker=broker_id)[at]
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.transaction_start_offset,
        )
        for each in found
    ]
    _show(_PRODUCERS, rows, as_json)


@transactions.command("abort")
@_topic_option
@_partition_option
@click.option(
    "--start-offset", type=click.IntRange(0), help="Where the transaction begins, as find-hanging prints it."
)
@click.option(
    "--producer-id", type=click.IntRange(0), help="Instead of --start-offset, together with both epochs."
)
@click.option("--producer-epoch", type=click.IntRange(0, _SHORT_MAX), help="The producer's epoch.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1, _INT_MAX),
    help="The coordinator's epoch; -1 if none has written.",
)
@click.pass_obj
def abort(
    cluster: _Cluster,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition. Do this only to one that find-hanging shows.

    Needs the right CLUSTER_ACTION or ALTER on the cluster.
    """
    at = TopicPartition(topic, partition)
    if start_offset is None and producer_id is None:
        raise click.UsageError(
            "one of --start-offset or --producer-id (with --producer-epoch, --coordinator-epoch) is needed"
        )
    if start_offset is None and (producer_epoch is None or coordinator_epoch is None):
        raise click.UsageError("--producer-id needs --producer-epoch and --coordinator-epoch")
    with cluster.admin() as admin:
        if start_offset is not None:
            producer = _writer_of(admin.describe_producers([at])[at], at, start_offset)
            found = OpenTransaction(
                at, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
            )
        else:
            assert producer_id is not None and producer_epoch is not None and coordinator_epoch is not None
            found = OpenTransaction(at, producer_id, producer_epoch, coordinator_epoch)
        admin.abort_transaction(found)


@transactions.command("find-hanging")
@click.option("--broker-id", type=click.IntRange(0), help="Search the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    "timeout_minutes",
    type=click.IntRange(0, _INT_MAX),
    default=15,
    show_default=True,
    help="Minutes that a producer may be silent and still end its transaction: transaction.max.timeout.ms.",
)
@click.option("--topic", help="Search this topic.")
@click.option("--partition", type=click.IntRange(0), help="Search only this partition of --topic.")
@json_option
@click.pass_obj
def find_hanging(
    cluster: _Cluster,
    broker_id: int | None,
    timeout_minutes: int,
    topic: str | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Find transactions that a partition has open and that no coordinator will end."""
    if topic is None and broker_id is None:
        raise click.UsageError("--topic or --broker-id is needed")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    now_ms = _now_ms()
    with cluster.admin() as admin:
        partitions = partitions_to_search(admin, topic, partition, broker_id)
        found = hanging(
            admin, suspects(admin, partitions, broker_id, now_ms - timeout_minutes * _MS_PER_MINUTE)
        )
    _show(_HANGING, [_hanging_row(each, now_ms) for each in found], as_json)


def _hanging_row(each: SuspectTransaction, now_ms: int) -> tuple[object, ...]:
    producer = each.producer
    return (
        *each.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        producer.last_timestamp,
        (now_ms - producer.last_timestamp) // _MS_PER_MINUTE,
    )


def _writer_of(
    producers: Iterable[ProducerDescription], at: TopicPartition, start_offset: int
) -> ProducerDescription:
    for each in producers:
        if each.transaction_start_offset == start_offset:
            return each
    raise click.ClickException(
        f"no transaction that begins at offset {start_offset} is open in {at}: "
        "find-hanging and describe-producers show where the open ones begin"
    )


def _show(titles: Sequence[str], rows: Iterable[Sequence[object]], as_json: bool) -> None:
    """Print rows under Kafka's titles, or as JSON objects whose keys are the titles."""
    if as_json:
        keys = [_key(title) for title in titles]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    click.echo(tabbed_table(titles, [[_NONE if cell is None else cell for cell in row] for row in rows]))


def _key(title: str) -> str:
    """A JSON key: "Duration(min)" is durationMin."""
    name, _, unit = title.partition("(")
    return name[0].lower() + name[1:] + unit.rstrip(")").title()


def _now_ms() -> int:
    return int(time.time() * 1000)


if __name__ == "__main__":
    run(transactions)
