"""scripts/configs.sh: show and change the settings of topics and brokers, and the quotas of clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from holdfast_log.clients.admin import (
    Admin,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from holdfast_log.clients.settings import closest_name, read_properties
from holdfast_log.clients.tools.client_quotas import (
    DEFAULT_NAME,
    ENTITY_TYPES,
    alter_quotas,
    describe_quotas,
    quota_names,
)
from holdfast_log.clients.tools.command import (
    CONTEXT,
    FIRST_CONTACT_MS,
    bootstrap_option,
    json_option,
    print_json,
    properties,
    run,
)
from holdfast_log.protocol.configs import ConfigOperation, ResourceType

ALL_BROKERS = ""
"""Resource name of the cluster-wide broker defaults, used by each broker without a value of its own."""
_PATIENCE_MS = 15_000
_NAMES = "configs.entity.names"
_TYPES = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
}
_DYNAMIC = (
    ConfigSource.DYNAMIC_TOPIC,
    ConfigSource.DYNAMIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
    ConfigSource.DYNAMIC_BROKER_LOGGER,
)


def _collect(context: click.Context, parameter: click.Parameter, value: Sequence[str] | int) -> None:
    """Append names and defaults of entities to one list, in the order of the command line."""
    found = context.meta.setdefault(_NAMES, [])
    found += [DEFAULT_NAME] * value if isinstance(value, int) else value


@click.command(context_settings=CONTEXT)
@bootstrap_option
@click.option("--describe", "action", flag_value="describe", help="Show settings.")
@click.option("--alter", "action", flag_value="alter", help="Change settings.")
@click.option(
    "--entity-type",
    "entity_types",
    type=click.Choice([*_TYPES, *ENTITY_TYPES]),
    multiple=True,
    help="Type of the entity. Users and clients may be given together.",
)
@click.option(
    "--entity-name",
    multiple=True,
    expose_value=False,
    callback=_collect,
    help="Name of a topic, user or client, id of a broker, or IP address: one for each type, in order.",
)
@click.option(
    "--entity-default",
    count=True,
    expose_value=False,
    callback=_collect,
    help="Instead of a name: all brokers, or all that have no quota of their own.",
)
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--broker-logger", help="Short for --entity-type broker-loggers --entity-name.")
@click.option("--user", help="Short for --entity-type users --entity-name.")
@click.option("--user-defaults", is_flag=True, help="Short for --entity-type users --entity-default.")
@click.option("--client", help="Short for --entity-type clients --entity-name.")
@click.option("--client-defaults", is_flag=True, help="Short for --entity-type clients --entity-default.")
@click.option("--ip", help="Short for --entity-type ips --entity-name.")
@click.option("--ip-defaults", is_flag=True, help="Short for --entity-type ips --entity-default.")
@click.option(
    "--all", "show_all", is_flag=True, help="With --describe: all settings, default values included."
)
@click.option(
    "--add-config", metavar="K=V,K=[V,V]", help="Settings to set. Brackets group the values of a list."
)
@click.option("--add-config-file", metavar="FILE", help="A properties file of settings to set.")
@click.option("--delete-config", metavar="K,K", help="Settings to reset to their defaults.")
@click.option("--force", is_flag=True, expose_value=False, help="No effect: nothing is asked.")
@json_option
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def configs(
    bootstrap: str,
    action: str | None,
    entity_types: tuple[str, ...],
    show_all: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
    as_json: bool,
    command_config: str | None,
    **short: str | bool | None,
) -> None:
    """Show or change the settings of topics and brokers, quotas of users, clients and IP addresses, and
    passwords of users.

    \b
    configs.sh --bootstrap-server localhost:9092 --topic orders --alter \\
        --add-config single.writer=required
    configs.sh --bootstrap-server localhost:9092 --topic orders --describe --all
    configs.sh --bootstrap-server localhost:9092 --client loader --alter \\
        --add-config producer_byte_rate=1048576

    Changes take effect at once, on every broker concerned. Those of broker-loggers set levels of one
    broker's log until it stops: root=WARN,holdfast_log.broker.replication=DEBUG. docs/settings.md marks the
    broker settings that can be changed while brokers run, for one broker or for all; the others are changed
    in the broker's file.
    Quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; of an IP
    address connection_creation_rate. They apply to each broker separately.
    A user's password for SCRAM: SCRAM-SHA-512=[iterations=8192,password=...]; brokers get what is derived
    from it. To keep it out of the command line, put it into a file for --add-config-file.
    """
    if action is None:
        raise click.UsageError("one of --describe, --alter is needed")
    if as_json and action != "describe":
        raise click.UsageError("--json goes with --describe")
    kinds, names = _entities(entity_types, click.get_current_context().meta.get(_NAMES, []), short)
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "configs",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    is_quota = kinds[0] in ENTITY_TYPES
    wanted = quota_names(kinds, names) if is_quota else {}
    kind, name = (None, None) if is_quota else _resource(kinds, names)
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        if action == "describe":
            if kind is None:
                describe_quotas(admin, wanted, as_json=as_json)
            else:
                describe(admin, kind, name, show_all, as_json=as_json)
            return
        added, deleted = _wanted(add_config, add_config_file), _unwanted(delete_config)
        if kind is None:
            alter_quotas(admin, wanted, added, deleted)
        elif name is None:
            raise click.UsageError("--alter needs --entity-name, or --entity-default for all brokers")
        else:
            alter(admin, ConfigResource(kind, name), _changes(added, deleted))


def describe(
    admin: Admin, kind: ResourceType, name: str | None, show_all: bool, *, as_json: bool = False
) -> None:
    """Print the settings of one topic or broker, or of all if `name` is None."""
    if name is not None:
        names = [name]
    elif kind is ResourceType.TOPIC:
        names = admin.list_topics()
    else:
        names = [str(node.id) for node in admin.describe_cluster().nodes]
        if kind is ResourceType.BROKER:
            names.insert(0, ALL_BROKERS)
    found = admin.describe_configs([ConfigResource(kind, each) for each in names])
    chosen = {
        resource: [
            entry
            for entry in sorted(entries, key=lambda entry: entry.name)
            if show_all or entry.source in _DYNAMIC
        ]
        for resource, entries in found.items()
    }
    if as_json:
        print_json([as_object(resource, entries) for resource, entries in chosen.items()])
        return
    for resource, entries in chosen.items():
        click.echo(f"{'All' if show_all else 'Dynamic'} configs for {resource} are:")
        for entry in entries:
            click.echo(entry_line(entry))


def as_object(resource: ConfigResource, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    """What --describe --json prints for one topic or broker.

    The name of the defaults of all brokers is null.
    """
    return {
        "type": resource.type.name.lower(),
        "name": resource.name or None,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "isSensitive": entry.is_sensitive,
                "source": entry.source.name,
            }
            for entry in entries
        ],
    }


def entry_line(entry: ConfigEntry) -> str:
    """The line that --describe prints for one setting."""
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={entry.value} sensitive={sensitive} source={entry.source.name}"


def alter(admin: Admin, resource: ConfigResource, changes: list[ConfigChange]) -> None:
    """Make the changes and print a confirmation. Raises click.UsageError if there are none."""
    if not changes:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    if resource.type is ResourceType.BROKER:
        _warn_of_unknown(admin, resource, [change.name for change in changes if change.value is not None])
    admin.alter_configs({resource: changes})
    click.echo(f"Completed updating config for {resource}.")


def _warn_of_unknown(admin: Admin, broker: ConfigResource, names: Sequence[str]) -> None:
    """Brokers take settings that they do not have, as Kafka's do: the user should know of a misspelt name."""
    live = [str(node.id) for node in admin.describe_cluster().nodes]
    asked = ConfigResource(ResourceType.BROKER, broker.name if broker.name in live else live[0])
    known = {entry.name: entry for entry in admin.describe_configs([asked])[asked]}
    for name in names:
        if name not in known:
            closest = closest_name(name, known)
            hint = f"; did you mean {closest}?" if closest else ""
            click.echo(f"Warning: brokers have no setting {name}, so it has no effect{hint}", err=True)


_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}


def _entities(
    kinds: Sequence[str], names: Sequence[str], short: Mapping[str, str | bool | None]
) -> tuple[list[str], list[str]]:
    """The types of the entity and its names, the short options included."""
    short_kinds, short_names = [], []
    for option, kind in _SHORT.items():
        if short[option] is not None:
            short_kinds.append(kind)
            short_names.append(str(short[option]))
        elif short.get(f"{option}_defaults"):
            short_kinds.append(kind)
            short_names.append(DEFAULT_NAME)
    if kinds and short_kinds:
        raise click.UsageError("--entity-type cannot be combined with the short options")
    if not kinds and not short_kinds:
        raise click.UsageError("one of --entity-type, --topic, --broker, --user, --client, --ip is needed")
    if any(kind in _TYPES for kind in (*kinds, *short_kinds)) and len(kinds) + len(short_kinds) > 1:
        raise click.UsageError("only users and clients can be given together")
    return [*kinds, *short_kinds], [*names, *short_names]


def _resource(kinds: Sequence[str], names: Sequence[str]) -> tuple[ResourceType, str | None]:
    """The topic or broker; None for all. Raises click.UsageError."""
    kind = _TYPES[kinds[0]]
    if len(names) > 1:
        raise click.UsageError("--entity-name and --entity-default exclude each other")
    name = names[0] if names else None
    if kind is ResourceType.TOPIC and name == DEFAULT_NAME:
        raise click.UsageError("topics have no --entity-default: their defaults are settings of brokers")
    if kind is ResourceType.BROKER_LOGGER and name == DEFAULT_NAME:
        raise click.UsageError("broker-loggers have no --entity-default: each broker has its own levels")
    if kind is not ResourceType.TOPIC and name and not name.isdigit():
        raise click.UsageError(f"{name!r} is not the id of a broker")
    return kind, name


def _wanted(added: str | None, path: str | None) -> dict[str, str]:
    """The settings to set."""
    return (dict(read_properties(path)) if path is not None else {}) | assignments(added or "")


def _unwanted(deleted: str | None) -> list[str]:
    """The settings to reset."""
    return [name.strip() for name in (deleted or "").split(",") if name.strip()]


def _changes(added: Mapping[str, str], deleted: Sequence[str]) -> list[ConfigChange]:
    return [
        *(ConfigChange(name, value) for name, value in added.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in deleted),
    ]


def assignments(text: str) -> dict[str, str]:
    """`k=v,k=[v,v]` as a mapping. Raises click.UsageError."""
    found = {}
    rest = text.strip()
    while rest:
        match = re.match(r"\s*([^=,\s]+)\s*=\s*(?:\[([^\]]*)\]|([^,]*))\s*(?:,|$)", rest)
        if match is None:
            raise click.UsageError(f"--add-config {text!r} is not of the form key=value,key=[value,value]")
        name, bracketed, plain = match.groups()
        found[name] = plain.strip() if bracketed is None else bracketed
        rest = rest[match.end() :]
    return found


if __name__ == "__main__":
    run(configs)
