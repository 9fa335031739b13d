"""Reactions of this broker to the loss of ZooKeeper or of a log directory."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.log.manager import LogManager
from broker.replication.replicas import Replicas
from broker.replication.right_to_confirm import RightToConfirm
from coordinator.cluster.log_dir_events import LogDirEvents
from coordinator.zookeeper.interface import ZooKeeperSession

_log = logging.getLogger(__name__)


class ZooKeeperOutages:
    """A `MembershipListener`: while this broker has no connection to ZooKeeper, and until the controller has
    said what it leads in a new registration, no acks=all write is acknowledged.

    `fatal(why)` is called if this broker cannot continue.
    """

    def __init__(self, replicas: Replicas, right: RightToConfirm, fatal: Callable[[str], None]) -> None:
        self._replicas = replicas
        self._right = right
        self._fatal = fatal

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        # The controller's next LeaderAndIsr lists what this broker leads, and ends the suspension.
        pass

    def suspended(self) -> None:
        _log.warning("ZooKeeper connection lost; acks=all writes are refused until it returns")
        self._replicas.suspend()

    def resumed(self) -> None:
        _log.info("ZooKeeper connection restored in the same session; acks=all writes are accepted again")
        self._replicas.resume()

    def expired(self) -> None:
        _log.warning("this broker is no longer registered in ZooKeeper; registering it again")
        self._replicas.suspend()
        self._right.await_orders()

    def registration_failed(self, error: Exception) -> None:
        self._fatal(f"this broker could not register again: {error}")


class DirectoryOutages:
    """Reports a failed log directory to the controller. Calls `fatal(why)` if none is left."""

    def __init__(self, logs: LogManager, events: LogDirEvents, fatal: Callable[[str], None]) -> None:
        self._logs = logs
        self._events = events
        self._fatal = fatal

    def directory_failed(self, path: str) -> None:
        if self._logs.live_directories:
            self._events.announce()
        else:
            self._fatal("all log directories have failed")
