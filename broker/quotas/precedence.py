"""The limits of one key, and which of them applies to a client, in Kafka's order of precedence. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from holdfast_log.broker.quotas.buckets import BucketKey
from holdfast_log.broker.quotas.entities import ABSENT, DEFAULT, NAME_CHARACTERS_MAX, Name, QuotaEntity


class Scope(enum.Enum):
    """How an entity depends on the user, or on the client id."""

    ANY = "any"
    DEFAULT = "default"
    NAMED = "named"


PRECEDENCE = (
    (Scope.NAMED, Scope.NAMED),
    (Scope.NAMED, Scope.DEFAULT),
    (Scope.NAMED, Scope.ANY),
    (Scope.DEFAULT, Scope.NAMED),
    (Scope.DEFAULT, Scope.DEFAULT),
    (Scope.DEFAULT, Scope.ANY),
    (Scope.ANY, Scope.NAMED),
    (Scope.ANY, Scope.DEFAULT),
)
"""(user, client id) of the entities whose limit applies, the first that is found (KIP-55)."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A client's limit per second, and whose use counts towards it."""

    limit: float
    bucket: BucketKey


class QuotaTable:
    """The limits of one key by entity. `default` applies to each client id for which no entity has one."""

    def __init__(self, default: float | None = None) -> None:
        self._default = default
        self._limits: dict[tuple[Scope, Scope], dict[tuple[str, str], float]] = {}
        self._shapes: list[tuple[Scope, Scope]] = []
        """The shapes of entities that have limits, in the order of precedence."""

    @property
    def is_empty(self) -> bool:
        """Whether no client has a limit."""
        return not self._shapes and self._default is None

    @property
    def is_configured(self) -> bool:
        """Whether an entity has a limit."""
        return bool(self._shapes)

    def set(self, entity: QuotaEntity, limit: float | None) -> bool:
        """Set or remove (None) an entity's limit. Returns whether anything has changed."""
        shape = _part(entity.user), _part(entity.client_id)
        key = _key(entity.user), _key(entity.client_id)
        limits = self._limits.setdefault(shape, {})
        before = limits.pop(key, None)
        if limit is not None:
            limits[key] = limit
        self._shapes = [shape for shape in PRECEDENCE if self._limits.get(shape)]
        return before != limit

    def find(self, user: str, client_id: str) -> Allowance | None:
        """What applies to a user's client; None if it has no limit. Users never count towards one limit
        together, as they would in Kafka if they had the same client id: one could use up another's."""
        client_id = client_id[:NAME_CHARACTERS_MAX]
        for shape in self._shapes:
            users, clients = shape
            key = user if users is Scope.NAMED else "", client_id if clients is Scope.NAMED else ""
            limit = self._limits[shape].get(key)
            if limit is not None:
                return Allowance(limit, (user, None if clients is Scope.ANY else client_id))
        return None if self._default is None else Allowance(self._default, (user, client_id))


def _part(name: Name) -> Scope:
    return Scope.ANY if name is ABSENT else Scope.DEFAULT if name is DEFAULT else Scope.NAMED


def _key(name: Name) -> str:
    return name if isinstance(name, str) else ""
