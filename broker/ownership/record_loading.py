"""Takes records that were read from ZooKeeper into the table, and resources out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast_log.broker.ownership.resources import NO_ZNODE
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.ownership.records import NameKey, ResourceKey
from holdfast_log.coordinator.ownership.store import FoundRecord
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import LossReason


class RecordLoading:
    """Loads and unloads single resources. The caller then has the effects of the table performed."""

    def __init__(self, table: OwnershipTable, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._now_ms = now_ms
        self._unreadable: dict[ResourceKey, None] = {}
        """Resources whose records cannot be decoded: no client can claim them."""

    def load(self, found: FoundRecord) -> None:
        """Take a record into the table, unless the same or a later one is known."""
        if found.record is None:
            self._unreadable[found.key] = None
            return
        self._unreadable.pop(found.key, None)
        self._table.load(found.key, found.record, found.version, self._now_ms())

    def unload(self, key: ResourceKey, error: BrokerError, reason: LossReason = LossReason.NONE) -> None:
        """Take a resource out of the table. Requests that wait for it fail with `error`."""
        self._unreadable.pop(key, None)
        self._table.unload(key, error, self._now_ms(), reason)

    def unload_unwritten(self, key: ResourceKey) -> None:
        """Unload a resource whose record is no longer in ZooKeeper.

        A resource that was never written is kept: its sharers and waiters need no record.
        """
        known = self._table.resource(key)
        if known is not None and known.version == NO_ZNODE:
            self._unreadable.pop(key, None)
            self._table.count_anew(key)
            return
        self.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def is_unreadable(self, key: ResourceKey) -> bool:
        """Whether the record of a resource could not be decoded."""
        return key in self._unreadable

    def names_of(self, groups: Iterable[str]) -> list[NameKey]:
        """All names of these groups that are in the table, or whose records cannot be decoded."""
        wanted = dict.fromkeys(groups)
        known = [name for group in wanted for name in self._table.names_of(group)]
        unreadable = (key for key in self._unreadable if isinstance(key, NameKey) and key.group in wanted)
        return list(dict.fromkeys([*known, *unreadable]))
