"""A model of ZooKeeper: servers with one leader, sessions, ephemeral znodes, watches, multis, expiry.

`ZooKeeperModel` is the ensemble, `ZooKeeperServer` one of its servers, `SimZooKeeper` one process's client of
it (`coordinator.zookeeper.interface.ZooKeeper`). Requests and answers take time, and arrive in order.

The leader carries out all writes, each once, in one order. Each server answers the reads of its clients from
its own state, which may be older than the leader's. A client never sees an older state after a newer one: its
reads wait for its own writes, a new session sees every write made before it, and a server refuses to resume a
session whose client has seen newer states than the server has. When a connection breaks, the leader still
carries out some of the pending writes: the ones sent first, and all of these before the session is resumed.
Their answers are lost.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from holdfast_log.coordinator.zookeeper import sizes
from holdfast_log.coordinator.zookeeper.interface import (
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
    RequestTooLarge,
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


def _size(operations: Sequence[WriteOperation]) -> int:
    """The least that a request of these operations can have, in bytes."""
    return sum(len(getattr(operation, "data", b"")) for operation in operations)


JUTE_MAXBUFFER = 0xFFFFF
"""A server closes a connection on which a larger request arrives."""

NORMAL_DELAY_MS_MAX = 3.0


SERVERS = 3


@dataclass(frozen=True, slots=True)
class _Transaction:
    """A committed write. Every server applies all transactions, in the order of `zxid`."""

    zxid: int
    operations: Sequence[WriteOperation]
    session_id: int
    now_ms: int


class _Tree:
    """All znodes of one server, after it applied the transaction `zxid`."""

    def __init__(self, znodes: dict[str, _Znode], zxid: int = 0) -> None:
        self.znodes = znodes
        self.zxid = zxid

    def copy(self) -> _Tree:
        copies = {path: replace(znode, children=dict(znode.children)) for path, znode in self.znodes.items()}
        return _Tree(copies, self.zxid)

    def read(self, path: str) -> _Znode:
        node = self.znodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def apply(self, transaction: _Transaction) -> tuple[list[Any], list[WatchEvent]]:
        """Apply a transaction that has been checked. Returns the result of each operation, and an event for
        each znode that it created, changed or deleted."""
        self.zxid = transaction.zxid
        events: list[WatchEvent] = []
        return [self._apply(operation, transaction, events) for operation in transaction.operations], events

    def _apply(self, operation: WriteOperation, by: _Transaction, events: list[WatchEvent]) -> Any:
        path = operation.path
        match operation:
            case Create():
                parent = self.znodes[_parent(path)]
                if operation.sequence:
                    path = f"{path}{parent.made_children:010d}"
                parent.made_children += 1
                owner = by.session_id if operation.ephemeral else 0
                node = _Znode(operation.data, by.zxid, by.zxid, by.now_ms, owner)
                self.znodes[path] = node
                parent.children[path.rpartition("/")[2]] = None
                events.append(WatchEvent(WatchKind.CREATED, path))
                return path, node.stat()
            case SetData():
                node = self.znodes[path]
                node.data = operation.data
                node.version += 1
                node.mzxid = by.zxid
                node.modified_ms = by.now_ms
                events.append(WatchEvent(WatchKind.CHANGED, path))
                return node.stat()
            case Delete():
                del self.znodes[path]
                self.znodes[_parent(path)].children.pop(path.rpartition("/")[2], None)
                events.append(WatchEvent(WatchKind.DELETED, path))
                return None
            case Check():
                return None


_Watches = dict[str, dict[tuple[int, ZnodeWatch], "SimSession"]]


class ZooKeeperServer:
    """One server. It shares the leader's tree while its state is the same, and has its own tree while it
    lags."""

    def __init__(self, model: ZooKeeperModel, number: int) -> None:
        self.number = number
        self.is_up = True
        self.tree = model.tree
        self.waiting: dict[SimSession, None] = {}
        """Sessions with requests that wait until this server has applied further transactions."""
        self._model = model
        self._lag_ms_max = 0.0
        self._behind: deque[tuple[float, _Transaction]] = deque()
        """Transactions that the server has not applied yet, each with the time in seconds at which it
        will."""
        self._next: DelayedCall | None = None
        self._data_watches: _Watches = {}
        self._child_watches: _Watches = {}

    @property
    def zxid(self) -> int:
        """The id of the last transaction that the server has applied."""
        return self.tree.zxid

    # Called by the simulation.

    def lag(self, ms_max: float) -> None:
        """From now on apply each transaction up to `ms_max` milliseconds after the leader. With 0, apply the
        outstanding ones at their times, and every later one together with the leader."""
        self._lag_ms_max = ms_max
        if ms_max and self.tree is self._model.tree:
            self.tree = self.tree.copy()
        elif not ms_max and not self._behind:
            self.tree = self._model.tree

    def level(self) -> None:
        """Apply at once every transaction that the leader has applied, as a server does when it joins a
        leader."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._lag_ms_max = 0.0
        while self._behind:
            self._apply()
        self.tree = self._model.tree

    # Called by the ensemble.

    def committed(self, transaction: _Transaction, events: Sequence[WatchEvent]) -> None:
        """The leader has applied a transaction, with these events: apply it now, or later if this server
        lags."""
        if self.tree is self._model.tree:
            self._fire(events)
            return
        clock = self._model.world.clock
        due_s = clock.rightNow + self._model.rng.random() * self._lag_ms_max / 1000
        self._behind.append((max(due_s, self._behind[-1][0]) if self._behind else due_s, transaction))
        self._apply_later()

    def _apply_later(self) -> None:
        if self._next is None and self._behind:
            clock = self._model.world.clock
            self._next = clock.callLater(self._behind[0][0] - clock.rightNow, self._apply_next)

    def _apply_next(self) -> None:
        self._next = None
        self._apply()
        if not self._behind and not self._lag_ms_max:
            self.tree = self._model.tree
        self._apply_later()

    def _apply(self) -> None:
        _, events = self.tree.apply(self._behind.popleft()[1])
        self._fire(events)
        for session in list(self.waiting):
            session.proceed()

    # Watches

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

    def _fire(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            self._fire_one(self._data_watches, event)
            if event.kind == WatchKind.DELETED:
                self._fire_one(self._child_watches, event)
            if event.kind != WatchKind.CHANGED:
                self._fire_one(self._child_watches, WatchEvent(WatchKind.CHILDREN, _parent(event.path)))

    def _fire_one(self, watches: _Watches, event: WatchEvent) -> None:
        for (_, watch), session in watches.pop(event.path, {}).items():
            session.send_event(watch, event)


class ZooKeeperModel:
    """The ensemble. Its `tree` is the leader's, and never loses an acknowledged write."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("zookeeper")
        self.available = True
        self.is_ensemble = True
        """What its servers say of themselves; False: that there is one, which runs alone."""
        self._stopped_at_s = 0.0
        self.written: Callable[[Sequence[WriteOperation], Process], None] | None = None
        """Called with every write and the process that made it, before that process gets its answer."""
        self.observers: list[Callable[[Sequence[WriteOperation]], None]] = []
        """Called with every write, before the process that made it gets its answer."""
        self.delay_ms_max = NORMAL_DELAY_MS_MAX
        """Longest time in milliseconds that a request or an answer takes."""
        self.slow_share = 0.0
        """The share of writes that take up to `slow_ms_max` milliseconds. Later requests of the same session
        wait for them."""
        self.slow_ms_max = 0.0
        self.break_share = 0.0
        """The share of writes during which the connection breaks, before or after they are carried out."""
        self.tree = _Tree({"/": _Znode(b"", 0, 0, world.now_ms())})
        self.servers = [ZooKeeperServer(self, number) for number in range(1, SERVERS + 1)]
        self.leader = self.servers[0]
        self._sessions: dict[int, SimSession] = {}
        self._clients: list[SimZooKeeper] = []
        self._last_session_id = 0x1000

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
        for server in self.servers:
            server.level()

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

    def calm(self) -> None:
        """End every fault but an outage: all servers are up, answer quickly and have the leader's state."""
        self.written = None
        self.delay_ms_max = NORMAL_DELAY_MS_MAX
        self.slow_share = self.break_share = 0.0
        for server in self.servers:
            server.is_up = True
            server.level()

    # Its servers

    def lose_leader(self) -> None:
        """Lose the leader. The other servers close all connections, and elect one of them until `start` is
        called."""
        self.world.trace("zookeeper", f"loses its leader, server {self.leader.number}")
        self.leader.is_up = False
        self.stop()
        self.leader = self.rng.choice(self.up())

    def lose_server(self, server: ZooKeeperServer) -> None:
        """Lose a server other than the leader. Its clients connect to the other servers."""
        self.world.trace("zookeeper", f"loses server {server.number}")
        server.is_up = False
        for client in self._clients:
            if client.session.connected and client.session.server is server:
                client.break_connection()

    def restore(self, server: ZooKeeperServer) -> None:
        self.world.trace("zookeeper", f"has server {server.number} again")
        server.is_up = True
        server.level()

    def up(self) -> list[ZooKeeperServer]:
        return [server for server in self.servers if server.is_up]

    # Sessions

    def open_session(self, session: SimSession) -> int:
        self._last_session_id += 1
        self._sessions[self._last_session_id] = session
        self.world.trace("zookeeper", f"session {self._last_session_id:x} of {session.process.name}")
        self._commit((), self._last_session_id)
        return self._last_session_id

    def has_session(self, session_id: int) -> bool:
        return session_id in self._sessions

    def end_session(self, session_id: int, why: str) -> None:
        """End a session: delete its ephemeral znodes, forget its watches."""
        if self._sessions.pop(session_id, None) is None:
            return
        self.world.trace("zookeeper", f"session {session_id:x} {why}")
        for server in self.servers:
            server.forget_watches(session_id)
        mine = [path for path, node in self.tree.znodes.items() if node.ephemeral_owner == session_id]
        self._commit([Delete(path) for path in mine], session_id)

    # Reading the leader's state

    def paths(self) -> list[str]:
        return list(self.tree.znodes)

    def read(self, path: str) -> _Znode:
        return self.tree.read(path)

    def exists(self, path: str) -> bool:
        return path in self.tree.znodes

    def names_below(self, path: str) -> list[str]:
        """The names of a znode's children, sorted; none if there is no such znode."""
        node = self.tree.znodes.get(path)
        return [] if node is None else sorted(node.children)

    # Writing

    def put(self, path: str, data: bytes, version: int = 0) -> None:
        """Set up a znode, and the parents that it lacks, without a session."""
        if not self.exists(_parent(path)):
            self.put(_parent(path), b"")
        self._commit([SetData(path, data) if self.exists(path) else Create(path, data)], 0)
        self.read(path).version = version

    def write(self, operations: Sequence[WriteOperation], session_id: int) -> list[Any]:
        """Make all writes or none. Raises `MultiFailed` with the operation that failed."""
        staged = _Staged(self.tree.znodes)
        for index, operation in enumerate(operations):
            try:
                staged.check(operation)
            except ZooKeeperError as error:
                raise MultiFailed(index, error) from None
        results = self._commit(operations, session_id)
        for observer in self.observers:
            observer(operations)
        session = self._sessions.get(session_id)
        if self.written is not None and session is not None:
            self.written(operations, session.process)
        return results

    def _commit(self, operations: Sequence[WriteOperation], session_id: int) -> list[Any]:
        transaction = _Transaction(self.tree.zxid + 1, operations, session_id, self.world.now_ms())
        results, events = self.tree.apply(transaction)
        for server in self.servers:
            server.committed(transaction, events)
        return results


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


@dataclass(eq=False, slots=True)
class ZnodeRequest:
    """One request of a session. `work` carries it out when it reaches a server. `zxid` is the last
    transaction that the server had applied by then. A read may set a watch, which the client knows once it
    has the answer."""

    answer: Deferred[Any]
    path: str
    work: Callable[[], Any]
    is_read: bool
    watch: ZnodeWatch | None = None
    size: int = 0
    is_served: bool = False
    zxid: int = 0


def _apart(watch: ZnodeWatch | None) -> ZnodeWatch | None:
    """The watch of one read. Several reads with the same function have a watch each."""
    return None if watch is None else partial(watch)


class SimSession:
    """One session of one process (`coordinator.zookeeper.interface.ZooKeeperSession`)."""

    def __init__(self, owner: SimZooKeeper) -> None:
        self.process = owner.process
        self.session_id = 0
        self.timeout_ms = owner.session_timeout_ms
        self.expired = False
        self.server = owner.model.leader
        """The server to which the session is connected, or was connected last."""
        self.seen_zxid = 0
        """The last transaction whose effects the client can have seen, by the answers that it got."""
        self._owner = owner
        self._model = owner.model
        self._clock = owner.model.world.clock
        self._rng = owner.rng
        self._unsent: list[ZnodeRequest] = []
        self._unanswered: list[ZnodeRequest] = []
        self._kept: deque[ZnodeRequest] = deque()
        """Writes sent over a broken connection that the leader will still carry out."""
        self._steps: deque[tuple[int, Callable[[], None]]] = deque()
        """The server's next steps for this session, in order, each with the transaction that the server must
        have applied before it."""
        self._written_zxid = 0
        self._connection = 0  # counts connections: events of earlier ones are ignored
        self.connected = False
        self._is_dark = False
        """Whether the connection is lost and the client does not know it yet."""
        self._lost: list[ZnodeWatch] = []
        self._events_sent: dict[ZnodeWatch, None] = {}
        """The watches whose events are on their way to the client."""
        self._request_at_s = 0.0
        self._answer_at_s = 0.0

    # Connection

    def connect(self, server: ZooKeeperServer) -> None:
        """Connect: the server resumes the session, or reports that it has expired."""
        if self.session_id and not self._model.has_session(self.session_id):
            self.process.run(self._owner.session_is_over, self)
            return
        self.server = server
        if not self.session_id:
            self.session_id = self._model.open_session(self)
            self._written_zxid = self._model.tree.zxid
        while self._kept:
            self._write(self._kept.popleft())
        self._connection += 1
        self.connected = True
        # Requests and answers on this connection do not wait for those of an earlier one.
        self._request_at_s = self._answer_at_s = 0.0
        self._in_turn(lambda: self.to_client(self._owner.session_is_connected, self))
        unsent, self._unsent = self._unsent, []
        for request in unsent:
            self._send(request)

    def disconnect(self) -> None:
        """Lose the connection. Writes under way are in doubt, reads are sent again, watches are lost."""
        self.go_dark()
        if not self._is_dark:
            return
        self._is_dark = False
        lost, self._lost = self._lost, []
        in_doubt, self._unanswered = self._unanswered, []
        self._unsent = [request for request in in_doubt if request.is_read]
        self.process.run(self._suspend, [request for request in in_doubt if not request.is_read], lost)

    def go_dark(self) -> None:
        """Lose the connection without a sign to the client, which goes on sending requests."""
        if self.connected:
            self._leave()
            # The client keeps a watch until its event arrives, so a watch is lost with its event. It does not
            # know the watch of a read that has no answer yet, and sends the read again.
            unknown = {request.watch for request in self._unanswered}
            watches = [*self._events_sent, *self.server.forget_watches(self.session_id)]
            self._lost = [watch for watch in watches if watch not in unknown]
            self._events_sent.clear()
            self._is_dark = True

    def disconnect_if_dark(self) -> None:
        """The client notices that the connection is lost."""
        if self._is_dark:
            self.disconnect()

    def die(self) -> None:
        """The process has ended: close the connection. Some of its pending writes still reach the leader."""
        if self.connected:
            self._leave()

    def _leave(self) -> None:
        """Leave the server. The first few of the pending writes still reach the leader."""
        self.connected = False
        self._connection += 1
        self._steps.clear()
        self.server.waiting.pop(self, None)
        under_way = [request for request in self._unanswered if not request.is_read and not request.is_served]
        self._kept.extend(under_way[: self._rng.randint(0, len(under_way))])

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
        self.connected = self._is_dark = False
        self._connection += 1
        self._steps.clear()
        self.server.waiting.pop(self, None)
        requests = self._unanswered + self._unsent
        self._unanswered, self._unsent = [], []
        for request in requests:
            request.answer.errback(Failure(SessionExpired(request.path)))

    @property
    def is_waiting(self) -> bool:
        """Whether a message is under way that takes longer than usual: what follows it waits too."""
        usual_s = self._clock.rightNow + NORMAL_DELAY_MS_MAX / 1000
        return max(self._request_at_s, self._answer_at_s) > usual_s

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

    def send_event(self, watch: ZnodeWatch, event: WatchEvent) -> None:
        self._events_sent[watch] = None
        self.to_client(self._event_arrived, watch, event)

    def _event_arrived(self, watch: ZnodeWatch, event: WatchEvent) -> None:
        self._events_sent.pop(watch, None)
        self.fire(watch, event)

    def fire(self, watch: ZnodeWatch, event: WatchEvent) -> None:
        if not self.expired:
            watch(event)

    # Operations

    def get(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[tuple[bytes, Stat]]:
        watch = _apart(watch)

        def work() -> tuple[bytes, Stat]:
            node = self.server.tree.read(path)
            if watch is not None:
                self.server.watch_data(path, self, watch)
            return node.data, node.stat()

        return self._ask(path, work, is_read=True, watch=watch)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        def work() -> list[tuple[bytes, Stat] | None]:
            nodes = [self.server.tree.znodes.get(path) for path in paths]
            return [None if node is None else (node.data, node.stat()) for node in nodes]

        return self._ask(paths[0] if paths else "", work, is_read=True)

    def exists(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[Stat | None]:
        watch = _apart(watch)

        def work() -> Stat | None:
            if watch is not None:
                self.server.watch_data(path, self, watch)
            node = self.server.tree.znodes.get(path)
            return None if node is None else node.stat()

        return self._ask(path, work, is_read=True, watch=watch)

    def is_alone(self) -> Deferred[bool]:
        return self._ask("", lambda: not self._model.is_ensemble, is_read=True)

    def children(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[list[str]]:
        watch = _apart(watch)

        def work() -> list[str]:
            node = self.server.tree.read(path)
            if watch is not None:
                self.server.watch_children(path, self, watch)
            return sorted(node.children)

        return self._ask(path, work, is_read=True, watch=watch)

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

        return self._ask_to_write(operations, work)

    def _write_one(self, operation: WriteOperation) -> Deferred[Any]:
        def work() -> Any:
            try:
                return self._model.write([operation], self.session_id)[0]
            except MultiFailed as failed:
                raise failed.cause from None

        return self._ask_to_write([operation], work)

    def _ask_to_write(self, operations: Sequence[WriteOperation], work: Callable[[], Any]) -> Deferred[Any]:
        try:
            sizes.check_size(operations)
        except RequestTooLarge as error:
            return fail(error)
        return self._ask(
            operations[0].path if operations else "", work, is_read=False, size=_size(operations)
        )

    def _ask(
        self,
        path: str,
        work: Callable[[], Any],
        *,
        is_read: bool,
        watch: ZnodeWatch | None = None,
        size: int = 0,
    ) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if self.expired:
            answer.errback(Failure(SessionExpired(path)))
            return answer
        request = ZnodeRequest(answer, path, work, is_read, watch, size)
        if self.connected:
            self._send(request)
        elif self._is_dark:
            self._unanswered.append(request)
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
        """Serve a request that has arrived. Some writes sent over a broken connection arrive too."""
        if not self._model.has_session(self.session_id):
            return
        if connection != self._connection:
            if self._kept and request is self._kept[0]:
                self._write(self._kept.popleft())
            return
        if request.is_read:
            self._in_turn(lambda: self._answer(request, request.work))
            return
        if request.size > JUTE_MAXBUFFER:
            self._owner.break_connection()
            return
        is_broken = self._model.break_share > 0 and self._rng.random() < self._model.break_share
        if is_broken and self._rng.random() < 0.5:
            self._owner.break_connection()
            return
        outcome = self._write(request)
        if is_broken:
            self._owner.break_connection()
        elif connection == self._connection:
            self._in_turn(lambda: self._answer(request, outcome))

    def _write(self, request: ZnodeRequest) -> Callable[[], Any]:
        """Have the leader carry out a write; an observer of writes may kill the process meanwhile. Returns a
        function that returns the write's result or raises its error."""
        request.is_served = True
        try:
            result = request.work()
        except ZooKeeperError as error:
            failure = error

            def fail() -> Any:
                raise failure

            return fail
        finally:
            # A refused write has its place in the order of writes too: later reads must see the state that
            # refused it.
            self._written_zxid = self._model.tree.zxid
        return lambda: result

    def _in_turn(self, step: Callable[[], None]) -> None:
        """Run `step` once the session's server has applied every write of the session, after earlier
        steps."""
        if self._steps or self.server.zxid < self._written_zxid:
            self._steps.append((self._written_zxid, step))
            self.server.waiting[self] = None
        else:
            step()

    def proceed(self) -> None:
        """The server has applied further transactions: run the steps that waited for them."""
        while self._steps and self.server.zxid >= self._steps[0][0]:
            self._steps.popleft()[1]()
        if not self._steps:
            self.server.waiting.pop(self, None)

    def _answer(self, request: ZnodeRequest, work: Callable[[], Any]) -> None:
        request.zxid = self.server.zxid
        try:
            result = work()
        except ZooKeeperError as error:
            self.to_client(self._finish, self._connection, request, None, error)
        else:
            self.to_client(self._finish, self._connection, request, result, None)

    def _finish(
        self, connection: int, request: ZnodeRequest, result: Any, error: ZooKeeperError | None
    ) -> None:
        if connection != self._connection or request not in self._unanswered:
            return
        self._unanswered.remove(request)
        self.seen_zxid = max(self.seen_zxid, request.zxid)
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

    def cut_silently(self) -> None:
        """Cut the process off from ZooKeeper, without a sign: packets are lost. The client notices it when
        nothing has come for two thirds of its session timeout."""
        self._cut = True
        self._session.go_dark()
        self._run_out_later()
        notices_s = self.session_timeout_ms / 1000 * 2 / 3
        self.model.world.clock.callLater(notices_s, self._session.disconnect_if_dark)

    def mend(self) -> None:
        self._cut = False
        self._session.disconnect_if_dark()
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
        elif session.connected:
            self._cancel_expiry()
        else:
            self._connect_later()

    def break_connection(self) -> None:
        """Break the connection. The client connects again, to the same server or another one."""
        self._session.disconnect()
        self._run_out_later()
        self._connect_later()

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
        running = self._started and self.process.alive and not self.process.paused
        if not running or not self.model.available or self._cut or self._session.connected:
            return
        server = self.rng.choice(self.model.up())
        if server.zxid < self._session.seen_zxid:
            # The server has an older state than the client has seen, so it refuses the session.
            self._connect_later()
            return
        self._cancel_expiry()
        self._session.connect(server)

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
        self._session.die()
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
