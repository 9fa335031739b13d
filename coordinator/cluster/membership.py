"""This broker's place in the cluster: its ephemeral znode, kept as long as the broker runs.

The znode's czxid is the *broker epoch*. Every registration has another, so that a request meant for an
earlier life of a broker is told apart (KIP-380). When the connection to ZooKeeper is lost, the broker may
already be dead in the eyes of the others: listeners are told at once. When the session has expired, the
broker registers anew under a new epoch, and names the first epoch of this process beside it: so the others
know that it has not started anew, and has lost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from coordinator.clock import Clock, now_ms
from coordinator.cluster.identity import prepare_layout
from coordinator.znodes.brokers import NO_EPOCH, BrokerInfo, broker_path, encode_broker
from coordinator.zookeeper.interface import (
    NodeExists,
    SessionExpired,
    WatchEvent,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)

_log = logging.getLogger(__name__)


class BrokerIdInUse(Exception):
    """Another live broker is registered under this id."""


class MembershipListener(Protocol):
    """Is told how this broker stands with the cluster. None of the methods may raise."""

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        """The broker is a member, under this epoch, as long as this session lives."""
        ...

    def suspended(self) -> None:
        """The connection to ZooKeeper is lost: others may take over any moment."""
        ...

    def resumed(self) -> None:
        """The connection is back, and the session with it: the broker has been a member all along."""
        ...

    def expired(self) -> None:
        """The broker is no member any more. It registers again as soon as there is a new session."""
        ...

    def registration_failed(self, error: Exception) -> None:
        """After an expiry the broker could not register again, and it will not try any more."""
        ...


class ClusterMembership:
    """Registers a broker and keeps it registered: a `SessionListener` of the ZooKeeper client.

    `info` is asked at each registration. `conflict_timeout_ms` is how long a znode of the same id may take to
    vanish: a broker that was killed and started again waits here for its old session to run out.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        info: Callable[[], BrokerInfo],
        *,
        conflict_timeout_ms: int,
    ) -> None:
        self.broker_epoch = NO_EPOCH
        self.is_connected = False
        """Whether the broker is registered and in contact with ZooKeeper."""
        self._zookeeper = zookeeper
        self._clock = clock
        self._info = info
        self._conflict_timeout_ms = conflict_timeout_ms
        self._listeners: list[MembershipListener] = []
        self._start_epoch = NO_EPOCH
        self._started: Deferred[int] | None = None
        self._registered_on: ZooKeeperSession | None = None
        self._closed = False

    def add_listener(self, listener: MembershipListener) -> None:
        self._listeners.append(listener)

    def start(self) -> Deferred[int]:
        """Register for the first time; the broker epoch. Fails with `BrokerIdInUse`.

        A session that expires meanwhile is followed by another attempt on the next.
        """
        assert self._started is None
        self._started = Deferred()
        self._register_on(self._zookeeper.session)
        return self._started

    def close(self) -> None:
        """Register no more. The znode goes with the session, when the ZooKeeper client is closed."""
        self._closed = True

    # SessionListener

    def session_connected(self, session: ZooKeeperSession) -> None:
        if session is self._registered_on and not self.is_connected:
            self.is_connected = True
            for listener in self._listeners:
                listener.resumed()

    def session_suspended(self, session: ZooKeeperSession) -> None:
        if session is self._registered_on:
            self.is_connected = False
            for listener in self._listeners:
                listener.suspended()

    def session_expired(self, session: ZooKeeperSession) -> None:
        was_registered = session is self._registered_on
        self._registered_on = None
        self.is_connected = False
        if was_registered:
            for listener in self._listeners:
                listener.expired()
        if self._started is not None and not self._closed:
            self._register_on(self._zookeeper.session)

    # Registration

    def _register_on(self, session: ZooKeeperSession) -> None:
        ensureDeferred(self._register(session)).addCallbacks(
            lambda epoch: self._succeeded(session, epoch), lambda failure: self._failed(session, failure)
        )

    async def _register(self, session: ZooKeeperSession) -> int:
        await prepare_layout(session)
        info = replace(self._info(), start_epoch=self._start_epoch)
        path = broker_path(info.broker_id)
        data = encode_broker(info, now_ms(self._clock))
        deadline = self._clock.seconds() + self._conflict_timeout_ms / 1000
        while True:
            try:
                _, stat = await session.create(path, data, ephemeral=True)
                return stat.czxid
            except ZooKeeperConnectionLost:
                continue  # If it was made after all, it is found now, as this session's.
            except NodeExists:
                gone: Deferred[None] = Deferred()
                found = await session.exists(path, _firing(gone))
            if found is None:
                continue
            if found.ephemeral_owner == session.session_id:
                return found.czxid
            await self._wait_until_gone(info.broker_id, session, path, gone, deadline)

    async def _wait_until_gone(
        self, broker_id: int, session: ZooKeeperSession, path: str, gone: Deferred[None], deadline: float
    ) -> None:
        _log.warning(
            "broker id %d is still registered by another session; waiting for that to run out", broker_id
        )
        timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), _fire, gone)
        await gone
        if timer.active():
            timer.cancel()
        elif await session.exists(path) is not None:
            raise BrokerIdInUse(
                f"broker id {broker_id} belongs to a broker that is alive: it was still registered after "
                f"{self._conflict_timeout_ms} ms; give this broker another broker.id"
            )

    def _succeeded(self, session: ZooKeeperSession, epoch: int) -> None:
        if self._closed or session is not self._zookeeper.session:
            return
        if self._start_epoch == NO_EPOCH:
            # Of a registration that was over before it was known, the next one did not know either.
            self._start_epoch = epoch
        self._registered_on = session
        self.broker_epoch = epoch
        self.is_connected = True
        _log.info("registered with ZooKeeper, broker epoch %d", epoch)
        for listener in self._listeners:
            listener.registered(session, epoch)
        if self._started is not None and not self._started.called:
            self._started.callback(epoch)

    def _failed(self, session: ZooKeeperSession, failure: Failure) -> None:
        if isinstance(failure.value, SessionExpired) or self._closed:
            return  # The next session's registration has begun already.
        if self._started is not None and not self._started.called:
            self._started.errback(failure)
            return
        _log.error("cannot register with ZooKeeper again: %s", failure.getErrorMessage())
        error = failure.value
        for listener in self._listeners:
            listener.registration_failed(error if isinstance(error, Exception) else RuntimeError(str(error)))


def _fire(deferred: Deferred[None]) -> None:
    if not deferred.called:
        deferred.callback(None)


def _firing(deferred: Deferred[None]) -> Callable[[WatchEvent], None]:
    return lambda event: _fire(deferred)
