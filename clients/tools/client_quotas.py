"""Quotas in scripts/configs.sh: those of users, client ids and IP addresses; and users' credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

from holdfast_log.clients.admin import (
    ANY_NAME,
    Admin,
    ClientQuotaEntity,
    NewScramCredential,
    OldScramCredential,
)
from holdfast_log.clients.tools.command import print_json
from holdfast_log.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_MECHANISMS

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
    credentials = _credentials(admin, names)
    if as_json:
        print_json(
            [
                *(
                    {"entity": dict(entity.components), "quotas": dict(sorted(limits.items()))}
                    for entity, limits in found.items()
                ),
                *({"entity": {"user": user}, "scram": each} for user, each in credentials.items()),
            ]
        )
        return
    for entity, limits in found.items():
        shown = ", ".join(f"{key}={value}" for key, value in sorted(limits.items()))
        click.echo(f"Quota configs for {entity} are {shown}")
    for user, each in credentials.items():
        shown = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in each.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {shown}")


def _credentials(admin: Admin, names: Mapping[str, str | None]) -> dict[str, dict[str, int]]:
    """The credentials of the users that are asked for, if users are what is asked for."""
    if set(names) != {"user"} or names["user"] is None:
        return {}
    found = admin.describe_scram_credentials()
    user = names["user"]
    return found if user == ANY_NAME else {name: each for name, each in found.items() if name == user}


def alter_quotas(
    admin: Admin, names: Mapping[str, str | None], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Set and remove quotas of one entity, and credentials if it is a user. Raises click.UsageError."""
    if ANY_NAME in names.values():
        raise click.UsageError("--alter needs a name, or the default, for each entity type")
    if not added and not deleted:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    changes = _scram_changes(names, added, deleted)
    quotas = {key: text for key, text in added.items() if key not in SCRAM_MECHANISMS}
    limits: dict[str, float | None] = {key: None for key in deleted if key not in SCRAM_MECHANISMS}
    for key, text in quotas.items():
        try:
            limits[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}={text!r} is not a number") from None
    entity = ClientQuotaEntity(tuple(names.items()))
    if changes:
        admin.alter_scram_credentials(changes)
    if limits:
        admin.alter_client_quotas({entity: limits})
    click.echo(f"Completed updating config for {entity}.")


def _scram_changes(
    names: Mapping[str, str | None], added: Mapping[str, str], deleted: Sequence[str]
) -> list[NewScramCredential | OldScramCredential]:
    """The changes of a user's credentials among settings to set and to remove. Raises click.UsageError."""
    changes: list[NewScramCredential | OldScramCredential] = []
    user = names.get("user")
    for mechanism in SCRAM_MECHANISMS:
        if mechanism not in added and mechanism not in deleted:
            continue
        if len(names) != 1 or user is None:
            raise click.UsageError(f"{mechanism} is set for a user: --entity-type users --entity-name NAME")
        if mechanism in added:
            password, iterations = _password_and_iterations(mechanism, added[mechanism])
            changes.append(NewScramCredential(user, password, mechanism, iterations))
        if mechanism in deleted:
            changes.append(OldScramCredential(user, mechanism))
    return changes


def _password_and_iterations(mechanism: str, text: str) -> tuple[str, int]:
    """What `[iterations=8192,password=...]` says; the password may have commas. Errors do not show it."""
    match = re.fullmatch(
        r"\s*(?:iterations=(?P<count>\d+)\s*,)?\s*password=(?P<password>.+)", text, re.DOTALL
    )
    if match is None:
        raise click.UsageError(
            f"expected {mechanism}=[iterations=8192,password=...]; iterations may be left out"
        )
    return match["password"], int(match["count"] or ITERATIONS_MIN)
