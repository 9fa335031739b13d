"""Quotas on request: describes those that match a filter, and alters them in ZooKeeper (KIP-546)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.quotas.entities import (
    CLIENT_ID,
    IP,
    IPS,
    KINDS,
    USER,
    QuotaEntity,
    config_name,
    entity_at,
    normal_address,
)
from holdfast_log.broker.quotas.keys import CLIENT_KEYS, EVERYBODYS_MINIMUM, IP_KEYS, QuotaKey, limit_text
from holdfast_log.broker.quotas.limits import sound_limits
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import RequestTooLarge, SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode


class Match(enum.IntEnum):
    """How a component of a filter matches names: numbers of KIP-546."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class FilterPart:
    """One component of a filter: entities of this type whose name matches. `name` is for `Match.EXACT`."""

    entity_type: str
    match: Match
    name: str = ""

    def accepts(self, name: str | None) -> bool:
        """Whether an entity's name matches; None is the default entity."""
        match self.match:
            case Match.EXACT:
                wanted = normal_address(self.name) or self.name if self.entity_type == IP else self.name
                return name == wanted
            case Match.DEFAULT:
                return name is None
        return True


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Selects the entities that match each part. With `is_strict` they have no other component."""

    parts: tuple[FilterPart, ...]
    is_strict: bool

    def accepts(self, entity: QuotaEntity) -> bool:
        """Whether an entity is selected."""
        names = dict(entity.components())
        if self.is_strict and len(names) > len(self.parts):
            return False
        return all(part.entity_type in names and part.accepts(names[part.entity_type]) for part in self.parts)


def check_filter(parts: Sequence[FilterPart]) -> None:
    """Raises BrokerError as Kafka does: INVALID_REQUEST, and UNSUPPORTED_VERSION for other entity types."""
    types = [part.entity_type for part in parts]
    for entity_type in types:
        if not entity_type:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a component of the filter has no entity type")
        if entity_type not in (USER, CLIENT_ID, IP):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"unknown entity type {entity_type!r}: expected {USER}, {CLIENT_ID} or {IP}",
            )
        if types.count(entity_type) > 1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"the filter has two components of type {entity_type}"
            )
    if IP in types and len(types) > 1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"a filter of type {IP} cannot be combined with {USER} or {CLIENT_ID}",
        )


class QuotaStore:
    """The quotas in ZooKeeper. Every broker describes and alters them.

    At most `entities_max` entities have quotas. Call `configs_changed` with each change of dynamic configs.
    """

    def __init__(self, dynamic: DynamicConfigs, entities_max: int) -> None:
        self._dynamic = dynamic
        self._entities_max = entities_max
        self._limited: set[tuple[str, str]] = set()
        """The entities that have quotas. They are thousands, and a request may add thousands: so they are
        not counted again for each."""

    def configs_changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Take over the present configs of an entity in ZooKeeper."""
        if kind in KINDS and _has_quota(kind, configs):
            self._limited.add((kind, name))
        else:
            self._limited.discard((kind, name))

    def describe(self, wanted: QuotaFilter) -> Deferred[list[tuple[QuotaEntity, dict[QuotaKey, float]]]]:
        """The selected entities that have quotas, as ZooKeeper has them now, ordered by znode."""
        return self._dynamic.reload(KINDS).addCallback(lambda _: list(self._selected(wanted)))

    def _selected(self, wanted: QuotaFilter) -> Iterable[tuple[QuotaEntity, dict[QuotaKey, float]]]:
        for kind in KINDS:
            for name in self._dynamic.entities(kind):
                entity = entity_at(kind, name)
                if entity is None or not wanted.accepts(entity):
                    continue
                limits = sound_limits(kind, name, self._dynamic.get(kind, name))
                if limits:
                    yield entity, limits

    def alter(
        self, entity: QuotaEntity, limits: Mapping[str, float | None], *, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        """Set some quotas of an entity and remove those with None; the others stay.

        The result is None, or the error that prevented it.
        """
        kind, name = config_name(entity)
        try:
            texts = _texts(kind, limits, EVERYBODYS_MINIMUM if entity.is_of_everybody else {})
            self._check_room(kind, name)
        except BrokerError as error:
            return succeed(error)
        if validate_only:
            return succeed(None)

        def change(configs: dict[str, str]) -> dict[str, str]:
            merged = {**configs, **texts}
            return {key: text for key, text in merged.items() if text is not None}

        return self._dynamic.update(kind, name, change).addCallbacks(lambda _: None, _refused)

    def _check_room(self, kind: str, name: str) -> None:
        """Raises BrokerError POLICY_VIOLATION if the entity would be one too many."""
        if (kind, name) not in self._limited and len(self._limited) >= self._entities_max:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"quota.entities.max={self._entities_max} users, client ids and addresses have quotas: "
                "remove some, or set one for all of them",
            )


def _has_quota(kind: str, configs: Mapping[str, str]) -> bool:
    """Whether an entity has a quota: a user may have nothing but a credential."""
    return any(key in configs for key in (IP_KEYS if kind == IPS else CLIENT_KEYS))


def _texts(
    kind: str, limits: Mapping[str, float | None], minimums: Mapping[QuotaKey, float]
) -> dict[str, str | None]:
    """What the znode is to hold for each key. Raises BrokerError INVALID_REQUEST, and POLICY_VIOLATION for
    limits below the minimums."""
    keys = IP_KEYS if kind == IPS else CLIENT_KEYS
    texts: dict[str, str | None] = {}
    for name, limit in limits.items():
        if name not in keys:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"unknown quota {name!r}: expected {' or '.join(keys)}"
            )
        minimum = minimums.get(QuotaKey(name), 0)
        if limit is not None and 0 < limit < minimum:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"{name}={limit} would hold for all clients without a quota of their own: at least {minimum} "
                "is allowed for them. Set less for a user or client id by its name",
            )
        try:
            texts[name] = None if limit is None else limit_text(QuotaKey(name), limit)
        except ValueError as error:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{name}={limit} is not allowed: expected {error}"
            ) from None
    return texts


def _refused(failure: Failure) -> BrokerError:
    if failure.check(SessionExpired):
        return BrokerError(
            ErrorCode.BROKER_NOT_AVAILABLE, "this broker is stopping: ask again, by any other broker"
        )
    failure.trap(BadZnode, RequestTooLarge)
    if failure.check(RequestTooLarge):
        return BrokerError(ErrorCode.POLICY_VIOLATION, f"the names are too long: {failure.getErrorMessage()}")
    return BrokerError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the present quotas cannot be read, so nothing was changed: {failure.getErrorMessage()}; "
        "repair or remove the znode",
    )
