"""A broker's lease: how long it may answer for what it leads without asking anybody.

A broker that is cut off from ZooKeeper does not learn that its session has expired and that others lead its
partitions; one whose process stood still does not know for how long. Each broker therefore holds a lease
that ends, by its own clock, before its session can have expired. It renews the lease by writing a znode, or
by a read if ZooKeeper is a server that runs alone.

In an ensemble a read would prove less than a write: a server that has lost its leader still answers reads
while the leader ends the session, and so does a leader that has been replaced. A server that runs alone ends
sessions itself: its answer to any request proves that it counts the session's timeout from then on. It says
with each of these answers that it still runs alone.

The lease counts from the moment at which the request was sent. ZooKeeper ends a session no sooner than its
timeout after the leader last heard of it, which lags by the time from one write to the next and half a tick
at most; the third of the timeout that the lease leaves out covers both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.cluster.identity import create_if_missing
from holdfast_log.coordinator.znodes.leases import lease_path
from holdfast_log.coordinator.zookeeper.interface import (
    NoNode,
    SessionExpired,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)

LEASE_SHARE = 2 / 3
"""The part of the session timeout for which a renewal extends the lease."""
RENEWALS_PER_TIMEOUT = 6

_log = logging.getLogger(__name__)


class MembershipLease:
    """This broker's lease: a `MembershipListener` that renews it while the broker is registered.

    Ask `is_held` at the moment of each answer: when a process that stood still goes on, its timers have not
    run yet.
    """

    def __init__(self, clock: Clock, broker_id: int) -> None:
        self._clock = clock
        self._path = lease_path(broker_id)
        self._listeners: list[Callable[[], None]] = []
        self._session: ZooKeeperSession | None = None
        """The session on which the broker is registered."""
        self._reads_prove: bool | None = None
        """Whether ZooKeeper runs alone, so that a read renews the lease; None until it has said so on the
        present connection."""
        self._held_until_s = clock.seconds()
        self._is_reported = False
        """Whether the lease was held when the listeners were last called."""
        self._next_renewal = Alarm(clock, self._renew)
        self._end = Alarm(clock, self._ended)
        self._renewals = 0

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each end and each return of the lease. It must not raise."""
        self._listeners.append(listener)

    def is_held(self) -> bool:
        """Whether this broker's session cannot have expired yet."""
        return self._clock.seconds() < self._held_until_s

    # MembershipListener

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        self._session = session
        self._reads_prove = None
        self._renew()

    def suspended(self) -> None:
        pass  # The lease runs until its end: the session cannot have expired before.

    def resumed(self) -> None:
        self._reads_prove = None
        if self._session is not None:
            self._renew()

    def expired(self) -> None:
        self.close()
        self._held_until_s = self._clock.seconds()
        self._lapse()

    def registration_failed(self, error: Exception) -> None:
        pass

    def close(self) -> None:
        """Renew no more."""
        self._session = None
        self._renewals += 1
        self._next_renewal.cancel()

    # Renewals

    def _renew(self) -> None:
        """Send a request that proves that the session lives. Of several under way, only the last one leads to
        the next."""
        self._next_renewal.cancel()
        session = self._session
        if session is None:
            return
        self._renewals += 1
        number, sent_s = self._renewals, self._clock.seconds()
        proven = ensureDeferred(self._prove(session))
        proven.addCallbacks(
            self._renewed, self._failed, callbackArgs=(session, number, sent_s), errbackArgs=(number, session)
        )

    async def _prove(self, session: ZooKeeperSession) -> None:
        if self._reads_prove:
            if await session.is_alone():
                return
            self._reads_prove = False
        await _write(session, self._path)

    def _learn_kind(self, session: ZooKeeperSession) -> None:
        def learn(is_alone: bool) -> None:
            if session is self._session and self._reads_prove is None:
                self._reads_prove = is_alone

        session.is_alone().addCallbacks(learn, lambda failure: None)

    def _renewed(self, _: None, session: ZooKeeperSession, number: int, sent_s: float) -> None:
        if session is not self._session:
            return
        timeout_s = session.timeout_ms / 1000
        self._extend(sent_s + timeout_s * LEASE_SHARE)
        if self._reads_prove is None:
            self._learn_kind(session)
        if number == self._renewals:
            pause_s = max(0.0, sent_s + timeout_s / RENEWALS_PER_TIMEOUT - self._clock.seconds())
            self._next_renewal.set(pause_s)

    def _failed(self, failure: Failure, number: int, session: ZooKeeperSession) -> None:
        if failure.check(SessionExpired) or number != self._renewals:
            return
        if not failure.check(ZooKeeperConnectionLost):
            _log.error("The lease could not be renewed; trying again: %s", failure.getErrorMessage())
        self._next_renewal.set(session.timeout_ms / 1000 / RENEWALS_PER_TIMEOUT)

    # Its end

    def _extend(self, until_s: float) -> None:
        self._held_until_s = max(self._held_until_s, until_s)
        if not self.is_held():
            return  # The answer came too late.
        if not self._is_reported:
            self._report(is_held=True)
        if not self._end.is_set:
            self._end.set(self._held_until_s - self._clock.seconds())

    def _ended(self) -> None:
        left_s = self._held_until_s - self._clock.seconds()
        if left_s > 0:
            self._end.set(left_s)
        else:
            self._lapse()

    def _lapse(self) -> None:
        if self._is_reported:
            _log.warning(
                "ZooKeeper has not answered for so long that this broker may have been replaced: it confirms "
                "no ownership until it has heard of ZooKeeper"
            )
            self._report(is_held=False)

    def _report(self, *, is_held: bool) -> None:
        self._is_reported = is_held
        for listener in self._listeners:
            listener()


async def _write(session: ZooKeeperSession, path: str) -> None:
    try:
        await session.set(path, b"")
    except NoNode:
        await create_if_missing(session, path)
