"""The keys of quotas, as Kafka names them, and the values that each may have. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_WHOLE_WITHIN = 1e-6
"""How far a number may be from a whole one that Kafka takes for it."""


class QuotaKey(enum.StrEnum):
    """What a quota limits."""

    PRODUCE = "producer_byte_rate"
    """Bytes per second of Produce requests."""
    FETCH = "consumer_byte_rate"
    """Bytes per second of records in Fetch responses."""
    REQUEST = "request_percentage"
    """Percentage of the time of the broker's reactor thread."""
    MUTATION = "controller_mutation_rate"
    """Partitions created and deleted per second (KIP-599)."""
    CONNECTION = "connection_creation_rate"
    """New connections per second (KIP-612)."""


CLIENT_KEYS = (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST, QuotaKey.MUTATION)
"""Keys of the quotas of users and client ids."""
IP_KEYS = (QuotaKey.CONNECTION,)
"""Keys of the quotas of IP addresses."""
_WHOLE = {QuotaKey.PRODUCE: _LONG_MAX, QuotaKey.FETCH: _LONG_MAX, QuotaKey.CONNECTION: _INT_MAX}
"""Keys whose values are whole numbers, with the highest value."""


EVERYBODYS_MINIMUM: Mapping[QuotaKey, float] = {
    QuotaKey.PRODUCE: 1024,
    QuotaKey.FETCH: 1024,
    QuotaKey.REQUEST: 1,
    QuotaKey.MUTATION: 0.1,
    QuotaKey.CONNECTION: 1,
}
"""The smallest quotas that may be set for everybody at once (`QuotaEntity.is_of_everybody`): byte rates as in
Kafka's documentation. With less, one request of a megabyte would mute a client for hours or days, which
no operator wants of all clients, and only an attacker sets."""


def parse_limit(key: QuotaKey, text: str) -> float:
    """The limit that a znode's text stands for. Raises ValueError, whose text says what is allowed."""
    allowed = f"a {'whole ' if key in _WHOLE else ''}number above 0"
    try:
        limit = float(int(text)) if key in _WHOLE else float(text)
    except ValueError:
        raise ValueError(allowed) from None
    if not (limit > 0 and math.isfinite(limit)):
        raise ValueError(allowed)
    return limit


def limit_text(key: QuotaKey, limit: float) -> str:
    """The text that a znode holds for a limit. Raises ValueError, whose text says what is allowed."""
    if not (limit > 0 and math.isfinite(limit)):
        raise ValueError("a number above 0")
    highest = _WHOLE.get(key)
    if highest is None:
        return repr(float(limit))
    whole = int(limit + _WHOLE_WITHIN)
    if abs(whole - limit) > _WHOLE_WITHIN or whole < 1:
        raise ValueError("a whole number above 0")
    return str(min(whole, highest))
