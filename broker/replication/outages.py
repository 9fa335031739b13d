"""Reactions of this broker to the loss of ZooKeeper or of a log directory."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.coordinator.cluster.log_dir_events import LogDirEvents
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession

_log = logging.getLogger(__name__)


class ZooKeeperOutages:
    """A `MembershipListener`: while this broker has no connection to ZooKeeper, and until the controller has
    said what it leads in a new registration, no acks=all write is acknowledged.

    The broker writes again once it is connected *and* its orders have come. After an expiry the orders come
    while it is connected, while its new connection is broken, or before it has itself learned of its new
    registration: the order of these events does not matter.

    `fatal(why)` is called if this broker cannot continue.
    """

    def __init__(self, replicas: Replicas, right: RightToConfirm, fatal: Callable[[str], None]) -> None:
        self._replicas = replicas
        self._right = right
        self._fatal = fatal
        self._is_connected = False
        self._broker_epoch = NO_EPOCH
        """The epoch of the present registration; NO_EPOCH while there is none."""
        self._ordered_epoch = NO_EPOCH
        """The latest registration for which orders have come."""

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        self._is_connected, self._broker_epoch = True, broker_epoch
        self._resume_if_allowed()

    def suspended(self) -> None:
        _log.warning("ZooKeeper connection lost; acks=all writes are refused until it returns")
        self._is_connected = False
        self._replicas.suspend()

    def resumed(self) -> None:
        self._is_connected = True
        if self._right.awaits_orders:
            _log.info(
                "ZooKeeper connection restored; acks=all writes are refused until the controller has said "
                "what this broker leads"
            )
        else:
            _log.info("ZooKeeper connection restored in the same session; acks=all writes are accepted again")
        self._resume_if_allowed()

    def expired(self) -> None:
        _log.warning("this broker is no longer registered in ZooKeeper; registering it again")
        self._is_connected, self._broker_epoch = False, NO_EPOCH
        self._replicas.suspend()
        self._right.await_orders()

    def registration_failed(self, error: Exception) -> None:
        self._fatal(f"this broker could not register again: {error}")

    def ordered(self, broker_epoch: int) -> None:
        """The broker has taken up what it leads and follows in its registration of this epoch."""
        self._ordered_epoch = max(broker_epoch, self._ordered_epoch)
        self._resume_if_allowed()

    def _resume_if_allowed(self) -> None:
        if NO_EPOCH < self._broker_epoch <= self._ordered_epoch:
            self._right.orders_came()
        if self._is_connected and not self._right.awaits_orders:
            self._replicas.resume()


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
