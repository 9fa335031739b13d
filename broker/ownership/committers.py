"""Whether the owner that commits still owns the partition (own API): its position, or a transaction that has
written to it.

Positions are kept by the coordinator of a group, and partitions are owned at their leaders. The coordinator
therefore reads the ownership records, which have every grant before its claim is answered.

Reading takes time, in which the partition may be granted to the next owner. That owner begins at the position
that it reads from the coordinator. So if the group's positions are read during a check, the check begins
again: a position that the next owner has read is never replaced by its predecessor's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.coordinator.ownership.records import OwnershipRecord, PartitionKey
from holdfast_log.coordinator.ownership.store import OwnershipStore
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode


@dataclass(slots=True, eq=False)
class _Check:
    """A check under way. `is_outdated`: positions of its group were read since it began."""

    is_outdated: bool = False


class CommitterCheck:
    """Compares the tokens in commits with the newest grants."""

    def __init__(self, store: OwnershipStore) -> None:
        self._store = store
        self._checks: dict[str, set[_Check]] = {}
        """The checks under way, by the group whose positions are committed."""

    def lost(
        self, committing_group: str, owner_group: str, tokens: Mapping[PartitionKey, int]
    ) -> Deferred[set[PartitionKey]]:
        """Fires with those partitions whose grant with this token, in a group of owners, has a successor or
        can have no resumption. An owner that is only disconnected may still commit: nobody reads yet.

        The caller must commit in its callback, before another request is handled.
        Fails with BrokerError COORDINATOR_NOT_AVAILABLE while this broker stops.
        """
        return ensureDeferred(self._lost(committing_group, owner_group, tokens))

    def positions_read(self, committing_group: str) -> None:
        """The coordinator answers what a group has committed, perhaps to the next owner of a partition."""
        for check in self._checks.get(committing_group, ()):
            check.is_outdated = True

    async def ended(self, tokens: Mapping[PartitionKey, int]) -> set[PartitionKey]:
        """Those partitions whose grant with this token has a successor, or can have no resumption.

        What the caller decides by the answer takes place at the same time as a grant that is made meanwhile.
        Raises BrokerError COORDINATOR_NOT_AVAILABLE while this broker stops.
        """
        found = await self._read(tokens)
        return {
            key
            for key, token in tokens.items()
            if not any(
                may_commit(found.get(key), group, token)
                for group in (found[key].histories if key in found else ())
            )
        }

    async def _read(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, OwnershipRecord]:
        try:
            found = await self._store.read_partitions(list(keys))
        except SessionExpired:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        return {
            each.key: each.record
            for each in found.records
            if isinstance(each.key, PartitionKey) and each.record is not None
        }

    async def _lost(
        self, committing_group: str, owner_group: str, tokens: Mapping[PartitionKey, int]
    ) -> set[PartitionKey]:
        check = _Check(is_outdated=True)
        checks = self._checks.setdefault(committing_group, set())
        checks.add(check)
        try:
            while check.is_outdated:
                check.is_outdated = False
                records = await self._read(tokens)
        finally:
            checks.discard(check)
            if not checks:
                self._checks.pop(committing_group, None)
        return {key for key, token in tokens.items() if not may_commit(records.get(key), owner_group, token)}


def may_commit(record: OwnershipRecord | None, group: str, token: int) -> bool:
    """Whether the owner with this token may commit, by the partition's record; None if it has none."""
    history = () if record is None else record.histories.get(group, ())
    return bool(history) and history[-1].incarnation == token and history[-1].may_resume
