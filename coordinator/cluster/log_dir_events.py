"""Notifies the controller, through ZooKeeper, that a log directory of this broker has failed (KIP-112).

The controller then asks the broker which of its replicas are lost.
"""

from __future__ import annotations

import logging

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.znodes.log_dir_events import LOG_DIR_EVENT_PREFIX, encode_log_dir_event
from holdfast_log.coordinator.zookeeper.interface import SessionExpired, ZooKeeper, ZooKeeperConnectionLost

_log = logging.getLogger(__name__)


class LogDirEvents:
    """Writes the notifications of one broker."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id

    def announce(self) -> None:
        """Notify the controller of a failed log directory. Never raises."""
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
                continue  # A second notification is harmless.


def _failed(failure: Failure) -> None:
    # After the next registration the controller asks the broker for all its replicas anyway.
    if not failure.check(SessionExpired):
        _log.error("notifying the controller of a failed log directory failed: %s", failure.getErrorMessage())
