"""scripts/configs.sh: show and change the settings of topics and brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from clients.admin import (
    Admin,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from clients.settings import read_properties
from clients.tools.command import CONTEXT, FIRST_CONTACT_MS, bootstrap_option, properties, run
from protocol.configs import WITHOUT_EFFECT, ConfigOperation, ResourceType

ALL_BROKERS = ""
"""Resource name of the cluster-wide broker defaults, used by each broker without a value of its own."""
_PATIENCE_MS = 15_000
_TYPES = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER}
_DYNAMIC = (ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)


@click.command(context_settings=CONTEXT)
@bootstrap_option
@click.option("--describe", "action", flag_value="describe", help="Show settings.")
@click.option("--alter", "action", flag_value="alter", help="Change settings.")
@click.option("--entity-type", type=click.Choice(list(_TYPES)), help="Type of the entity: topics or brokers.")
@click.option("--entity-name", help="The topic's name or the broker's id.")
@click.option("--entity-default", is_flag=True, help="The defaults of all brokers, instead of one broker.")
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option(
    "--all", "show_all", is_flag=True, help="With --describe: all settings, default values included."
)
@click.option(
    "--add-config", metavar="K=V,K=[V,V]", help="Settings to set. Brackets group the values of a list."
)
@click.option("--add-config-file", metavar="FILE", help="A properties file of settings to set.")
@click.option("--delete-config", metavar="K,K", help="Settings to reset to their defaults.")
@click.option("--command-config", metavar="FILE", help="Properties file with settings of the admin client.")
def configs(
    bootstrap: str,
    action: str | None,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    show_all: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
    command_config: str | None,
) -> None:
    """Show or change the settings of topics and brokers.

    \b
    configs.sh --bootstrap-server localhost:9092 --topic orders --alter \\
        --add-config single.writer=required
    configs.sh --bootstrap-server localhost:9092 --topic orders --describe --all

    Changes take effect at once, on every broker concerned. docs/settings.md marks the broker settings that
    can be changed while brokers run, for one broker or for all; the others are changed in the broker's file.
    """
    if action is None:
        raise click.UsageError("one of --describe, --alter is needed")
    if broker_defaults:
        entity_type, entity_default = "brokers", True
    kind, name = _entity(entity_type, entity_name, topic, broker)
    if entity_default:
        if kind is not ResourceType.BROKER or name is not None:
            raise click.UsageError("--entity-default applies to brokers only, and excludes a name")
        name = ALL_BROKERS
    defaults = {
        "default.api.timeout.ms": _PATIENCE_MS,
        "client.id": "configs",
        "bootstrap.timeout.ms": FIRST_CONTACT_MS,
    }
    with Admin(properties(bootstrap, command_config, (), defaults)) as admin:
        if action == "describe":
            describe(admin, kind, name, show_all)
        elif name is None:
            raise click.UsageError("--alter needs --entity-name, or --entity-default for all brokers")
        else:
            changes = _changes(add_config, add_config_file, delete_config)
            alter(admin, ConfigResource(kind, name), changes)


def describe(admin: Admin, kind: ResourceType, name: str | None, show_all: bool) -> None:
    """Print the settings of one topic or broker, or of all if `name` is None."""
    if name is not None:
        names = [name]
    elif kind is ResourceType.TOPIC:
        names = admin.list_topics()
    else:
        names = [ALL_BROKERS, *(str(node.id) for node in admin.describe_cluster().nodes)]
    found = admin.describe_configs([ConfigResource(kind, each) for each in names])
    for resource, entries in found.items():
        click.echo(f"{'All' if show_all else 'Dynamic'} configs for {resource} are:")
        for entry in sorted(entries, key=lambda entry: entry.name):
            if show_all or entry.source in _DYNAMIC:
                click.echo(entry_line(entry))


def entry_line(entry: ConfigEntry) -> str:
    """The line that --describe prints for one setting."""
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={entry.value} sensitive={sensitive} source={entry.source.name}"


def alter(admin: Admin, resource: ConfigResource, changes: list[ConfigChange]) -> None:
    """Make the changes and print a confirmation. Raises click.UsageError if there are none."""
    if not changes:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    admin.alter_configs({resource: changes})
    click.echo(f"Completed updating config for {resource}.")
    if resource.type is ResourceType.TOPIC:
        warn_without_effect(
            change.name for change in changes if change.operation is not ConfigOperation.DELETE
        )


def warn_without_effect(names: Iterable[str]) -> None:
    """Print a warning, on standard error, that names the given settings of topics that have no effect."""
    named = sorted(WITHOUT_EFFECT.intersection(names))
    if named:
        click.echo(
            f"WARNING: {', '.join(named)} is accepted but has no effect in this version, which does not "
            "compact logs.",
            err=True,
        )


def _entity(
    kind: str | None, name: str | None, topic: str | None, broker: str | None
) -> tuple[ResourceType, str | None]:
    if topic is not None:
        kind, name = "topics", topic
    elif broker is not None:
        kind, name = "brokers", broker
    if kind is None:
        raise click.UsageError("one of --entity-type, --topic, --broker is needed")
    if kind == "brokers" and name is not None and not name.isdigit():
        raise click.UsageError(f"{name!r} is not the id of a broker")
    return _TYPES[kind], name


def _changes(added: str | None, path: str | None, deleted: str | None) -> list[ConfigChange]:
    wanted = dict(read_properties(path)) if path is not None else {}
    wanted |= assignments(added or "")
    unwanted = [name.strip() for name in (deleted or "").split(",") if name.strip()]
    return [
        *(ConfigChange(name, value) for name, value in wanted.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in unwanted),
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
