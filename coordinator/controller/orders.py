"""Orders that reach the controller through ZooKeeper: of older tools below /admin, and of brokers.

A watch says only that there is one. What it asks for is read when its turn in the queue of events comes, so
that nothing is decided on an order which has been withdrawn, or carried out, meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from coordinator.controller.effects import Order
from coordinator.controller.events import ControllerEvent, Ordered
from coordinator.znodes.admin import (
    DELETE_TOPICS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    decode_preferred_election,
    decode_reassignment,
)
from coordinator.znodes.json_values import BadZnode
from coordinator.znodes.log_dir_events import LOG_DIR_EVENTS, decode_log_dir_event
from coordinator.zookeeper.interface import ZnodeWatch, ZooKeeperSession
from coordinator.zookeeper.pipelined import read_all

_PATHS = {
    Order.REASSIGNMENT: REASSIGN_PARTITIONS,
    Order.ELECTION: PREFERRED_REPLICA_ELECTION,
    Order.DELETION: DELETE_TOPICS,
    Order.LOG_DIRS: LOG_DIR_EVENTS,
}
_ONE_ZNODE = (Order.REASSIGNMENT, Order.ELECTION)
"""The others are a folder with a znode for each order."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def read_order(session: ZooKeeperSession, order: Order) -> Any:
    """What is ordered: see `controller_effects.Order`. What cannot be understood counts as nothing."""
    found: dict[str, bytes] = {}
    paths = await _znodes_of(session, order)
    for path, there in zip(paths, await read_all(session, paths), strict=True):
        if there is not None:  # Otherwise it has been withdrawn.
            found[path] = there[0]
    match order:
        case Order.REASSIGNMENT:
            return next((_understood(decode_reassignment, data) or {} for data in found.values()), None)
        case Order.ELECTION:
            decode = decode_preferred_election
            return next((_understood(decode, data) for data in found.values()), None) or []
        case Order.DELETION:
            return [path.rpartition("/")[2] for path in found]
        case Order.LOG_DIRS:
            return {
                path: _understood(partial(decode_log_dir_event, path), data) for path, data in found.items()
            }


async def _znodes_of(session: ZooKeeperSession, order: Order, watch: ZnodeWatch | None = None) -> list[str]:
    """The paths of the orders of a kind; `watch` sees them come and go."""
    path = _PATHS[order]
    if order in _ONE_ZNODE:
        return [path] if await session.exists(path, watch) is not None else []
    return [f"{path}/{name}" for name in await session.children(path, watch)]


def _understood(decode: Callable[[bytes], T], data: bytes) -> T | None:
    try:
        return decode(data)
    except BadZnode as error:
        _log.warning("an order is not understood: %s", error)
        return None


class OrderWatch:
    """Watches for orders during one term, and puts an event for each kind in which there are any."""

    def __init__(
        self,
        session: ZooKeeperSession,
        put: Callable[[ControllerEvent], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._session = session
        self._put = put
        self._failed = failed
        self._over = False

    def begin(self) -> None:
        for order in Order:
            self._look(order)

    def end(self) -> None:
        self._over = True

    def _look(self, order: Order) -> None:
        if not self._over:
            ensureDeferred(self._find(order)).addErrback(self._failed)

    async def _find(self, order: Order) -> None:
        if await _znodes_of(self._session, order, lambda event: self._look(order)) and not self._over:
            self._put(Ordered(order))
