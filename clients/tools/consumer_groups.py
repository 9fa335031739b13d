"""scripts/consumer-groups.sh: consumer groups, their members, their lag; reset and delete their offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import click

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.admin.groups import DEAD, GroupDescription
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    explained,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.group_reports import members_report, offsets_report, state_report
from holdfast_log.clients.tools.moments import parse_moment
from holdfast_log.clients.tools.offset_reset import (
    ResetTarget,
    new_offsets,
    parse_duration,
    parse_topics,
    read_csv,
    to_csv,
)
from holdfast_log.clients.tools.table import table
from holdfast_log.protocol.errors import BrokerError, GroupNotFoundError
from holdfast_log.protocol.topic_partition import TopicPartition

_ACTIONS = ("list", "describe", "delete", "delete-offsets", "reset-offsets")


@click.command("consumer-groups", context_settings=CONTEXT)
@bootstrap_option
@click.option("--list", "action", flag_value="list", help="List the names of all groups.")
@click.option(
    "--describe",
    "action",
    flag_value="describe",
    help="Describe groups: committed offsets and lag of each partition.",
)
@click.option("--delete", "action", flag_value="delete", help="Delete groups that have no members.")
@click.option(
    "--delete-offsets",
    "action",
    flag_value="delete-offsets",
    help="Delete a group's offsets of topics that no member subscribes to.",
)
@click.option(
    "--reset-offsets",
    "action",
    flag_value="reset-offsets",
    help="Reset the offsets of groups without members. Only shows the plan unless --execute is given.",
)
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Consumer group to apply to. May be repeated."
)
@click.option("--all-groups", is_flag=True, help="Apply to all consumer groups.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions. May be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Apply to all topics for which the group has offsets.")
@click.option(
    "--offsets",
    "view",
    flag_value="offsets",
    help="With --describe: partitions, offsets and lag (the default).",
)
@click.option("--members", "view", flag_value="members", help="With --describe: the members of the groups.")
@click.option(
    "--state",
    "state",
    is_flag=False,
    flag_value="*",
    metavar="[STATE,STATE]",
    help="With --describe: show the groups' state. With --list: show states, only of groups in those given.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="*",
    metavar="[TYPE,TYPE]",
    help="With --list: show types (classic, consumer, managed), only of groups of those given.",
)
@click.option(
    "--verbose",
    is_flag=True,
    help="With --members: also the partitions of each member. With --members and --state: also the epochs of "
    "groups of KIP-848.",
)
@click.option("--to-earliest", is_flag=True, help="Reset offsets to the earliest offset.")
@click.option("--to-latest", is_flag=True, help="Reset offsets to the latest offset.")
@click.option("--to-current", is_flag=True, help="Reset offsets to the current committed offset.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="Reset offsets to the first record at or after this time (UTC).",
)
@click.option(
    "--by-duration",
    metavar="PnDTnHnMnS",
    help="Reset offsets to the first record within this duration before now.",
)
@click.option(
    "--shift-by", type=int, metavar="N", help="Shift offsets by N, forward or (if negative) backward."
)
@click.option("--to-offset", type=click.IntRange(0), help="Reset offsets to this offset.")
@click.option(
    "--from-file", metavar="FILE", help="Reset offsets to the values in a CSV file written by --export."
)
@click.option("--dry-run", is_flag=True, help="Only show the results of the reset (the default).")
@click.option("--execute", is_flag=True, help="Execute the reset.")
@click.option("--export", is_flag=True, help="Print the offsets of the reset as CSV, for --from-file.")
@json_option
@click.option(
    "--timeout", "timeout_ms", type=click.IntRange(1), default=15_000, show_default=True, metavar="MS",
    help="Maximum time in ms that each operation waits for brokers.",
)  # fmt: skip
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def consumer_groups(
    bootstrap: str,
    action: str | None,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    view: str | None,
    state: str | None,
    types: str | None,
    verbose: bool,
    as_json: bool,
    timeout_ms: int,
    command_config: str | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    **target: Any,
) -> None:
    """List, describe and delete consumer groups, and reset their committed offsets.

    \b
    consumer-groups.sh --bootstrap-server localhost:9092 --list --state
    consumer-groups.sh --bootstrap-server localhost:9092 --describe --group billing
    consumer-groups.sh --bootstrap-server localhost:9092 --reset-offsets --group billing \\
        --topic orders:0,1 --to-datetime 2026-01-01T00:00:00 --execute
    """
    if action is None:
        raise click.UsageError(f"one of {', '.join('--' + name for name in _ACTIONS)} is needed")
    if action != "list" and bool(groups) == all_groups:
        raise click.UsageError(f"--{action} needs either --group or --all-groups")
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other")
    where_to = _target(target) if action == "reset-offsets" else None
    if action == "delete-offsets" and not topics:
        raise click.UsageError("--delete-offsets needs --topic")
    if action == "reset-offsets" and not target["from_file"] and bool(topics) == all_topics:
        raise click.UsageError("--reset-offsets needs either --topic or --all-topics")
    defaults = {
        "default.api.timeout.ms": timeout_ms,
        "bootstrap.timeout.ms": min(timeout_ms, FIRST_CONTACT_MS),
        "client.id": "consumer-groups",
    }
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        if action == "list":
            list_groups(admin, state, types, as_json)
            return
        names = [row.group_id for row in admin.list_groups()] if all_groups else list(dict.fromkeys(groups))
        match action:
            case "describe":
                wanted_view = "state" if state is not None else view or "offsets"
                describe(admin, names, wanted_view, verbose, as_json)
            case "delete":
                delete(admin, names)
            case "delete-offsets":
                for name in names:
                    delete_offsets(admin, name, parse_topics(topics), as_json)
            case "reset-offsets":
                assert where_to is not None
                plans = plan_reset(admin, names, where_to, None if all_topics else parse_topics(topics))
                reset(admin, plans, execute=execute, export=export, as_json=as_json, is_quiet=dry_run)


def list_groups(admin: Admin, state: str | None, types: str | None, as_json: bool) -> None:
    """Print the names of groups; with `state`, their states too, of groups in those states only."""
    found = admin.list_groups(_named(state), _named(types))
    titles = ["GROUP", *(["TYPE"] if types else []), *(["STATE"] if state else [])]
    if as_json:
        print_json([{"group": g.group_id, "type": g.type, "state": g.state} for g in found])
    elif len(titles) == 1:
        for group in found:
            click.echo(group.group_id)
    else:
        rows = [[g.group_id, *([g.type] if types else []), *([g.state] if state else [])] for g in found]
        click.echo(table(titles, rows))


def _named(choice: str | None) -> list[str]:
    """The names in the value of --state or --type; none if the option is missing or has no value."""
    return [] if choice in (None, "*") else [name.strip() for name in (choice or "").split(",")]


def describe(admin: Admin, names: list[str], view: str, verbose: bool, as_json: bool) -> None:
    """Print the offsets, the members or the state of groups. Raises click.ClickException after printing, if
    some groups do not exist."""
    found = admin.describe_groups(names)
    missing = [name for name, group in found.items() if group.state == DEAD]
    present = {name: group for name, group in found.items() if group.state != DEAD}
    for group in present.values():
        _remark(group)
    details = admin.describe_consumer_groups(present) if verbose and view != "offsets" else {}
    match view:
        case "members":
            report = members_report(present.values(), verbose, details)
        case "state":
            report = state_report(present.values(), details)
        case _:
            report = offsets_report(admin, present.values())
    if as_json:
        print_json(report.objects())
    elif report.rows:
        click.echo("\n" + table(report.titles, report.rows))
    if missing:
        raise _missing(missing)


def _remark(group: GroupDescription) -> None:
    """Warn on standard error about an empty or rebalancing group."""
    if group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)


def _missing(names: Iterable[str]) -> click.ClickException:
    return click.ClickException("\n".join(f"Consumer group '{name}' does not exist." for name in names))


def delete(admin: Admin, names: list[str]) -> None:
    """Delete groups. Raises click.ClickException with all failures at the end."""
    failures: dict[str, BrokerError] = {}
    for name in names:
        try:
            admin.delete_groups([name])
        except BrokerError as error:
            failures[name] = error
    deleted = ", ".join(f"'{name}'" for name in names if name not in failures)
    if deleted:
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
    if failures:
        lines = [
            f"* Group '{name}' could not be deleted due to: {explained(error)}"
            for name, error in failures.items()
        ]
        raise click.ClickException("\n".join(["Deletion of some consumer groups failed:", *lines]))


def delete_offsets(admin: Admin, name: str, topics: dict[str, list[int] | None], as_json: bool) -> None:
    """Delete a group's offsets, and print the result of each partition."""
    rows: list[tuple[str, object, str]] = []
    failure: BrokerError | None = None
    for partition in _partitions(admin, topics):
        status = "Successful"
        try:
            admin.delete_group_offsets(name, [partition])
        except GroupNotFoundError:
            raise _missing([name]) from None
        except BrokerError as error:
            failure, status = error, f"Error: {error.code.message}"
        rows.append((partition.topic, partition.partition, status))
    if as_json:
        print_json([dict(zip(("topic", "partition", "status"), row, strict=True)) for row in rows])
    else:
        click.echo("\n" + table(("TOPIC", "PARTITION", "STATUS"), rows))
    if failure is not None:
        raise failure


def _partitions(admin: Admin, topics: dict[str, list[int] | None]) -> list[TopicPartition]:
    """The partitions that --topic selects. Raises UnknownTopicOrPartitionError, click.ClickException."""
    chosen = []
    for topic in admin.describe_topics(topics):
        numbers = [row.partition for row in topic.partitions]
        wanted = topics[topic.name]
        for number in wanted or ():
            if number not in numbers:
                raise click.ClickException(f"{topic.name} has the partitions {numbers[0]} to {numbers[-1]}")
        chosen += [TopicPartition(topic.name, number) for number in (numbers if wanted is None else wanted)]
    return chosen


def _target(given: dict[str, Any]) -> ResetTarget:
    """The target of the reset. Raises click.UsageError unless exactly one option names it."""
    names = [name for name, value in given.items() if value not in (None, False)]
    if len(names) != 1:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise click.UsageError(f"--reset-offsets needs exactly one of {flags}")
    moment_ms = None
    if given["to_datetime"] is not None:
        moment_ms = parse_moment(given["to_datetime"], "--to-datetime")
    elif given["by_duration"] is not None:
        moment_ms = int(time.time() * 1000) - parse_duration(given["by_duration"])
    return ResetTarget(
        given["to_earliest"],
        given["to_latest"],
        given["to_current"],
        moment_ms,
        given["shift_by"],
        given["to_offset"],
        given["from_file"],
    )


def plan_reset(
    admin: Admin, names: list[str], target: ResetTarget, topics: dict[str, list[int] | None] | None
) -> dict[str, dict[TopicPartition, int]]:
    """The new offsets of each group; with `topics` None, for all partitions with a committed offset."""
    if target.file is not None:
        return read_csv(target.file, names)
    plans = {}
    for name in names:
        committed = {partition: stored.offset for partition, stored in admin.list_group_offsets(name).items()}
        partitions = sorted(committed) if topics is None else _partitions(admin, topics)
        plans[name] = new_offsets(admin, target, partitions, committed)
    return plans


def reset(
    admin: Admin,
    plans: dict[str, dict[TopicPartition, int]],
    *,
    execute: bool,
    export: bool,
    as_json: bool,
    is_quiet: bool,
) -> None:
    """Print plans, and execute them if asked. Raises GroupNotEmptyError and others."""
    if execute:
        for name, offsets in plans.items():
            admin.alter_group_offsets(name, offsets)
    elif not is_quiet:
        click.echo("WARN: No offsets were changed, because --execute is missing.", err=True)
    rows = [
        (name, topic, number, offset)
        for name, offsets in plans.items()
        for (topic, number), offset in sorted(offsets.items())
    ]
    if export:
        click.echo(to_csv(plans), nl=False)
    elif as_json:
        keys = ("group", "topic", "partition", "newOffset")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        click.echo("\n" + table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows))


if __name__ == "__main__":
    run(consumer_groups)
