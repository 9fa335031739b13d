"""The real ZooKeeper, by kazoo. The only file that knows kazoo; its threads end here.

Kazoo runs one thread for each client. Its callbacks do nothing but hand over to the reactor, from that one
thread, so that watches and answers keep ZooKeeper's order.

Kazoo would go on with a new session by itself once one has expired, and what was asked for in the belief of
the old session would then happen in the new. So a kazoo client here lives for exactly one session: on
expiry it is barred, in kazoo's own thread, from connecting ever again, and another client is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from coordinator.handover import CallFromThread, Handover
from coordinator.jute import MultiRead, MultiWrite, found_all, made_all
from coordinator.session_memory import SessionKey, SessionMemory
from coordinator.store import (
    ANY_VERSION,
    AccessDenied,
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    RequestRefused,
    SessionExpired,
    SessionListener,
    Stat,
    Watch,
    WatchEvent,
    WatchKind,
    ZooKeeperError,
)

T = TypeVar("T")


_log = logging.getLogger(__name__)

_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (NoNodeError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
    (NoAuthError, AccessDenied),
    (SessionExpiredError, SessionExpired),
    (ConnectionLoss, ConnectionLost),
    (ConnectionClosedError, SessionExpired),  # Kazoo says this of a client that is closed for good.
)
_RECONNECT_DELAY_S = 0.05
_RECONNECT_DELAY_MAX_S = 1.0


def split_connect(connect: str) -> tuple[str, str]:
    """The hosts and the chroot ("" for none) of a `zookeeper.connect` value such as `a:2181,b:2181/kafka`.

    Raises ValueError where there is no host.
    """
    hosts, slash, chroot = connect.strip().partition("/")
    if not hosts.strip():
        raise ValueError("a list of host:port, with a path behind the last if there is a chroot")
    return hosts, (slash + chroot).rstrip("/")


class KazooZooKeeper:
    """Implements `coordinator.store.ZooKeeper`.

    `connect` is `host:port,…[/chroot]`; the chroot is made where it is missing. With a `memory`, what a
    process before this one has left in ZooKeeper is removed at the start, instead of when its session has run
    out.
    """

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        call_from_thread: CallFromThread,
        memory: SessionMemory | None = None,
    ) -> None:
        self.hosts, self.chroot = split_connect(connect)
        self.session_timeout_ms = session_timeout_ms
        self._call_from_thread = call_from_thread
        self._memory = memory
        self._listeners: list[SessionListener] = []
        self._closed = False
        self._former: KazooSession | None = None
        """The session of a process before this one, until it has been ended."""
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
            _log.info("ending ZooKeeper session 0x%x, left by a broker that was killed", key.session_id)
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
            self.hosts, self.chroot, self.session_timeout_ms, self._call_from_thread, self._changed, key
        )

    def _end_former(self, former: KazooSession) -> None:
        """Being connected it is the former session, or a new one because that had run out: let it end."""
        former.close().addCallback(self._former_ended, former)

    def _former_ended(self, _: None, former: KazooSession) -> None:
        if self._former is former:
            self._former = None
            self._session.start()

    def _changed(self, session: KazooSession, state: str) -> None:
        if session is self._former and state == KazooState.CONNECTED:
            self._end_former(session)
        if self._closed or session is not self._session:
            return
        if state == KazooState.CONNECTED:
            if self._memory is not None:
                self._memory.remember(SessionKey(session.session_id, session.password))
            for listener in self._listeners:
                listener.session_connected(session)
        elif state == KazooState.SUSPENDED:
            _log.warning("the connection to ZooKeeper is lost; session 0x%x is suspended", session.session_id)
            for listener in self._listeners:
                listener.session_suspended(session)
        else:
            _log.warning("ZooKeeper session 0x%x has expired", session.session_id)
            self._session = self._new_session()
            for listener in self._listeners:
                listener.session_expired(session)
            session.close()
            self._session.start()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs kazoo's callbacks at once, on the connection's thread, and bars an expired client from connecting.

    As long as a handler does not say that it is running, kazoo calls back directly.
    """

    def __init__(self) -> None:
        super().__init__()
        self.barred = False

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> Any:
        if self.barred:
            raise KazooTimeoutError("this session has expired")
        return super().create_connection(*args, **options)


class KazooSession:
    """Implements `coordinator.store.Session` on a kazoo client of its own."""

    def __init__(
        self,
        hosts: str,
        chroot: str,
        timeout_ms: int,
        call_from_thread: CallFromThread,
        changed: Callable[[KazooSession, str], None],
        key: SessionKey | None = None,
    ) -> None:
        """Opens a session of its own at the start; with a `key`, takes that one up, if it still is."""
        self.expired = False
        self.session_id = 0
        self.password = b""
        self._chroot = chroot
        self._hand_over = Handover(call_from_thread)
        self._changed = changed
        self._state = ""
        self._waiting: list[Callable[[], None]] | None = []
        """What was asked for before the first connection; None once there has been one."""
        self._handler = _Handler()
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            client_id=None if key is None else (key.session_id, key.password),
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_DELAY_S, max_delay=_RECONNECT_DELAY_MAX_S
            ),
        )
        self._client.add_listener(self._state_changed)

    def start(self) -> None:
        self._client.start_async()

    def close(self) -> Deferred[None]:
        """End the session. Waiting for kazoo's thread blocks, so another thread does it."""
        closed: Deferred[None] = Deferred()
        self._expire()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:  # The server will expire what could not be closed.
                _log.warning("ZooKeeper session 0x%x was not closed in order: %s", self.session_id, error)
            self._hand_over(closed.callback, None)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        return closed

    # Operations

    def get(self, path: str, watch: Watch | None = None) -> Deferred[tuple[bytes, Stat]]:
        def ask() -> Any:
            return self._client.get_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, lambda answer: (answer[0], _stat(answer[1])))

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        if not paths:
            return succeed([])
        request = MultiRead([self._full(path) for path in paths])
        return self._read(paths[0], lambda: self._call(request), lambda found: found_all(paths, found))

    def exists(self, path: str, watch: Watch | None = None) -> Deferred[Stat | None]:
        def ask() -> Any:
            return self._client.exists_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, lambda answer: None if answer is None else _stat(answer))

    def children(self, path: str, watch: Watch | None = None) -> Deferred[list[str]]:
        def ask() -> Any:
            return self._client.get_children_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, sorted)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[tuple[str, Stat]]:
        def ask() -> Any:
            return self._client.create_async(
                self._full(path), data, ephemeral=ephemeral, sequence=sequence, include_data=True
            )

        return self._write(path, ask, lambda answer: (self._relative(answer[0]), _stat(answer[1])))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        return self._write(path, lambda: self._client.set_async(self._full(path), data, version), _stat)

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        return self._write(
            path, lambda: self._client.delete_async(self._full(path), version), lambda answer: None
        )

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        first = operations[0].path if operations else ""
        request = MultiWrite(operations, self._chroot)
        return self._write(
            first, lambda: self._call(request), lambda made: made_all(operations, self._chroot, made)
        )

    def _call(self, request: MultiRead | MultiWrite) -> Any:
        """Have kazoo send a request that it does not know itself."""
        answer = self._handler.async_result()
        self._client._call(request, answer)
        return answer

    # Between the two threads

    def _read(self, path: str, ask: Callable[[], Any], convert: Callable[[Any], T]) -> Deferred[T]:
        """Ask, and ask again whenever the connection is lost: reading twice does no harm."""
        answered: Deferred[T] = Deferred()

        def attempt() -> None:
            self._ask(path, ask, convert).addCallbacks(answered.callback, failed)

        def failed(failure: Failure) -> None:
            if isinstance(failure.value, ConnectionLost) and not self.expired:
                attempt()
            else:
                answered.errback(failure)

        attempt()
        return answered

    def _write(self, path: str, ask: Callable[[], Any], convert: Callable[[Any], T]) -> Deferred[T]:
        return self._ask(path, ask, convert)

    def _ask(self, path: str, ask: Callable[[], Any], convert: Callable[[Any], T]) -> Deferred[T]:
        answered: Deferred[T] = Deferred()

        def send() -> None:
            if self.expired:
                answered.errback(SessionExpired(path))
            else:
                ask().rawlink(lambda result: self._hand_over(answer, result))

        def answer(result: Any) -> None:
            try:
                converted = convert(result.get_nowait())
            except ZooKeeperError as error:
                answered.errback(error)
            except KazooException as error:
                # Kazoo may fail what is asked for before it reports the loss; here the loss is told first.
                if isinstance(error, ConnectionLoss):
                    self._on_state(KazooState.SUSPENDED, None)
                elif isinstance(error, SessionExpiredError):
                    self._on_state(KazooState.LOST, None)
                answered.errback(_typed(error, path))
            else:
                answered.callback(converted)

        if self._waiting is None or self.expired:
            send()
        else:
            self._waiting.append(send)
        return answered

    def _watcher(self, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        if watch is None:
            return None

        def fire(event: WatchEvent) -> None:
            if not self.expired:
                watch(event)

        def seen(event: WatchedEvent) -> None:
            self._hand_over(fire, self._watch_event(event))

        return seen

    def _watch_event(self, event: WatchedEvent) -> WatchEvent:
        if event.path is None:
            return WatchEvent(WatchKind.LOST, "")
        kind = {"CREATED": WatchKind.CREATED, "DELETED": WatchKind.DELETED, "CHANGED": WatchKind.CHANGED}
        return WatchEvent(kind.get(event.type, WatchKind.CHILDREN), self._relative(event.path))

    def _state_changed(self, state: str) -> None:
        """On kazoo's thread. An expired client is barred here, before it could connect again."""
        if state == KazooState.LOST:
            self._handler.barred = True
        client_id = self._client.client_id if state == KazooState.CONNECTED else None
        self._hand_over(self._on_state, state, client_id)

    def _on_state(self, state: str, client_id: tuple[int, bytes] | None) -> None:
        if self.expired or state == self._state:
            return
        self._state = state
        if client_id is not None:
            self.session_id, self.password = client_id
        if state == KazooState.LOST:
            self._expire()
        elif state == KazooState.CONNECTED and self._waiting is not None:
            self._make_chroot()
            self._send_waiting()
        self._changed(self, state)

    def _expire(self) -> None:
        self.expired = True
        self._send_waiting()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for send in waiting:
            send()

    def _make_chroot(self) -> None:
        """Ask for the chroot and all above it; what is asked for afterwards is done afterwards."""
        names = self._chroot.split("/")
        for depth in range(2, len(names) + 1):
            self._client.create_async("/".join(names[:depth]))

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _relative(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.mtime)


def _typed(error: Exception, path: str) -> ZooKeeperError:
    for kazoo_kind, kind in _ERRORS:
        if isinstance(error, kazoo_kind):
            return kind(path)
    return RequestRefused(path, type(error).__name__)
