"""Requests that reach the controller as znodes: from older tools below /admin, and from brokers.

A watch only reports that there is a request. Its content is read when its event is handled, so the controller
never acts on a request that was withdrawn or handled in the meantime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.controller.effects import ZnodeRequest
from holdfast_log.coordinator.controller.events import ControllerEvent, ZnodeRequested
from holdfast_log.coordinator.znodes.admin import (
    DELETE_TOPICS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    decode_preferred_election,
    decode_reassignment,
)
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.znodes.log_dir_events import LOG_DIR_EVENTS, decode_log_dir_event
from holdfast_log.coordinator.zookeeper.interface import ZnodeWatch, ZooKeeperSession
from holdfast_log.coordinator.zookeeper.pipelined import read_all

_PATHS = {
    ZnodeRequest.REASSIGNMENT: REASSIGN_PARTITIONS,
    ZnodeRequest.ELECTION: PREFERRED_REPLICA_ELECTION,
    ZnodeRequest.DELETION: DELETE_TOPICS,
    ZnodeRequest.LOG_DIRS: LOG_DIR_EVENTS,
}
_ONE_ZNODE = (ZnodeRequest.REASSIGNMENT, ZnodeRequest.ELECTION)
"""Kinds that use one znode; the others have a child znode for each request."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


async def read_znode_request(session: ZooKeeperSession, request: ZnodeRequest) -> Any:
    """The current request of a kind, as documented in `ZnodeRequest`. Malformed data is logged and
    ignored."""
    found: dict[str, bytes] = {}
    paths = await _znodes_of(session, request)
    for path, there in zip(paths, await read_all(session, paths), strict=True):
        if there is not None:  # Otherwise it was withdrawn.
            found[path] = there[0]
    match request:
        case ZnodeRequest.REASSIGNMENT:
            return next((_decoded(decode_reassignment, data) or {} for data in found.values()), None)
        case ZnodeRequest.ELECTION:
            decode = decode_preferred_election
            return next((_decoded(decode, data) for data in found.values()), None) or []
        case ZnodeRequest.DELETION:
            return [path.rpartition("/")[2] for path in found]
        case ZnodeRequest.LOG_DIRS:
            return {path: _decoded(partial(decode_log_dir_event, path), data) for path, data in found.items()}


async def _znodes_of(
    session: ZooKeeperSession, request: ZnodeRequest, watch: ZnodeWatch | None = None
) -> list[str]:
    """The paths of the requests of a kind; `watch` sees them come and go."""
    path = _PATHS[request]
    if request in _ONE_ZNODE:
        return [path] if await session.exists(path, watch) is not None else []
    return [f"{path}/{name}" for name in await session.children(path, watch)]


def _decoded(decode: Callable[[bytes], T], data: bytes) -> T | None:
    try:
        return decode(data)
    except BadZnode as error:
        _log.warning("ignoring a malformed request to the controller in ZooKeeper: %s", error)
        return None


class ZnodeRequestWatch:
    """Watches for requests during one term; puts an event for each kind that has any."""

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
        for request in ZnodeRequest:
            self._look(request)

    def end(self) -> None:
        self._over = True

    def _look(self, request: ZnodeRequest) -> None:
        if not self._over:
            ensureDeferred(self._find(request)).addErrback(self._failed)

    async def _find(self, request: ZnodeRequest) -> None:
        if await _znodes_of(self._session, request, lambda event: self._look(request)) and not self._over:
            self._put(ZnodeRequested(request))
