"""scripts/acls.sh: add, remove and list access control lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from holdfast_log.clients.admin import AclBinding, AclEntry, AclFilter, Admin, ResourcePattern
from holdfast_log.clients.tools.acl_choice import AclChoice, bindings, checked_principal, exact_filters
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)

_PATIENCE_MS = 15_000
_PATTERNS = ("literal", "prefixed", "any", "match")


@click.command(context_settings=CONTEXT)
@bootstrap_option
@click.option("--add", "action", flag_value="add", help="Add entries.")
@click.option("--remove", "action", flag_value="remove", help="Remove entries: those named, or all.")
@click.option("--list", "action", flag_value="list", help="List the entries of the resources named, or all.")
@click.option("--topic", multiple=True, help="A topic; '*' for all. May be repeated, as may the next ones.")
@click.option("--group", multiple=True, help="A consumer group; '*' for all.")
@click.option("--transactional-id", multiple=True, help="A transactional id; '*' for all.")
@click.option("--delegation-token", multiple=True, help="A delegation token; '*' for all.")
@click.option("--user-principal", multiple=True, help="A user as a resource, for tokens; '*' for all.")
@click.option("--cluster", is_flag=True, help="The cluster itself.")
@click.option(
    "--resource-pattern-type",
    type=click.Choice(_PATTERNS, case_sensitive=False),
    default="literal",
    show_default=True,
    help="How the names given stand for resources: as they are, or as prefixes. For --list and --remove also "
    "any, and match: whatever applies to the resource of that name.",
)
@click.option("--operation", multiple=True, metavar="NAME", help="Read, Write, DescribeConfigs, ... [All]")
@click.option("--allow-principal", multiple=True, metavar="TYPE:NAME", help="Who is allowed. 'User:*': all.")
@click.option("--allow-host", multiple=True, metavar="ADDRESS", help="From where they are allowed. [all]")
@click.option("--deny-principal", multiple=True, metavar="TYPE:NAME", help="Who is denied, above all else.")
@click.option("--deny-host", multiple=True, metavar="ADDRESS", help="From where they are denied. [all]")
@click.option("--producer", is_flag=True, help="What a producer needs: Write, Describe, Create on topics.")
@click.option(
    "--consumer", is_flag=True, help="What a consumer needs: Read, Describe on topics, Read on the group."
)
@click.option("--idempotent", is_flag=True, help="With --producer: IdempotentWrite on the cluster, too.")
@click.option("--principal", "principals", multiple=True, help="With --list: only entries of this principal.")
@click.option("--force", is_flag=True, help="With --remove: do not ask.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def acls(
    bootstrap: str,
    action: str | None,
    principals: tuple[str, ...],
    force: bool,
    as_json: bool,
    command_config: str | None,
    **chosen: Any,
) -> None:
    """Add, remove or list access control lists.

    \b
    acls.sh --bootstrap-server localhost:9092 --add --allow-principal User:anna --producer --topic orders
    acls.sh --bootstrap-server localhost:9092 --add --allow-principal User:bert --consumer \\
        --topic orders --group bert- --resource-pattern-type prefixed
    acls.sh --bootstrap-server localhost:9092 --list --topic orders --resource-pattern-type match

    Brokers need an authorizer (authorizer.class.name). docs/security.md explains how they decide.
    """
    if action is None:
        raise click.UsageError("one of --add, --remove, --list is needed")
    if action != "list" and (as_json or principals):
        raise click.UsageError("--json and --principal go with --list")
    choice = AclChoice(**chosen)
    wanted = [checked_principal(each) for each in principals]
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "acls",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    to_add = choice.to_add() if action == "add" else {}
    to_remove = choice.to_remove() if action == "remove" else {}
    to_list = choice.to_list() if action == "list" else []
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        if action == "add":
            add(admin, to_add)
        elif action == "remove":
            remove(admin, to_remove, is_forced=force)
        else:
            show(found(admin, to_list, wanted), as_json=as_json)


def add(admin: Admin, wanted: Mapping[ResourcePattern, Sequence[AclEntry]]) -> None:
    """Add entries, and print them."""
    for pattern, entries in wanted.items():
        click.echo(f"Adding ACLs for resource `{_kafkas(pattern)}`: \n{_lines(entries)}\n")
        admin.create_acls(bindings(entries, pattern))


def remove(admin: Admin, wanted: Mapping[AclFilter, Sequence[AclEntry]], *, is_forced: bool) -> None:
    """Remove entries, and print those that there were. Asks before each resource unless `is_forced`."""
    for each, entries in wanted.items():
        of_which = f"{len(entries)} entries" if entries else "all entries"
        resource = f"{each.resource.name} {each.pattern.name}:{each.name}"
        if not is_forced and not click.confirm(f"{_lines(entries)}Remove {of_which} of {resource}?"):
            continue
        removed = admin.delete_acls(exact_filters(each, entries))
        click.echo(f"Removed {len(removed)} entries of {resource}:\n{_lines(b.entry for b in removed)}")


def found(admin: Admin, filters: Iterable[AclFilter], principals: Sequence[str]) -> list[AclBinding]:
    """What the filters select, each entry once; only entries of these principals, if there are any."""
    selected = dict.fromkeys(each for wanted in filters for each in admin.describe_acls(wanted))
    return [each for each in selected if not principals or each.entry.principal in principals]


def show(listed: Iterable[AclBinding], *, as_json: bool) -> None:
    """Print entries by their resource, as Kafka's tool does, or as JSON."""
    if as_json:
        print_json([_as_object(each) for each in listed])
        return
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for each in listed:
        by_pattern.setdefault(each.pattern, []).append(each.entry)
    for pattern, entries in by_pattern.items():
        click.echo(f"Current ACLs for resource `{_kafkas(pattern)}`: \n{_lines(entries)}")


def _kafkas(pattern: ResourcePattern) -> str:
    """A pattern as Kafka's tool prints it."""
    kind, name, type_ = pattern.resource.name, pattern.name, pattern.pattern.name
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={type_})"


def _lines(entries: Iterable[AclEntry]) -> str:
    return "".join(
        f"\t(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})\n"
        for entry in entries
    )


def _as_object(binding: AclBinding) -> dict[str, str]:
    pattern, entry = binding.pattern, binding.entry
    return {
        "resourceType": pattern.resource.name,
        "name": pattern.name,
        "patternType": pattern.pattern.name,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name,
        "permissionType": entry.permission.name,
    }


if __name__ == "__main__":
    run(acls)
