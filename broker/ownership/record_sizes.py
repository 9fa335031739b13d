"""The bytes of the records of what is owned at this broker: in all, and of the grants of each source.

ZooKeeper has all records in memory, so a broker has a bound for its own. A client that claims name after name
could use it up, and keep others from what was never owned before. So each grant counts to its source: to the
principal of its owner, or the address of one that has not proved who it is. Records read from ZooKeeper name
both, so a broker that begins to decide counts what the one before it has counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.broker.network.connection import ANONYMOUS
from holdfast_log.broker.network.interfaces import source_address
from holdfast_log.broker.ownership.resources import Resource
from holdfast_log.coordinator.ownership.records import Owner, ResourceKey, grant_bytes


def source_of(owner: Owner) -> str:
    """Whom the grants of an owner count to."""
    return source_address(owner.host) if owner.principal == ANONYMOUS else owner.principal


def sizes_of(resource: Resource) -> dict[str, int]:
    """Maximum bytes of a resource's record as it is now, by source; none for a resource that was never
    owned. The resource's own name counts to one of the sources."""
    sizes: dict[str, int] = {}
    source = None
    for entry in resource.entries.values():
        for grant in entry.history:
            source = source_of(grant.owner)
            sizes[source] = sizes.get(source, 0) + grant_bytes(grant, entry.group)
    if source is not None:
        sizes[source] += len(str(resource.key))
    return sizes


class RecordSizes:
    """Sums over the records of all resources."""

    def __init__(self) -> None:
        self.total = 0
        self._by_source: dict[str, int] = {}
        self._by_key: dict[ResourceKey, tuple[tuple[str, int], ...]] = {}

    def of(self, source: str) -> int:
        """Bytes of all grants of a source."""
        return self._by_source.get(source, 0)

    def put(self, key: ResourceKey, sizes: Mapping[str, int]) -> None:
        """Count a record as having these bytes, by source, in place of what it has counted."""
        self.forget(key)
        if sizes:
            self._by_key[key] = tuple(sizes.items())
        for source, size in sizes.items():
            self.total += size
            self._by_source[source] = self.of(source) + size

    def forget(self, key: ResourceKey) -> None:
        """Count a record no more."""
        for source, size in self._by_key.pop(key, ()):
            self.total -= size
            left = self._by_source[source] - size
            if left:
                self._by_source[source] = left
            else:
                del self._by_source[source]
