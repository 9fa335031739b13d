"""Reactions of this broker to the loss of ZooKeeper or of a log directory."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.coordinator.cluster.log_dir_events import LogDirEvents
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession

_log = logging.getLogger(__name__)


class ZooKeeperOutages:
    """A `MembershipListener`: after this broker's registration has ended, it waits until the controller has
    said what it leads in the next one.

    The orders come while the broker is connected, while its new connection is broken, or before it has itself
    learned of its new registration: the order of these events does not matter. What a leader does without
    ZooKeeper is decided by its lease (`broker.replication.right_to_acknowledge`, `right_to_confirm`).

    `fatal(why)` is called if this broker cannot continue.
    """

    def __init__(self, right: RightToConfirm, fatal: Callable[[str], None]) -> None:
        self._right = right
        self._fatal = fatal
        self._broker_epoch = NO_EPOCH
        """The epoch of the present registration; NO_EPOCH while there is none."""
        self._ordered_epoch = NO_EPOCH
        """The latest registration for which orders have come."""

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        self._go_on_if_ordered()

    def suspended(self) -> None:
        _log.warning(
            "ZooKeeper connection lost. Writes go on; once its lease has ended, this broker acknowledges "
            "writes with acks=all only where another replica is in sync, and confirms no owners"
        )

    def resumed(self) -> None:
        if self._right.awaits_orders:
            _log.info(
                "ZooKeeper connection restored; the controller has not said yet what this broker leads in "
                "its new registration"
            )
        else:
            _log.info("ZooKeeper connection restored in the same session")

    def expired(self) -> None:
        _log.warning("this broker is no longer registered in ZooKeeper; registering it again")
        self._broker_epoch = NO_EPOCH
        self._right.await_orders()

    def registration_failed(self, error: Exception) -> None:
        self._fatal(f"this broker could not register again: {error}")

    def ordered(self, broker_epoch: int) -> None:
        """The broker has taken up what it leads and follows in its registration of this epoch."""
        self._ordered_epoch = max(broker_epoch, self._ordered_epoch)
        self._go_on_if_ordered()

    def _go_on_if_ordered(self) -> None:
        if NO_EPOCH < self._broker_epoch <= self._ordered_epoch:
            self._right.orders_came()


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
