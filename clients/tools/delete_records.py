"""scripts/delete-records.sh: delete the oldest records of partitions."""

from __future__ import annotations

import click

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.tools.command import CONTEXT, FIRST_CONTACT_MS, bootstrap_option, properties, run
from holdfast_log.clients.tools.partitions_file import read_offsets
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition


@click.command("delete-records", context_settings=CONTEXT)
@bootstrap_option
@click.option(
    "--offset-json-file",
    "path",
    metavar="FILE",
    required=True,
    help='What to delete: {"partitions": [{"topic": "t", "partition": 0, "offset": 100}], "version": 1}. '
    "Records before the offset are deleted; -1 deletes all committed records.",
)
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def delete_records(bootstrap: str, path: str, command_config: str | None) -> int:
    """Delete the records of partitions before an offset. They cannot be restored."""
    before = read_offsets(path)
    defaults = {"client.id": "delete-records", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    has_failed = False
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        click.echo("Executing records delete operation")
        outcomes = {each: outcome(admin, each, offset) for each, offset in sorted(before.items())}
        click.echo("Records delete operation completed:")
        for partition, result in outcomes.items():
            if isinstance(result, int):
                click.echo(f"partition: {partition}\tlow_watermark: {result}")
            else:
                has_failed = True
                click.echo(f"partition: {partition}\terror: {result}")
    return 1 if has_failed else 0


def outcome(admin: Admin, partition: TopicPartition, offset: int) -> int | BrokerError:
    """The partition's first offset after the deletion, or the error if nothing was deleted."""
    try:
        return admin.delete_records({partition: offset})[partition]
    except BrokerError as error:
        return error


if __name__ == "__main__":
    run(delete_records)
