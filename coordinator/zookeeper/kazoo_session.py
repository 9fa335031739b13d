"""One ZooKeeper session on kazoo. The only file that imports kazoo; no other code runs on its threads.

Kazoo runs one thread for each client. Its callbacks only queue calls to the reactor, from that one thread, so
watches and answers keep ZooKeeper's order.

After an expiry kazoo would open a new session on its own, and operations meant for the old session would be
applied in the new one. Therefore each kazoo client here lives for exactly one session: on expiry it is
barred, in kazoo's own thread, from connecting again.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from holdfast_log.coordinator.zookeeper import sizes
from holdfast_log.coordinator.zookeeper.access import Identity, ZnodeAccess
from holdfast_log.coordinator.zookeeper.call_queue import CallFromThread, ReactorCallQueue
from holdfast_log.coordinator.zookeeper.interface import (
    ANY_VERSION,
    AccessDenied,
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    OperationResult,
    RequestRefused,
    RequestTooLarge,
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    WatchKind,
    WriteOperation,
    ZnodeWatch,
    ZooKeeperConnectionLost,
    ZooKeeperError,
)
from holdfast_log.coordinator.zookeeper.jute import MultiRead, MultiWrite, found_all, made_all
from holdfast_log.coordinator.zookeeper.session_memory import SessionKey

T = TypeVar("T")

_log = logging.getLogger(__name__)

CONNECTED: str = KazooState.CONNECTED
SUSPENDED: str = KazooState.SUSPENDED
LOST: str = KazooState.LOST
"""The states of a session: `SUSPENDED` may become `CONNECTED` again, `LOST` is final."""

_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (NoNodeError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
    (NoAuthError, AccessDenied),
    (SessionExpiredError, SessionExpired),
    (ConnectionLoss, ZooKeeperConnectionLost),
    (ConnectionClosedError, SessionExpired),  # Kazoo's error for a client that is closed.
)
_ACLS: dict[ZnodeAccess, list[Any]] = {
    ZnodeAccess.EVERYBODY: OPEN_ACL_UNSAFE,
    ZnodeAccess.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    ZnodeAccess.CLOSED: CREATOR_ALL_ACL,
}
_RECONNECT_DELAY_S = 0.05
_RECONNECT_DELAY_MAX_S = 1.0


_ENSEMBLE = "/zookeeper/config"
"""The znode in which an ensemble keeps its members, outside every chroot."""


def _sasl_options(login: str) -> dict[str, Any]:
    user, _, password = login.partition(":")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs kazoo's callbacks directly on the connection's thread, and bars an expired client from connecting.

    Kazoo calls back directly as long as a handler does not report that it is running. With `tls` it connects
    by that: kazoo's own way knows neither the stores nor the versions that settings name.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.barred = False
        self._tls = tls

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_connection(self, *args: Any, **options: Any) -> Any:
        if self.barred:
            raise KazooTimeoutError("this session has expired")
        connection = super().create_connection(*args, **options)
        if self._tls is None:
            return connection
        try:
            return self._tls.wrap_socket(connection, server_hostname=options.get("hostname"))
        except OSError as error:  # ssl.SSLError is one. Kazoo tries again after this error and no other.
            _log.warning("the TLS handshake with ZooKeeper at %s failed: %s", options.get("hostname"), error)
            raise KazooTimeoutError(f"the TLS handshake failed: {error}") from None


class _RepeatedRead(Generic[T]):
    """A read, and its repetitions. A class, because two functions that call each other are a reference cycle
    for each read."""

    __slots__ = ("_ask", "answered")

    def __init__(self, ask: Callable[[], Deferred[T]]) -> None:
        self.answered: Deferred[T] = Deferred()
        self._ask = ask
        self._attempt()

    def _attempt(self) -> None:
        self._ask().addCallbacks(self.answered.callback, self._failed)

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, ZooKeeperConnectionLost):
            self._attempt()  # Once the session has expired, this fails with `SessionExpired`.
        else:
            self.answered.errback(failure)


class KazooSession:
    """Implements `coordinator.zookeeper.interface.ZooKeeperSession` on its own kazoo client.

    `changed` is called with each new state. With a `key`, `start` resumes that session if it has not expired.
    `identity` is by default that of everybody, for everybody. With `tls` it connects to ZooKeeper's
    secure port.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        timeout_ms: int,
        call_from_thread: CallFromThread,
        changed: Callable[[KazooSession, str], None],
        key: SessionKey | None = None,
        identity: Identity | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.expired = False
        self.session_id = 0
        self.timeout_ms = 0
        self.password = b""
        self._chroot = chroot
        self._identity = identity or Identity()
        digest = self._identity.digest
        sasl = None if self._identity.sasl is None else _sasl_options(self._identity.sasl)
        self._hand_over = ReactorCallQueue(call_from_thread)
        self._changed = changed
        self._state = ""
        self._waiting: list[Callable[[], None]] | None = []
        """Operations requested before the first connection; None once there has been one."""
        self._handler = _Handler(tls)
        self._client = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            client_id=None if key is None else (key.session_id, key.password),
            auth_data=None if digest is None else [("digest", digest)],
            sasl_options=sasl,
            connection_retry=KazooRetry(
                max_tries=-1, delay=_RECONNECT_DELAY_S, max_delay=_RECONNECT_DELAY_MAX_S
            ),
        )
        self._client.add_listener(self._state_changed)
        self._granted_ms = 0
        """The session timeout that the server has granted; kazoo's thread sets it."""
        self._learn_granted_timeout()
        if sasl is not None:
            self._repeat_refused_sasl()

    def start(self) -> None:
        self._client.start_async()

    def close(self) -> Deferred[None]:
        """Close the session. This waits for kazoo's thread, so a thread of its own does it."""
        closed: Deferred[None] = Deferred()
        self._expire()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:  # The server expires a session that was not closed.
                _log.warning(
                    "closing ZooKeeper session 0x%x failed; it ends when it times out: %s",
                    self.session_id,
                    error,
                )
            self._hand_over(closed.callback, None)

        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        return closed

    # Operations

    def get(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[tuple[bytes, Stat]]:
        def ask() -> Any:
            return self._client.get_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, lambda answer: (answer[0], _stat(answer[1])))

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        if not paths:
            return succeed([])
        request = MultiRead([self._full(path) for path in paths])
        return self._read(paths[0], lambda: self._call(request), lambda found: found_all(paths, found))

    def exists(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[Stat | None]:
        def ask() -> Any:
            return self._client.exists_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, lambda answer: None if answer is None else _stat(answer))

    def is_alone(self) -> Deferred[bool]:
        def ask() -> Any:
            return self._client.exists_async(_ENSEMBLE)

        # On a server that runs alone the znode is empty; in an ensemble it names all members. Servers before
        # 3.5 do not have it.
        return self._ask(_ENSEMBLE, ask, lambda stat: stat is not None and stat.dataLength == 0)

    def children(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[list[str]]:
        def ask() -> Any:
            return self._client.get_children_async(self._full(path), watch=self._watcher(watch))

        return self._read(path, ask, sorted)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[tuple[str, Stat]]:
        def ask() -> Any:
            acl = _ACLS[self._identity.rule(path)]
            return self._client.create_async(
                self._full(path), data, acl, ephemeral=ephemeral, sequence=sequence, include_data=True
            )

        return self._write(
            [Create(path, data)], ask, lambda answer: (self._relative(answer[0]), _stat(answer[1]))
        )

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        def ask() -> Any:
            return self._client.set_async(self._full(path), data, version)

        return self._write([SetData(path, data)], ask, _stat)

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        def ask() -> Any:
            return self._client.delete_async(self._full(path), version)

        return self._write([Delete(path)], ask, lambda answer: None)

    def multi(self, operations: Sequence[WriteOperation]) -> Deferred[list[OperationResult]]:
        request = MultiWrite(operations, self._chroot, self._identity.rule)
        return self._write(
            operations, lambda: self._call(request), lambda made: made_all(operations, self._chroot, made)
        )

    def set_access(self, path: str, access: ZnodeAccess) -> Deferred[None]:
        """Replace the access control list of a znode that exists."""

        def ask() -> Any:
            return self._client.set_acls_async(self._full(path), _ACLS[access])

        return self._ask(path, ask, lambda answer: None)

    def _call(self, request: MultiRead | MultiWrite) -> Any:
        """Send a request of a type that kazoo does not have."""
        answer = self._handler.async_result()
        self._client._call(request, answer)
        return answer

    # Between the two threads

    def _read(self, path: str, ask: Callable[[], Any], convert: Callable[[Any], T]) -> Deferred[T]:
        """Send a read, again after each lost connection: reading twice is harmless."""
        return _RepeatedRead(lambda: self._ask(path, ask, convert)).answered

    def _write(
        self, operations: Sequence[WriteOperation], ask: Callable[[], Any], convert: Callable[[Any], T]
    ) -> Deferred[T]:
        try:
            sizes.check_size(operations)
        except RequestTooLarge as error:
            return fail(error)
        return self._ask(operations[0].path if operations else "", ask, convert)

    def _ask(self, path: str, ask: Callable[[], Any], convert: Callable[[Any], T]) -> Deferred[T]:
        answered: Deferred[T] = Deferred()

        def send() -> None:
            if self.expired:
                answered.errback(SessionExpired(path))
            else:
                ask().rawlink(lambda result: self._hand_over(answer, result))

        def answer(result: Any) -> None:
            # Raised, the error would refer to this frame, and so to the result, which keeps the error.
            if result.exception is not None:
                answered.errback(self._failed(result.exception, path))
                return
            try:
                converted = convert(result.value)
            except ZooKeeperError as error:
                answered.errback(error)
            else:
                answered.callback(converted)

        if self._waiting is None or self.expired:
            send()
        else:
            self._waiting.append(send)
        return answered

    def _failed(self, error: Exception, path: str) -> Exception:
        """The error of an operation that kazoo could not carry out."""
        # Kazoo may fail an operation before it reports the loss; here the loss is reported first.
        if isinstance(error, ConnectionLoss):
            self._on_state(SUSPENDED, None)
        elif isinstance(error, SessionExpiredError):
            self._on_state(LOST, None)
        return _typed(error, path) if isinstance(error, KazooException) else error

    def _watcher(self, watch: ZnodeWatch | None) -> Callable[[WatchedEvent], None] | None:
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
        """Runs on kazoo's thread, where an expired client is barred before it can connect again."""
        if state == LOST:
            self._handler.barred = True
        client_id = self._client.client_id if state == CONNECTED else None
        self._hand_over(self._on_state, state, client_id, self._granted_ms)

    def _learn_granted_timeout(self) -> None:
        """Kazoo uses the timeout that the server grants, but does not show it."""
        connection = self._client._connection
        invoke = connection._invoke

        def noting(timeout: float, request: Any, *more: Any, **named: Any) -> Any:
            answer = invoke(timeout, request, *more, **named)
            if isinstance(request, Connect):
                self._granted_ms = answer[0].time_out
            return answer

        connection._invoke = noting

    def _repeat_refused_sasl(self) -> None:
        """Connect again, in this session, after SASL that did not end well. Kazoo would give the session up,
        although the server may just have stopped meanwhile."""
        connection = self._client._connection
        authenticate = connection._authenticate_with_sasl

        def patient(host: str, timeout: float) -> None:
            try:
                authenticate(host, timeout)
            except (AuthFailedError, SASLException) as error:
                _log.warning("ZooKeeper at %s has not accepted this broker's user by SASL: %s", host, error)
                raise KazooTimeoutError(f"SASL has failed: {error}") from None

        connection._authenticate_with_sasl = patient

    def _on_state(self, state: str, client_id: tuple[int, bytes] | None, granted_ms: int = 0) -> None:
        if self.expired or state == self._state:
            return
        self._state = state
        if client_id is not None:
            self.session_id, self.password = client_id
            self.timeout_ms = granted_ms
        if state == LOST:
            self._expire()
        elif state == CONNECTED and self._waiting is not None:
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
        """Create the chroot and its parents; ZooKeeper applies later operations after it.

        A session that restricts its znodes also restricts the one above all of them: a client that may write
        there may delete its children, whatever their own lists say.
        """
        names = self._chroot.split("/")
        for depth in range(2, len(names) + 1):
            self._client.create_async("/".join(names[:depth]), acl=_ACLS[self._identity.rule("/")])
        if self._identity.restricts:
            self._client.set_acls_async(self._chroot or "/", _ACLS[self._identity.rule("/")])

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
