"""The ZooKeeper client of a process on kazoo: one session after another, each with its own kazoo client."""

from __future__ import annotations

import logging
import ssl

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.zookeeper.access import Identity
from holdfast_log.coordinator.zookeeper.call_queue import CallFromThread
from holdfast_log.coordinator.zookeeper.interface import SessionListener
from holdfast_log.coordinator.zookeeper.kazoo_session import CONNECTED, SUSPENDED, KazooSession
from holdfast_log.coordinator.zookeeper.session_memory import SessionKey, SessionMemory

_log = logging.getLogger(__name__)


def split_connect(connect: str) -> tuple[str, str]:
    """The hosts and the chroot ("" for none) of a `zookeeper.connect` value such as `a:2181,b:2181/kafka`.

    Raises ValueError if there is no host.
    """
    hosts, slash, chroot = connect.strip().partition("/")
    if not hosts.strip():
        raise ValueError("must be a list of host:port, with the chroot path, if any, after the last")
    return hosts, (slash + chroot).rstrip("/")


class KazooZooKeeper:
    """Implements `coordinator.zookeeper.interface.ZooKeeper`.

    `connect` is `host:port,…[/chroot]`; the chroot is created if it is missing. With a `memory`, the session
    of a killed earlier process is closed at start instead of lasting until its timeout. `identity` is how all
    sessions authenticate themselves, and who may use their znodes; by default everybody. `tls` is for
    ZooKeeper's secure port; None: the port without TLS.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        call_from_thread: CallFromThread,
        memory: SessionMemory | None = None,
        identity: Identity | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.hosts, self.chroot = split_connect(connect)
        self.session_timeout_ms = session_timeout_ms
        self._call_from_thread = call_from_thread
        self._memory = memory
        self._identity = identity
        self._tls = tls
        self._listeners: list[SessionListener] = []
        self._closed = False
        self._former: KazooSession | None = None
        """The session of an earlier process, until it is closed."""
        self._session = self._new_session()

    @property
    def session(self) -> KazooSession:
        return self._session

    def add_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        key = None if self._memory is None else self._memory.recall()
        if key is None:
            self._session.start()
        else:
            _log.info("closing ZooKeeper session 0x%x of an earlier process that was killed", key.session_id)
            self._former = self._new_session(key)
            self._former.start()

    def close(self) -> Deferred[None]:
        self._closed = True
        closed = self._session.close()
        if self._former is not None:
            former, self._former = self._former, None
            closed.addCallback(lambda _: former.close())
        elif self._memory is not None:
            memory = self._memory
            closed.addCallback(lambda _: memory.forget())
        return closed

    def _new_session(self, key: SessionKey | None = None) -> KazooSession:
        return KazooSession(
            self.hosts,
            self.chroot,
            self.session_timeout_ms,
            self._call_from_thread,
            self._changed,
            key,
            self._identity,
            self._tls,
        )

    def _end_former(self, former: KazooSession) -> None:
        """Close the session: it is the former one, or a new one if the former had expired."""
        former.close().addCallback(self._former_ended, former)

    def _former_ended(self, _: None, former: KazooSession) -> None:
        if self._former is former:
            self._former = None
            self._session.start()

    def _changed(self, session: KazooSession, state: str) -> None:
        if session is self._former and state == CONNECTED:
            self._end_former(session)
        if self._closed or session is not self._session:
            return
        if state == CONNECTED:
            if self._memory is not None:
                self._memory.remember(SessionKey(session.session_id, session.password))
            for listener in self._listeners:
                listener.session_connected(session)
        elif state == SUSPENDED:
            _log.warning(
                "the connection to ZooKeeper is lost; session 0x%x is suspended until it is back",
                session.session_id,
            )
            for listener in self._listeners:
                listener.session_suspended(session)
        else:
            _log.warning("ZooKeeper session 0x%x has expired; opening a new one", session.session_id)
            self._session = self._new_session()
            for listener in self._listeners:
                listener.session_expired(session)
            session.close()
            self._session.start()
