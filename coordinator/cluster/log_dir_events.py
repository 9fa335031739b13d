"""How a broker tells the controller that a log directory has failed: a notification in ZooKeeper (KIP-112).

The controller then asks the broker which of its replicas are lost.
"""

from __future__ import annotations

import logging

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from coordinator.znodes.log_dir_events import LOG_DIR_EVENT_PREFIX, encode_log_dir_event
from coordinator.zookeeper.interface import SessionExpired, ZooKeeper, ZooKeeperConnectionLost

_log = logging.getLogger(__name__)


class LogDirEvents:
    """Leaves notifications of one broker."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id

    def announce(self) -> None:
        """A log directory has failed. Never raises."""
        ensureDeferred(self._announce()).addErrback(_failed)

    async def _announce(self) -> None:
        session = self._zookeeper.session
        while True:
            try:
                await session.create(
                    LOG_DIR_EVENT_PREFIX, encode_log_dir_event(self._broker_id), sequence=True
                )
                return
            except ZooKeeperConnectionLost:
                continue  # A second notification does no harm.


def _failed(failure: Failure) -> None:
    # On its next session the broker is asked for all its replicas anyway.
    if not failure.check(SessionExpired):
        _log.error("the controller is not told of a failed log directory: %s", failure.getErrorMessage())
