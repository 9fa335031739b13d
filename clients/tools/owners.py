"""scripts/owners.sh: show owners, past owners and waiters of resources, and force a release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click

from holdfast_log.clients.admin import Admin, OwnershipDescription
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.clients.tools.table import table
from holdfast_log.protocol.topic_partition import TopicPartition

_Columns = tuple[tuple[str, ...], tuple[str, ...]]
_LIST: _Columns = (
    ("GROUP", "RESOURCE", "GENERATION", "STATE", "OWNER-ID", "CLIENT-ID", "HOST"),
    ("group", "resource", "generation", "state", "ownerId", "clientId", "host"),
)
_DESCRIBE: _Columns = (
    (
        *_LIST[0], "ACCESS", "SINCE", "SESSION-LEFT-MS", "FENCE-OFFSET", "BOUND-CLIENT-ID", "SHARERS",
        "CLAIMS", "STEALS", "REFUSALS", "FENCED-APPENDS", "MISMATCHES",
    ),
    (
        *_LIST[1], "access", "since", "sessionLeftMs", "fenceOffset", "boundClientId", "sharers",
        "claims", "steals", "refusals", "fencedAppends", "mismatches",
    ),
)  # fmt: skip
_HISTORY: _Columns = (
    ("GROUP", "RESOURCE", "GENERATION", "START-OFFSET", "OWNER-ID", "SINCE", "UNTIL", "ENDED-BY"),
    ("group", "resource", "generation", "startOffset", "ownerId", "since", "until", "endedBy"),
)
_WAITERS: _Columns = (
    ("GROUP", "RESOURCE", "POSITION", "OWNER-ID", "CLIENT-ID", "HOST", "WAITS-MS-MORE"),
    ("group", "resource", "position", "ownerId", "clientId", "host", "waitsMsMore"),
)


@click.command("owners", context_settings=CONTEXT)
@bootstrap_option
@click.option("--list", "is_list", is_flag=True, help="List owners, one line each.")
@click.option("--describe", is_flag=True, help="Describe owners in full, with counters.")
@click.option(
    "--history", is_flag=True, help="Show past owners, with the generation and start offset of each."
)
@click.option("--waiters", is_flag=True, help="Show the waiting claimants, first in the queue first.")
@click.option(
    "--release",
    is_flag=True,
    help="Take a resource from its owner. The owner's connection is closed, and it cannot resume.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    help="Only this group; '' is the group of exclusive producers. May be repeated.",
)
@click.option("--topic", help="Only the partitions of this topic.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition of --topic.")
@click.option("--resource", "name", help="Only the named resource with this name.")
@click.option(
    "--generation", type=click.IntRange(0), help="With --release: only if this generation is in force."
)
@click.option("--comment", default="", help="With --release: the reason, for the broker's audit log.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the client.")
def owners(
    bootstrap: str,
    is_list: bool,
    describe: bool,
    history: bool,
    waiters: bool,
    release: bool,
    groups: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    name: str | None,
    generation: int | None,
    comment: str,
    as_json: bool,
    command_config: str | None,
) -> None:
    """Show the owners of partitions and named resources, or take a resource from its owner.

    \b
    owners.sh --bootstrap-server localhost:9092 --list
    owners.sh --bootstrap-server localhost:9092 --history --topic journal
    owners.sh --bootstrap-server localhost:9092 --release --group '' --topic journal \\
        --partition 0 --comment 'the machine has burnt down'

    Named resources belong to a group: to select one, give --group as well as --resource.
    """
    if [is_list, describe, history, waiters, release].count(True) != 1:
        raise click.UsageError("one of --list, --describe, --history, --waiters, --release is needed")
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if topic is not None and name is not None:
        raise click.UsageError("--topic and --resource exclude each other")
    if not release and (generation is not None or comment):
        raise click.UsageError("--generation and --comment need --release")
    defaults = {"client.id": "owners", "bootstrap.timeout.ms": FIRST_CONTACT_MS}
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        if release:
            take(admin, groups, wanted_resource(topic, partition, name), generation, comment)
            return
        found = [
            each
            for each in admin.describe_owners(groups or None, include_history=history)
            if is_wanted(each.resource, topic, partition, name)
        ]
    if is_list:
        show(_LIST, [_line(each) for each in found], as_json)
    elif describe:
        show(_DESCRIBE, [_all_of(each) for each in found], as_json)
    elif history:
        show(_HISTORY, [row for each in found for row in _past(each)], as_json)
    else:
        show(_WAITERS, [row for each in found for row in _queue(each)], as_json)


def wanted_resource(topic: str | None, partition: int | None, name: str | None) -> TopicPartition | str:
    """The one resource that the options name. Raises click.UsageError."""
    if name is not None:
        return name
    if topic is None or partition is None:
        raise click.UsageError("--release needs --topic and --partition, or --resource")
    return TopicPartition(topic, partition)


def is_wanted(
    resource: TopicPartition | str, topic: str | None, partition: int | None, name: str | None
) -> bool:
    """Whether the options select this resource."""
    if isinstance(resource, str):
        return topic is None and name in (None, resource)
    return name is None and topic in (None, resource.topic) and partition in (None, resource.partition)


def take(
    admin: Admin,
    groups: Sequence[str],
    resource: TopicPartition | str,
    generation: int | None,
    comment: str,
) -> None:
    """Take the resource from its owner, and print the owner's id."""
    if len(groups) != 1:
        raise click.UsageError("--release needs --group exactly once")
    in_force, owner_id = admin.force_release(
        groups[0], resource, generation=-1 if generation is None else generation, comment=comment
    )
    if owner_id is None:
        click.echo(f"{resource} had no owner; its generation stays {in_force}.")
    else:
        click.echo(f"Released {resource}, which {owner_id} owned with generation {in_force}.")


def show(columns: _Columns, rows: Iterable[Sequence[object]], as_json: bool) -> None:
    """Print rows under their titles, or as JSON objects."""
    titles, keys = columns
    if as_json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        click.echo(table(titles, rows))


def _line(each: OwnershipDescription) -> tuple[object, ...]:
    return (
        each.group,
        str(each.resource),
        each.generation,
        each.state.name,
        each.owner_id,
        each.client_id,
        each.host,
    )


def _all_of(each: OwnershipDescription) -> tuple[object, ...]:
    return (
        *_line(each),
        None if each.owner_id is None or isinstance(each.resource, str) else each.access.name,
        _time(each.since_ms),
        each.session_remaining_ms,
        each.fence_offset,
        each.bound_client_id,
        ",".join(each.sharers) or None,
        each.claims,
        each.steals,
        each.refusals,
        each.fenced_appends,
        each.mismatches,
    )


def _past(each: OwnershipDescription) -> Iterable[tuple[object, ...]]:
    for grant in each.history:
        is_over = grant.until_ms is not None
        yield (
            each.group,
            str(each.resource),
            grant.generation,
            grant.start_offset,
            grant.owner_id,
            _time(grant.since_ms),
            _time(grant.until_ms),
            grant.reason.name if is_over else None,
        )


def _queue(each: OwnershipDescription) -> Iterable[tuple[object, ...]]:
    for position, waiter in enumerate(each.waiters, 1):
        yield (
            each.group,
            str(each.resource),
            position,
            waiter.owner_id,
            waiter.client_id,
            waiter.host,
            waiter.remaining_ms,
        )


def _time(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    run(owners)
