"""The quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast_log.clients.admin.asking import Asking, raise_first
from holdfast_log.clients.connection.connection import ANY_NODE
from holdfast_log.protocol.errors import error_for
from holdfast_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    AlteredQuota,
    OpData,
)
from holdfast_log.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

ANY_NAME: Final = "<any>"
"""In a filter: every name, the default included."""

_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """Who a quota is for: (entity type, name) pairs, of a user and a client-id, one of them, or an ip.

    A name of None stands for all that have no quota of their own.
    """

    components: tuple[tuple[str, str | None], ...]

    @classmethod
    def of(cls, **names: str | None) -> ClientQuotaEntity:
        """The entity with these names: `user`, `client_id`, `ip`."""
        pairs = sorted(((kind.replace("_", "-"), name) for kind, name in names.items()), reverse=True)
        return cls(tuple(pairs))

    def __str__(self) -> str:
        titles = {"user": "user-principal"}
        shown = []
        for kind, name in self.components:
            title = titles.get(kind, kind)
            shown.append(f"the default {title}" if name is None else f"{title} '{name}'")
        return ", ".join(shown)


def describe_client_quotas(
    asking: Asking, names: Mapping[str, str | None], *, strict: bool = False
) -> dict[ClientQuotaEntity, dict[str, float]]:
    """The quotas of the entities that have these names, by entity type; None is the default, `ANY_NAME` any.

    With `strict` only entities that have no other component.
    """
    request = DescribeClientQuotasRequest(
        components=[_component(kind, name) for kind, name in names.items()], strict=strict
    )
    response = asking.ask(ANY_NODE, request, lambda answer: [answer.error_code])
    if response.error_code:
        raise error_for(response.error_code, response.error_message)
    return {
        ClientQuotaEntity(tuple((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


def _component(kind: str, name: str | None) -> ComponentData:
    match name:
        case None:
            return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
        case "<any>":
            return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def alter_client_quotas(
    asking: Asking,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Set quotas, remove those with None, and leave the others as they are."""
    request = AlterClientQuotasRequest(
        entries=[
            AlteredQuota(
                entity=[
                    AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity.components
                ],
                ops=[
                    OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in values.items()
                ],
            )
            for entity, values in changes.items()
        ],
        validate_only=validate_only,
    )
    response = asking.ask(ANY_NODE, request, lambda answer: [entry.error_code for entry in answer.entries])
    raise_first(
        (
            str(ClientQuotaEntity(tuple((part.entity_type, part.entity_name) for part in entry.entity))),
            entry.error_code,
            entry.error_message,
        )
        for entry in response.entries
    )
