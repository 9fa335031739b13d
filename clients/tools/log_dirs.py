"""scripts/log-dirs.sh: the sizes of replicas in the brokers' log directories."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

from holdfast_log.clients.admin import Admin, LogDir
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)


@click.command("log-dirs", context_settings=CONTEXT)
@bootstrap_option
@click.option("--describe", is_flag=True, required=True, help="Show the log directories.")
@click.option("--broker-list", metavar="IDS", help="Only these brokers, separated by commas.")
@click.option("--topic-list", metavar="TOPICS", help="Only these topics, separated by commas.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def log_dirs(
    bootstrap: str,
    describe: bool,
    broker_list: str | None,
    topic_list: str | None,
    as_json: bool,
    command_config: str | None,
) -> int:
    """Show the log directories of brokers and the size of each replica there, as JSON.

    With --json it is indented, as other commands print it, without in one line, as Kafka's tool prints it.
    Messages that are not JSON go to standard error, so that the output can be piped into another program.
    """
    nodes = None if broker_list is None else broker_ids(broker_list)
    topics = None if topic_list is None else [name for name in topic_list.split(",") if name]
    defaults = {"client.id": "log-dirs", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        alive = {node.id for node in admin.describe_cluster().nodes}
        asked = sorted(alive) if nodes is None else nodes
        missing = [node for node in asked if node not in alive]
        if missing:
            raise click.ClickException(
                f"brokers {numbers(missing)} do not exist or are down; live brokers: {numbers(sorted(alive))}"
            )
        click.echo("Querying brokers for log directories information", err=True)
        found = admin.describe_log_dirs(asked, topics)
    click.echo(f"Received log directory information from brokers {numbers(asked)}", err=True)
    if as_json:
        print_json(as_object(found))
    else:
        click.echo(json.dumps(as_object(found), separators=(",", ":")))
    return 1 if any(each.error for each in found) else 0


def broker_ids(text: str) -> list[int]:
    """Ids separated by commas. Raises click.UsageError."""
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {text}: expected broker ids separated by commas") from None


def numbers(nodes: Iterable[int]) -> str:
    return ",".join(str(node) for node in nodes)


def as_object(found: Iterable[LogDir]) -> dict[str, Any]:
    """Log directories as the JSON object that Kafka's tool prints."""
    brokers: dict[int, list[dict[str, Any]]] = {}
    for each in found:
        brokers.setdefault(each.node, []).append(
            {
                "logDir": each.path,
                "error": None if each.error is None else str(each.error),
                "partitions": [
                    {
                        "partition": str(replica.partition),
                        "size": replica.size_bytes,
                        "offsetLag": replica.offset_lag,
                        "isFuture": replica.is_future,
                    }
                    for replica in sorted(each.replicas, key=lambda replica: replica.partition)
                ],
            }
        )
    return {"version": 1, "brokers": [{"broker": node, "logDirs": rows} for node, rows in brokers.items()]}


if __name__ == "__main__":
    run(log_dirs)
