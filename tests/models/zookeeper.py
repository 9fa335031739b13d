"""A model of ZooKeeper: one ordered store, sessions, ephemeral znodes, watches, multis, expiry.

`ZooKeeperModel` is the ensemble, `SimZooKeeper` one process's client of it
(`coordinator.zookeeper.interface.ZooKeeper`). Requests and answers take time, and arrive in order. While a
client is cut off, its requests are lost, or are carried out and their answers are lost, and its session
expires by the server's clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from coordinator.zookeeper.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    OperationResult,
    SessionExpired,
    SessionListener,
    SetData,
    Stat,
    WatchEvent,
    WatchKind,
    WriteOperation,
    ZnodeWatch,
    ZooKeeperConnectionLost,
    ZooKeeperError,
)
from tests.models.world import Process, World


@dataclass(slots=True)
class _Znode:
    data: bytes
    czxid: int
    mzxid: int
    modified_ms: int
    ephemeral_owner: int = 0
    version: int = 0
    made_children: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.version, self.ephemeral_owner, self.modified_ms)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


NORMAL_DELAY_MS_MAX = 3.0


class ZooKeeperModel:
    """The ensemble, modelled as one server that never loses data."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.available = True
        self._stopped_at_s = 0.0
        self.written: Callable[[Sequence[WriteOperation], Process], None] | None = None
        """Called with every write and the process that made it, before that process gets its answer."""
        self.observers: list[Callable[[Sequence[WriteOperation]], None]] = []
        """Called with every write, before the process that made it gets its answer."""
        self.delay_ms_max = NORMAL_DELAY_MS_MAX
        """Time that a request or an answer takes at most."""
        self.slow_share = 0.0
        """The share of writes that take up to `slow_ms_max`. The session's later requests wait for them."""
        self.slow_ms_max = 0.0
        self._zxid = 0
        self._znodes: dict[str, _Znode] = {"/": _Znode(b"", 0, 0, world.now_ms())}
        self._sessions: dict[int, SimSession] = {}
        self._clients: list[SimZooKeeper] = []
        self._last_session_id = 0x1000
        self._data_watches: dict[str, dict[tuple[int, ZnodeWatch], SimSession]] = {}
        self._child_watches: dict[str, dict[tuple[int, ZnodeWatch], SimSession]] = {}

    # The ensemble as a whole

    def add_client(self, client: SimZooKeeper) -> None:
        self._clients.append(client)

    def stop(self) -> None:
        """Begin an outage: no request is answered; no session expires, because no server measures time."""
        self.available = False
        self._stopped_at_s = self.world.clock.rightNow
        self.world.trace("zookeeper", "stops")
        for client in self._clients:
            client.server_stopped()

    def start(self) -> None:
        """End an outage: every client has its full session timeout to reconnect."""
        self.available = True
        self.world.trace("zookeeper", "starts")
        for client in self._clients:
            client.server_started()

    def wake(self) -> None:
        """End a pause: sessions that expired meanwhile are ended before any request is answered."""
        paused_ms = (self.world.clock.rightNow - self._stopped_at_s) * 1000
        for session_id, session in list(self._sessions.items()):
            if session.timeout_ms <= paused_ms:
                self.end_session(session_id, "expired")
        self.start()

    # Sessions

    def open_session(self, session: SimSession) -> int:
        self._last_session_id += 1
        self._sessions[self._last_session_id] = session
        self.world.trace("zookeeper", f"session {self._last_session_id:x} of {session.process.name}")
        return self._last_session_id

    def has_session(self, session_id: int) -> bool:
        return session_id in self._sessions

    def end_session(self, session_id: int, why: str) -> None:
        """End a session: delete its ephemeral znodes, forget its watches."""
        if self._sessions.pop(session_id, None) is None:
            return
        self.world.trace("zookeeper", f"session {session_id:x} {why}")
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                for key in [key for key in watches[path] if key[0] == session_id]:
                    del watches[path][key]
        for path in [p for p, node in self._znodes.items() if node.ephemeral_owner == session_id]:
            self._apply(Delete(path), session_id)

    # Reading

    def paths(self) -> list[str]:
        return list(self._znodes)

    def read(self, path: str) -> _Znode:
        node = self._znodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str) -> bool:
        return path in self._znodes

    def names_below(self, path: str) -> list[str]:
        """The names of a znode's children, sorted; none if there is no such znode."""
        node = self._znodes.get(path)
        return [] if node is None else sorted(node.children)

    def watch_data(self, path: str, session: SimSession, watch: ZnodeWatch) -> None:
        self._data_watches.setdefault(path, {})[session.session_id, watch] = session

    def watch_children(self, path: str, session: SimSession, watch: ZnodeWatch) -> None:
        self._child_watches.setdefault(path, {})[session.session_id, watch] = session

    def forget_watches(self, session_id: int) -> list[ZnodeWatch]:
        """Remove the watches of a session whose connection broke. The client fires them as LOST."""
        lost: dict[ZnodeWatch, None] = {}
        for watches in (self._data_watches, self._child_watches):
            for registered in watches.values():
                for key in [key for key in registered if key[0] == session_id]:
                    del registered[key]
                    lost[key[1]] = None
        return list(lost)

    # Writing

    def put(self, path: str, data: bytes, version: int = 0) -> None:
        """Set up a znode, and the parents that it lacks, without a session."""
        if _parent(path) not in self._znodes:
            self.put(_parent(path), b"")
        self._zxid += 1
        self._apply(SetData(path, data) if path in self._znodes else Create(path, data), 0)
        self._znodes[path].version = version

    def write(self, operations: Sequence[WriteOperation], session_id: int) -> list[Any]:
        """Make all writes or none. Raises `MultiFailed` with the operation that failed."""
        staged = _Staged(self._znodes)
        for index, operation in enumerate(operations):
            try:
                staged.check(operation)
            except ZooKeeperError as error:
                raise MultiFailed(index, error) from None
        self._zxid += 1
        results = [self._apply(operation, session_id) for operation in operations]
        for observer in self.observers:
            observer(operations)
        session = self._sessions.get(session_id)
        if self.written is not None and session is not None:
            self.written(operations, session.process)
        return results

    def _apply(self, operation: WriteOperation, session_id: int) -> Any:
        path = operation.path
        match operation:
            case Create():
                parent = self._znodes[_parent(path)]
                if operation.sequence:
                    path = f"{path}{parent.made_children:010d}"
                parent.made_children += 1
                owner = session_id if operation.ephemeral else 0
                node = _Znode(operation.data, self._zxid, self._zxid, self.world.now_ms(), owner)
                self._znodes[path] = node
                parent.children[path.rpartition("/")[2]] = None
                self._fire(self._data_watches, path, WatchKind.CREATED)
                self._fire(self._child_watches, _parent(path), WatchKind.CHILDREN)
                return path, node.stat()
            case SetData():
                node = self._znodes[path]
                node.data = operation.data
                node.version += 1
                node.mzxid = self._zxid
                node.modified_ms = self.world.now_ms()
                self._fire(self._data_watches, path, WatchKind.CHANGED)
                return node.stat()
            case Delete():
                if session_id and self._znodes[path].ephemeral_owner == session_id:
                    self._zxid += 1
                del self._znodes[path]
                self._znodes[_parent(path)].children.pop(path.rpartition("/")[2], None)
                self._fire(self._data_watches, path, WatchKind.DELETED)
                self._fire(self._child_watches, path, WatchKind.DELETED)
                self._fire(self._child_watches, _parent(path), WatchKind.CHILDREN)
                return None
            case Check():
                return None

    def _fire(
        self, watches: dict[str, dict[tuple[int, ZnodeWatch], SimSession]], path: str, kind: WatchKind
    ) -> None:
        for (_, watch), session in watches.pop(path, {}).items():
            session.to_client(session.fire, watch, WatchEvent(kind, path))


class _Staged:
    """The znodes that would exist, with their versions, after the operations checked so far."""

    def __init__(self, znodes: dict[str, _Znode]) -> None:
        self._znodes = znodes
        self._versions: dict[str, int | None] = {}
        self._children: dict[str, int] = {}

    def _version(self, path: str) -> int | None:
        if path in self._versions:
            return self._versions[path]
        node = self._znodes.get(path)
        return None if node is None else node.version

    def _expect(self, path: str, version: int) -> int:
        now = self._version(path)
        if now is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, now):
            raise BadVersion(path)
        return now

    def check(self, operation: WriteOperation) -> None:
        path = operation.path
        match operation:
            case Create():
                if self._version(_parent(path)) is None:
                    raise NoNode(path)
                if not operation.sequence:
                    if self._version(path) is not None:
                        raise NodeExists(path)
                    self._versions[path] = 0
                self._children[_parent(path)] = self._children.get(_parent(path), 0) + 1
            case SetData():
                self._versions[path] = self._expect(path, operation.version) + 1
            case Delete():
                self._expect(path, operation.version)
                children = len(self._znodes[path].children) if path in self._znodes else 0
                if children + self._children.get(path, 0) > 0:
                    raise NotEmpty(path)
                self._versions[path] = None
                self._children[_parent(path)] = self._children.get(_parent(path), 0) - 1
            case Check():
                self._expect(path, operation.version)


@dataclass(slots=True)
class ZnodeRequest:
    """One request of a session, carried out by calling `work` when it reaches the ensemble."""

    answer: Deferred[Any]
    path: str
    work: Callable[[], Any]
    is_read: bool


class SimSession:
    """One session of one process (`coordinator.zookeeper.interface.ZooKeeperSession`)."""

    def __init__(self, owner: SimZooKeeper) -> None:
        self.process = owner.process
        self.session_id = 0
        self.timeout_ms = owner.session_timeout_ms
        self.expired = False
        self._owner = owner
        self._model = owner.model
        self._clock = owner.model.world.clock
        self._rng = owner.rng
        self._unsent: list[ZnodeRequest] = []
        self._unanswered: list[ZnodeRequest] = []
        self._connection = 0  # counts connections: events of earlier ones are ignored
        self.connected = False
        self._request_at_s = 0.0
        self._answer_at_s = 0.0

    # Connection

    def connect(self) -> None:
        """Connect: the server resumes the session, or reports that it has expired."""
        if self.session_id and not self._model.has_session(self.session_id):
            self.process.run(self._owner.session_is_over, self)
            return
        if not self.session_id:
            self.session_id = self._model.open_session(self)
        self._connection += 1
        self.connected = True
        self.to_client(self._owner.session_is_connected, self)
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._send(request)

    def disconnect(self) -> None:
        """Lose the connection. Writes under way are in doubt, reads are sent again, watches are lost."""
        if not self.connected:
            return
        self.connected = False
        self._connection += 1
        lost = self._model.forget_watches(self.session_id)
        in_doubt, self._unanswered = self._unanswered, []
        self._unsent = [request for request in in_doubt if request.is_read]
        self.process.run(self._suspend, [request for request in in_doubt if not request.is_read], lost)

    def _suspend(self, in_doubt: list[ZnodeRequest], lost: list[ZnodeWatch]) -> None:
        if self.expired:
            return
        self._owner.session_is_suspended(self)
        for watch in lost:
            self.fire(watch, WatchEvent(WatchKind.LOST, ""))
        for request in in_doubt:
            request.answer.errback(Failure(ZooKeeperConnectionLost(request.path)))

    def expire(self) -> None:
        """Tell the client that the session has expired."""
        self.expired = True
        self.connected = False
        self._connection += 1
        requests = self._unanswered + self._unsent
        self._unanswered, self._unsent = [], []
        for request in requests:
            request.answer.errback(Failure(SessionExpired(request.path)))

    def to_client(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the process, after everything sent to it before on this connection."""
        if not self.connected:
            return
        self._answer_at_s = max(self._answer_at_s, self._clock.rightNow + self._owner.delay_s())
        self._clock.callLater(
            self._answer_at_s - self._clock.rightNow, self._arrive, self._connection, function, arguments
        )

    def _arrive(self, connection: int, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if connection == self._connection:
            self.process.run(function, *arguments)

    def fire(self, watch: ZnodeWatch, event: WatchEvent) -> None:
        if not self.expired:
            watch(event)

    # Operations

    def get(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[tuple[bytes, Stat]]:
        def work() -> tuple[bytes, Stat]:
            node = self._model.read(path)
            if watch is not None:
                self._model.watch_data(path, self, watch)
            return node.data, node.stat()

        return self._ask(path, work, is_read=True)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        def work() -> list[tuple[bytes, Stat] | None]:
            nodes = [self._model.read(path) if self._model.exists(path) else None for path in paths]
            return [None if node is None else (node.data, node.stat()) for node in nodes]

        return self._ask(paths[0] if paths else "", work, is_read=True)

    def exists(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[Stat | None]:
        def work() -> Stat | None:
            if watch is not None:
                self._model.watch_data(path, self, watch)
            return self._model.read(path).stat() if self._model.exists(path) else None

        return self._ask(path, work, is_read=True)

    def children(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[list[str]]:
        def work() -> list[str]:
            node = self._model.read(path)
            if watch is not None:
                self._model.watch_children(path, self, watch)
            return sorted(node.children)

        return self._ask(path, work, is_read=True)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[tuple[str, Stat]]:
        return self._write_one(Create(path, data, ephemeral, sequence))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        return self._write_one(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        return self._write_one(Delete(path, version))

    def multi(self, operations: Sequence[WriteOperation]) -> Deferred[list[OperationResult]]:
        operations = tuple(operations)

        def work() -> list[OperationResult]:
            results = self._model.write(operations, self.session_id)
            return [result[0] if isinstance(result, tuple) else result for result in results]

        return self._ask(operations[0].path if operations else "", work, is_read=False)

    def _write_one(self, operation: WriteOperation) -> Deferred[Any]:
        def work() -> Any:
            try:
                return self._model.write([operation], self.session_id)[0]
            except MultiFailed as failed:
                raise failed.cause from None

        return self._ask(operation.path, work, is_read=False)

    def _ask(self, path: str, work: Callable[[], Any], *, is_read: bool) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if self.expired:
            answer.errback(Failure(SessionExpired(path)))
            return answer
        request = ZnodeRequest(answer, path, work, is_read)
        if self.connected:
            self._send(request)
        else:
            self._unsent.append(request)
        return answer

    def _send(self, request: ZnodeRequest) -> None:
        self._unanswered.append(request)
        delay_s = self._owner.delay_s()
        if not request.is_read and self._model.slow_share and self._rng.random() < self._model.slow_share:
            delay_s = self._rng.random() * self._model.slow_ms_max / 1000
        self._request_at_s = max(self._request_at_s, self._clock.rightNow + delay_s)
        delay_s = self._request_at_s - self._clock.rightNow
        self._clock.callLater(delay_s, self._serve, self._connection, request)

    def _serve(self, connection: int, request: ZnodeRequest) -> None:
        """Serve a request. Half of the writes pending when the connection broke still arrive."""
        if not self._model.has_session(self.session_id):
            return
        if connection != self._connection and (request.is_read or self._rng.random() < 0.5):
            return
        try:
            result = request.work()
        except ZooKeeperError as error:
            self.to_client(self._finish, connection, request, None, error)
        else:
            self.to_client(self._finish, connection, request, result, None)

    def _finish(
        self, connection: int, request: ZnodeRequest, result: Any, error: ZooKeeperError | None
    ) -> None:
        if connection != self._connection or request not in self._unanswered:
            return
        self._unanswered.remove(request)
        if error is None:
            request.answer.callback(result)
        else:
            request.answer.errback(Failure(error))


class SimZooKeeper:
    """One process's client of the ensemble (`coordinator.zookeeper.interface.ZooKeeper`)."""

    def __init__(self, model: ZooKeeperModel, process: Process, session_timeout_ms: int) -> None:
        self.model = model
        self.process = process
        self.rng: random.Random = process.rng("zookeeper")
        self.session_timeout_ms = session_timeout_ms
        self._listeners: list[SessionListener] = []
        self._session = SimSession(self)
        self._started = False
        self._cut = False
        self._expiry: DelayedCall | None = None
        process.on_death.append(self._process_died)
        model.add_client(self)

    @property
    def session(self) -> SimSession:
        return self._session

    def add_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        self._started = True
        self._connect_later()

    def close(self) -> Deferred[None]:
        closed: Deferred[None] = Deferred()
        session = self._session
        self._started = False

        def end() -> None:
            self.model.end_session(session.session_id, "closed")
            self.process.run(closed.callback, None)

        session.expire()
        self.model.world.clock.callLater(self.delay_s(), end)
        return closed

    def delay_s(self) -> float:
        return self.rng.random() * self.model.delay_ms_max / 1000

    # Called by the simulation.

    def cut(self) -> None:
        """Cut the process off from ZooKeeper."""
        self._cut = True
        self._session.disconnect()
        self._run_out_later()

    def mend(self) -> None:
        self._cut = False
        self._connect_later()

    def fall_silent(self) -> None:
        """Stop sending heartbeats, because the process is paused. The connection stays open."""
        self._run_out_later()

    def speak_again(self) -> None:
        """Send heartbeats again. If the session expired meanwhile, the connection is closed."""
        session = self._session
        if session.session_id and not self.model.has_session(session.session_id):
            session.disconnect()
            self._connect_later()
        elif not self._cut:
            self._cancel_expiry()

    def server_stopped(self) -> None:
        self._cancel_expiry()
        self._session.disconnect()

    def server_started(self) -> None:
        if self._session.session_id:
            self._run_out_later()
        self._connect_later()

    # Sessions

    def _connect_later(self) -> None:
        self.model.world.clock.callLater(0.05 + self.delay_s(), self._connect)

    def _connect(self) -> None:
        usable = self._started and self.process.alive and self.model.available and not self._cut
        if usable and not self._session.connected:
            self._cancel_expiry()
            self._session.connect()

    def _run_out_later(self) -> None:
        """Expire the session later unless the client is heard again. Its last heartbeat was up to a third of
        the timeout ago."""
        session_id = self._session.session_id
        if self._expiry is not None or not session_id or not self.model.available:
            return
        wait_s = self.session_timeout_ms / 1000 * self.rng.uniform(2 / 3, 1)
        self._expiry = self.model.world.clock.callLater(wait_s, self._run_out, session_id)

    def _run_out(self, session_id: int) -> None:
        self._expiry = None
        self.model.end_session(session_id, "expired")

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _process_died(self) -> None:
        self._session.connected = False
        self._run_out_later()

    # Called in the process, by its session.

    def session_is_connected(self, session: SimSession) -> None:
        for listener in self._listeners:
            listener.session_connected(session)

    def session_is_suspended(self, session: SimSession) -> None:
        for listener in self._listeners:
            listener.session_suspended(session)

    def session_is_over(self, session: SimSession) -> None:
        if session is not self._session:
            return
        self._session = SimSession(self)
        session.expire()
        for listener in self._listeners:
            listener.session_expired(session)
        self._connect_later()
