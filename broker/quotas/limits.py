"""The limits in force of all keys, as ZooKeeper has them: /config/users, /config/clients and /config/ips."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from holdfast_log.broker.quotas.entities import DEFAULT, IPS, KINDS, QuotaEntity, entity_at
from holdfast_log.broker.quotas.keys import CLIENT_KEYS, IP_KEYS, QuotaKey, parse_limit
from holdfast_log.broker.quotas.precedence import Allowance, QuotaTable
from holdfast_log.broker.quotas.settings import QuotaSettings, default_limit

_log = logging.getLogger(__name__)


class QuotaLimits:
    """The limits of clients, by key and entity, and of new connections, by IP address.

    Call `configs_changed` with each change of dynamic configs. A value that is not allowed, which other
    software must have written, is logged and sets no limit.
    """

    def __init__(self, settings: QuotaSettings) -> None:
        defaults = {
            QuotaKey.PRODUCE: default_limit(settings.producer_default),
            QuotaKey.FETCH: default_limit(settings.consumer_default),
            QuotaKey.MUTATION: default_limit(settings.mutation_default),
        }
        self._tables = {key: QuotaTable(defaults.get(key)) for key in CLIENT_KEYS}
        self._addresses: dict[str, float] = {}
        self._any_address: float | None = None
        self._listeners: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of limits."""
        self._listeners.append(listener)

    def has_any(self, key: QuotaKey) -> bool:
        """Whether any client has a limit of this key."""
        return not self._tables[key].is_empty

    def is_configured(self, key: QuotaKey) -> bool:
        """Whether ZooKeeper has a limit of this key for any client, besides the default in the settings."""
        return self._tables[key].is_configured

    def find(self, key: QuotaKey, user: str, client_id: str) -> Allowance | None:
        """What applies to a user's client; None if it has no limit."""
        return self._tables[key].find(user, client_id)

    def of_address(self, address: str) -> float | None:
        """Connections per second that may come from an address; None if there is no limit."""
        return self._addresses.get(address, self._any_address)

    @property
    def has_addresses(self) -> bool:
        """Whether any address has a limit."""
        return bool(self._addresses) or self._any_address is not None

    def configs_changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Put the present quotas of one entity into force."""
        if kind not in KINDS:
            return
        entity = entity_at(kind, name)
        if entity is None:
            _log.error(
                "Ignoring the quotas in /config/%s/%s: no client or IP address has that name", kind, name
            )
            return
        found = sound_limits(kind, name, configs)
        if kind == IPS:
            changed = self._set_address(entity, found.get(QuotaKey.CONNECTION))
        else:
            changes = [self._tables[key].set(entity, found.get(key)) for key in CLIENT_KEYS]
            changed = True in changes
        if not changed:
            return
        shown = ", ".join(f"{key}={configs[key]}" for key in found) or "none"
        _log.info("Quotas of %s are now: %s", entity, shown)
        for listener in self._listeners:
            listener()

    def _set_address(self, entity: QuotaEntity, limit: float | None) -> bool:
        if entity.ip is DEFAULT:
            before, self._any_address = self._any_address, limit
            return before != limit
        address = str(entity.ip)
        before = self._addresses.pop(address, None)
        if limit is not None:
            self._addresses[address] = limit
        return before != limit


def sound_limits(kind: str, name: str, configs: Mapping[str, str]) -> dict[QuotaKey, float]:
    """The limits in an entity's configs. Logs those that are not allowed, and leaves them out."""
    found: dict[QuotaKey, float] = {}
    for key in IP_KEYS if kind == IPS else CLIENT_KEYS:
        text = configs.get(key)
        if text is None:
            continue
        try:
            found[key] = parse_limit(key, text)
        except ValueError as error:
            _log.error(
                "Ignoring the quota %s=%.100r in /config/%s/%s, so it limits nothing: expected %s",
                key, text, kind, name, error,
            )  # fmt: skip
    return found
