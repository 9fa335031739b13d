"""scripts/leader-election.sh: elect preferred leaders, or unclean leaders."""

from __future__ import annotations

import click

from holdfast_log.clients.admin import Admin, ElectionType
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    explained,
    properties,
    run,
)
from holdfast_log.clients.tools.partitions_file import joined, read_partitions
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_PATIENCE_MS = 30_000


@click.command("leader-election", context_settings=CONTEXT)
@bootstrap_option
@click.option(
    "--election-type",
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    required=True,
    help="preferred: elect the first replica if it is in sync. unclean: elect any live replica of a "
    "partition without a leader; acknowledged records may be lost.",
)
@click.option("--topic", help="The topic of --partition.")
@click.option("--partition", type=click.IntRange(0), help="The partition's number.")
@click.option(
    "--path-to-json-file",
    "path",
    metavar="FILE",
    help='Partitions in a file: {"partitions": [{"topic": "t", "partition": 0}]}',
)
@click.option("--all-topic-partitions", "everything", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--admin.config", "command_config", metavar="FILE", help="Properties file with settings of the client."
)
def leader_election(
    bootstrap: str,
    election_type: str,
    topic: str | None,
    partition: int | None,
    path: str | None,
    everything: bool,
    command_config: str | None,
) -> int:
    """Elect leaders of partitions."""
    if [topic is not None, path is not None, everything].count(True) != 1:
        raise click.UsageError("one of --topic, --path-to-json-file, --all-topic-partitions is needed")
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition go together")
    wanted = None
    if topic is not None and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    elif path is not None:
        wanted = read_partitions(path)
    election = ElectionType[election_type.upper()]
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "leader-election",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        return report(election, admin.elect_leaders(election, wanted))


def report(election: ElectionType, results: dict[TopicPartition, BrokerError | None]) -> int:
    """Print the results of an election, and return the exit status."""
    elected = [partition for partition, error in results.items() if error is None]
    failed: dict[TopicPartition, BrokerError] = {}
    needless = []
    for partition, error in results.items():
        if error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
            needless.append(partition)
        elif error is not None:
            failed[partition] = error
    if elected:
        click.echo(
            f"Successfully completed leader election ({election.name}) for partitions {joined(elected)}"
        )
    if needless:
        click.echo(f"Valid replica already elected for partitions {joined(needless)}")
    if not results:
        click.echo("No partition needed an election.")
    for partition, error in failed.items():
        click.echo(
            f"Error completing leader election ({election.name}) for partition {partition}: "
            f"{explained(error)}",
            err=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    run(leader_election)
