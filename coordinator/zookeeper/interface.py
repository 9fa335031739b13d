"""ZooKeeper as the rooms see it, so that a simulated one can stand in its place.

All work happens on a `ZooKeeperSession`. A session that has expired stays expired: what is asked of it fails
with `SessionExpired`, and `ZooKeeper.session` is then another one. So whoever keeps the session on which a
decision was taken can never carry it out on a later one.

Operations on one session are sent in the order of their calls and may be pipelined. A watch fires before the
answer to anything that was read after the change. Everything happens on the caller's (reactor) thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred

ANY_VERSION = -1
"""The version of a set, delete or check that is to succeed whatever the znode's is."""


class ZooKeeperError(Exception):
    """An operation did not succeed. `path` is the znode it was about."""

    def __init__(self, path: str = "", message: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path and message else path or message)


class NoNode(ZooKeeperError):
    """There is no such znode, or a new one's parent is missing."""


class NodeExists(ZooKeeperError):
    """The znode is there already."""


class BadVersion(ZooKeeperError):
    """The znode's version is not the one that was expected: somebody else has changed it."""


class NotEmpty(ZooKeeperError):
    """A znode with children cannot be deleted."""


class AccessDenied(ZooKeeperError):
    """The znode's access control list, or the credentials given, do not allow this."""


class ZooKeeperConnectionLost(ZooKeeperError):
    """The connection broke before the answer came: a write may or may not have been made.

    Reads never fail with this, they are asked again; a write is the caller's to look into.
    """


class SessionExpired(ZooKeeperError):
    """The session is over: its ephemeral znodes and watches are gone, and it takes no more operations."""


class RequestRefused(ZooKeeperError):
    """ZooKeeper answered with an error that no caller is expected to handle; the message names it."""


class MultiFailed(ZooKeeperError):
    """No operation of a multi was made, because the one at `index` failed with `cause`."""

    def __init__(self, index: int, cause: ZooKeeperError) -> None:
        self.index = index
        self.cause = cause
        super().__init__(cause.path, f"{type(cause).__name__} at operation {index} of a multi")


@dataclass(frozen=True, slots=True)
class Stat:
    """What ZooKeeper keeps about a znode.

    `czxid` and `mzxid` are the transactions that made it and last changed it; `version` counts the changes of
    its data; `ephemeral_owner` is the id of the session that it lives as long as (0: it is persistent);
    `modified_ms` is the server's time of the last change, in milliseconds since the epoch.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Makes a znode; in a multi the result is its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces a znode's data; in a multi the result is its `Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a znode; in a multi the result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Makes a multi fail unless the znode has this version; in a multi the result is None."""

    path: str
    version: int


WriteOperation: TypeAlias = Create | SetData | Delete | Check
OperationResult: TypeAlias = str | Stat | None


class WatchKind(enum.Enum):
    """What a watch has seen."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    LOST = "lost"
    """The connection broke: nobody knows what has changed. Read, and watch, again."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The one event of a watch."""

    kind: WatchKind
    path: str


ZnodeWatch: TypeAlias = Callable[[WatchEvent], None]
"""Called once at most, and never once the session has expired."""


class ZooKeeperSession(Protocol):
    """One ZooKeeper session. Every Deferred may fail with `SessionExpired` or `RequestRefused`."""

    @property
    def session_id(self) -> int:
        """The id that ZooKeeper gave it; 0 before the first connection."""
        ...

    @property
    def expired(self) -> bool: ...

    def get(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[tuple[bytes, Stat]]:
        """A znode's data. Fails with `NoNode`; then no watch is left."""
        ...

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        """The data of several znodes, in one request; None for each that does not exist."""
        ...

    def exists(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[Stat | None]:
        """A znode's stat, None where there is none. The watch is left in either case."""
        ...

    def children(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[list[str]]:
        """The names of a znode's children, sorted. Fails with `NoNode`; then no watch is left."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[tuple[str, Stat]]:
        """Make a znode; its path (with the number, where `sequence`) and stat.

        Fails with `NodeExists`, `NoNode` (the parent is missing), `ZooKeeperConnectionLost`.
        """
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        """Replace a znode's data. Fails with `NoNode`, `BadVersion`, `ZooKeeperConnectionLost`."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """Remove a znode. Fails with `NoNode`, `BadVersion`, `NotEmpty`, `ZooKeeperConnectionLost`."""
        ...

    def multi(self, operations: Sequence[WriteOperation]) -> Deferred[list[OperationResult]]:
        """Make all operations or none; a result for each.

        Fails with `MultiFailed`, `ZooKeeperConnectionLost`.
        """
        ...


class SessionListener(Protocol):
    """Is told what becomes of the sessions, in order. None of its methods may raise."""

    def session_connected(self, session: ZooKeeperSession) -> None:
        """A session has a connection: a new one, or the one that was suspended."""
        ...

    def session_suspended(self, session: ZooKeeperSession) -> None:
        """The session's connection is lost. It may be expiring; its ephemeral znodes may go any moment."""
        ...

    def session_expired(self, session: ZooKeeperSession) -> None:
        """The session is over, its ephemeral znodes are gone; another one is being opened."""
        ...


class ZooKeeper(Protocol):
    """The way to a ZooKeeper: there always is a session, if need be one that still waits for a connection."""

    @property
    def session(self) -> ZooKeeperSession:
        """The session to use now. Operations wait until it is connected."""
        ...

    def add_listener(self, listener: SessionListener) -> None:
        """Tell `listener` of everything from now on."""
        ...

    def start(self) -> None:
        """Open the first session. Trying goes on until it succeeds or `close` is called."""
        ...

    def close(self) -> Deferred[None]:
        """End the session in order, so that its ephemeral znodes go at once. Never fails."""
        ...
