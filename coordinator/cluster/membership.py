"""This broker's registration in the cluster: its ephemeral znode in /brokers/ids, kept while the broker runs.

The znode's czxid is the *broker epoch*. Every registration has a new one, which tells requests for an earlier
registration apart (KIP-380). When the connection to ZooKeeper is lost, other brokers may already consider
this one dead, so listeners are notified at once. When the session has expired, or another process has removed
the znode, the broker registers again under a new epoch; the registration also has the first epoch of this
process, which shows that the broker has not restarted and has lost no records.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.cluster.identity import prepare_layout
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH, BrokerInfo, broker_path, encode_broker
from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    NodeExists,
    NoNode,
    SessionExpired,
    WatchEvent,
    ZooKeeper,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)

_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class BrokerIdInUse(Exception):
    """Another live broker is registered under this broker id."""


class MembershipListener(Protocol):
    """Receives changes of this broker's registration. None of the methods may raise."""

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        """The broker is registered under `broker_epoch` until `session` expires."""
        ...

    def suspended(self) -> None:
        """The connection to ZooKeeper is lost: the session may expire, and others may take over, at any
        moment."""
        ...

    def resumed(self) -> None:
        """The connection is back with the same session: the broker has stayed registered."""
        ...

    def expired(self) -> None:
        """React to the loss of the registration. The broker registers again: in its next session, or in the
        same one if another process has removed its znode."""
        ...

    def registration_failed(self, error: Exception) -> None:
        """After an expiry the broker could not register again; it does not retry."""
        ...


class ClusterMembership:
    """Registers a broker and keeps it registered: a `SessionListener` of the ZooKeeper client.

    `info()` is called at each registration. `conflict_timeout_ms` is the maximum wait for an existing znode
    of the same broker id to disappear: a broker that was killed and restarted waits for its old session to
    expire.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        date_ms: TimeOfDay,
        info: Callable[[], BrokerInfo],
        *,
        conflict_timeout_ms: int,
    ) -> None:
        self.broker_epoch = NO_EPOCH
        self.is_connected = False
        """Whether the broker is registered and connected to ZooKeeper."""
        self.start_epoch = NO_EPOCH
        """The broker epoch of this process's first registration."""
        self._zookeeper = zookeeper
        self._clock = clock
        self._date_ms = date_ms
        self._info = info
        self._conflict_timeout_ms = conflict_timeout_ms
        self._listeners: list[MembershipListener] = []
        self._started: Deferred[int] | None = None
        self._registered_on: ZooKeeperSession | None = None
        self._data = b""
        """The data that this broker has written in its registration."""
        self._closed = False

    @property
    def is_registered(self) -> bool:
        """Whether the broker is registered: it has been, and that session has not expired as it knows. Also
        true while the connection to ZooKeeper is lost."""
        return self._registered_on is not None

    def add_listener(self, listener: MembershipListener) -> None:
        self._listeners.append(listener)

    def start(self) -> Deferred[int]:
        """Register for the first time; fires with the broker epoch. Fails with `BrokerIdInUse`.

        If the session expires meanwhile, registration is tried again on the next one.
        """
        assert self._started is None
        self._started = Deferred()
        self._register_on(self._zookeeper.session)
        return self._started

    def close(self) -> None:
        """Stop registering. The znode ends with the session, when the ZooKeeper client is closed."""
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
        info = replace(self._info(), start_epoch=self.start_epoch)
        path = broker_path(info.broker_id)
        data = self._data = encode_broker(info, self._date_ms())
        deadline = self._clock.seconds() + self._conflict_timeout_ms / 1000
        while True:
            try:
                _, stat = await session.create(path, data, ephemeral=True)
                return stat.czxid
            except ZooKeeperConnectionLost:
                continue  # If the znode was created after all, the next attempt finds it as this session's.
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
            "broker id %d is still registered by another session; waiting for that session to end", broker_id
        )
        timer = self._clock.callLater(max(0.0, deadline - self._clock.seconds()), _fire, gone)
        await gone
        if timer.active():
            timer.cancel()
        elif await session.exists(path) is not None:
            raise BrokerIdInUse(
                f"broker id {broker_id} belongs to a live broker: it was still registered after "
                f"{self._conflict_timeout_ms} ms; give this broker another broker.id"
            )

    def _succeeded(self, session: ZooKeeperSession, epoch: int) -> None:
        if self._closed or session is not self._zookeeper.session:
            return
        if self.start_epoch == NO_EPOCH:
            # Earlier registrations of this process that expired before they were known do not count.
            self.start_epoch = epoch
        self._registered_on = session
        self.broker_epoch = epoch
        self.is_connected = True
        _log.info("registered with ZooKeeper, broker epoch %d", epoch)
        for listener in self._listeners:
            listener.registered(session, epoch)
        if self._started is not None and not self._started.called:
            self._started.callback(epoch)
        self._watch(session, epoch)

    # The znode while the session lives

    def _watch(self, session: ZooKeeperSession, epoch: int) -> None:
        ensureDeferred(self._guard(session, epoch)).addErrback(self._guarding_failed, session, epoch)

    async def _guard(self, session: ZooKeeperSession, epoch: int) -> None:
        """Watch this registration: restore its data if it is overwritten, register again once it is gone."""
        path = broker_path(self._info().broker_id)
        while session is self._registered_on and epoch == self.broker_epoch and not self._closed:
            changed: Deferred[None] = Deferred()
            try:
                data, stat = await session.get(path, _firing(changed))
            except NoNode:
                self._removed(session, epoch)
                return
            if stat.czxid != epoch:
                self._removed(session, epoch)
                return
            if data == self._data:
                await changed
                continue
            _log.error("another process has overwritten %s; this broker writes its own data again", path)
            with contextlib.suppress(NoNode, BadVersion, ZooKeeperConnectionLost):
                await session.set(path, self._data, stat.version)

    def _removed(self, session: ZooKeeperSession, epoch: int) -> None:
        if session is not self._registered_on or epoch != self.broker_epoch or self._closed:
            return
        _log.warning(
            "another process has removed this broker's registration (broker epoch %d) while its ZooKeeper "
            "session lives; registering again",
            epoch,
        )
        self._registered_on = None
        self.is_connected = False
        for listener in self._listeners:
            listener.expired()
        self._register_on(session)

    def _guarding_failed(self, failure: Failure, session: ZooKeeperSession, epoch: int) -> None:
        if isinstance(failure.value, SessionExpired) or session is not self._registered_on:
            return
        _log.error("watching this broker's registration failed; retrying: %s", failure.getErrorMessage())
        self._clock.callLater(_RETRY_S, self._watch, session, epoch)

    def _failed(self, session: ZooKeeperSession, failure: Failure) -> None:
        if isinstance(failure.value, SessionExpired) or self._closed:
            return  # Registration on the next session has begun already.
        if self._started is not None and not self._started.called:
            self._started.errback(failure)
            return
        _log.error("registering with ZooKeeper again failed: %s", failure.getErrorMessage())
        error = failure.value
        for listener in self._listeners:
            listener.registration_failed(error if isinstance(error, Exception) else RuntimeError(str(error)))


def _fire(deferred: Deferred[None]) -> None:
    if not deferred.called:
        deferred.callback(None)


def _firing(deferred: Deferred[None]) -> Callable[[WatchEvent], None]:
    return lambda event: _fire(deferred)
