"""Requests that name a thing more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable


def repeated(things: Iterable[Hashable]) -> frozenset[Hashable]:
    """What is named more than once. Changes of one thing would overtake each other in ZooKeeper, and each
    time all but one would begin again: hundreds in one request would take minutes."""
    return frozenset(thing for thing, count in Counter(things).items() if count > 1)
