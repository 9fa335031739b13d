"""Writes to ZooKeeper the ownership records that the table asks for, and reports each outcome to it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import DeferredSemaphore

from holdfast_log.broker.ownership.decided import DecidedResources
from holdfast_log.broker.ownership.effects import Write
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.coordinator.ownership.store import (
    NotLeading,
    OwnershipStore,
    Replacement,
    Superseded,
    TooLarge,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired, ZooKeeperError
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for

_log = logging.getLogger(__name__)

WRITES_MAX = 50
"""Maximum number of writes in flight to ZooKeeper: other requests to it must not wait long behind claims."""


class RecordWriting:
    """Performs the writes of the table. `table_changed` is called after each change of the table."""

    def __init__(
        self,
        store: OwnershipStore,
        table: OwnershipTable,
        decided: DecidedResources,
        now_ms: Callable[[], int],
        table_changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._table = table
        self._decided = decided
        self._now_ms = now_ms
        self._table_changed = table_changed
        self._writing = DeferredSemaphore(WRITES_MAX)

    async def write(self, write: Write) -> None:
        """Write records, and report the outcome. If others have written them meanwhile, read them again
        first."""
        try:
            replacements = [
                Replacement(item.key, item.record, item.version, self._decided.deciding_partition(item.key))
                for item in write.items
            ]
            await self._writing.acquire()
            try:
                versions = await self._store.write(replacements)
            finally:
                self._writing.release()
        except NotLeading as error:
            self._not_written(write.number, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)))
        except TooLarge as error:
            message = f"{error}: claim fewer resources at a time"
            self._not_written(write.number, error_for(ErrorCode.POLICY_VIOLATION, message))
        except BrokerError as error:
            self._not_written(write.number, error)
        except (Superseded, ZooKeeperError, BadZnode) as error:
            if not isinstance(error, SessionExpired):
                _log.error("Could not write ownership records to ZooKeeper; reading them again: %s", error)
            for item in write.items:
                await self._decided.reload(item.key)
            message = "the ownership record has changed in ZooKeeper meanwhile: try again"
            self._not_written(write.number, error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message))
        else:
            by_key: dict[ResourceKey, int] = {
                item.key: version for item, version in zip(write.items, versions, strict=True)
            }
            self._table.written(write.number, by_key, self._now_ms())
            self._table_changed()

    def _not_written(self, number: int, error: BrokerError) -> None:
        self._table.not_written(number, error, self._now_ms())
        self._table_changed()
