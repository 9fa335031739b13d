"""Whether the owner that commits the position of a partition still owns it (own API).

Positions are kept by the coordinator of a group, and partitions are owned at their leaders. The coordinator
therefore reads the ownership records, which have every grant before its claim is answered.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred, ensureDeferred

from coordinator.ownership.records import OwnershipRecord, PartitionKey
from coordinator.ownership.store import OwnershipStore
from coordinator.zookeeper.interface import SessionExpired
from protocol.errors import BrokerError, ErrorCode


class CommitterCheck:
    """Compares the tokens in commits with the newest grants."""

    def __init__(self, store: OwnershipStore) -> None:
        self._store = store

    def lost(self, group: str, tokens: Mapping[PartitionKey, int]) -> Deferred[set[PartitionKey]]:
        """Fires with those partitions whose grant with this token, in a group of owners, has a successor or
        can have no resumption. An owner that is only disconnected may still commit: nobody reads yet.

        Fails with BrokerError COORDINATOR_NOT_AVAILABLE while this broker stops.
        """
        return ensureDeferred(self._lost(group, tokens))

    async def _lost(self, group: str, tokens: Mapping[PartitionKey, int]) -> set[PartitionKey]:
        try:
            found = await self._store.read_partitions(list(tokens))
        except SessionExpired:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        records = {each.key: each.record for each in found.records}
        return {key for key, token in tokens.items() if not may_commit(records.get(key), group, token)}


def may_commit(record: OwnershipRecord | None, group: str, token: int) -> bool:
    """Whether the owner with this token may commit, by the partition's record; None if it has none."""
    history = () if record is None else record.histories.get(group, ())
    return bool(history) and history[-1].incarnation == token and history[-1].may_resume
