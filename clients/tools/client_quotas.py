"""Quotas in scripts/configs.sh: those of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from holdfast_log.clients.admin import ANY_NAME, Admin, ClientQuotaEntity
from holdfast_log.clients.tools.command import print_json

ENTITY_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
"""Entity types as scripts/configs.sh names them, and as the protocol does (KIP-546)."""

DEFAULT_NAME = ""
"""Name of the default entity."""


def quota_names(kinds: Sequence[str], names: Sequence[str]) -> dict[str, str | None]:
    """What a filter asks for: the name of each entity type, in order, and any name where none is given.

    Raises click.UsageError.
    """
    if len(set(kinds)) != len(kinds) or ("ips" in kinds and len(kinds) > 1):
        raise click.UsageError("quotas are of users, of clients, of users and clients together, or of ips")
    if len(names) > len(kinds):
        raise click.UsageError("there are more names than entity types")
    given = [None if name == DEFAULT_NAME else name for name in names]
    padded = [*given, *[ANY_NAME] * (len(kinds) - len(given))]
    return {ENTITY_TYPES[kind]: name for kind, name in zip(kinds, padded, strict=True)}


def describe_quotas(admin: Admin, names: Mapping[str, str | None], *, as_json: bool = False) -> None:
    """Print the quotas of the entities with these names, one line each or as JSON."""
    found = admin.describe_client_quotas(names, strict=True)
    if as_json:
        print_json(
            [
                {"entity": dict(entity.components), "quotas": dict(sorted(limits.items()))}
                for entity, limits in found.items()
            ]
        )
        return
    for entity, limits in found.items():
        shown = ", ".join(f"{key}={value}" for key, value in sorted(limits.items()))
        click.echo(f"Quota configs for {entity} are {shown}")


def alter_quotas(
    admin: Admin, names: Mapping[str, str | None], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set and remove quotas of one entity. Raises click.UsageError."""
    if ANY_NAME in names.values():
        raise click.UsageError("--alter needs a name, or the default, for each entity type")
    if not added and not deleted:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    limits: dict[str, float | None] = dict.fromkeys(deleted)
    for key, text in added.items():
        try:
            limits[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}={text!r} is not a number") from None
    entity = ClientQuotaEntity(tuple(names.items()))
    admin.alter_client_quotas({entity: limits})
    click.echo(f"Completed updating config for {entity}.")
