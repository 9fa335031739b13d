"""The interface to ZooKeeper, implemented on kazoo and by the simulation.

All work happens on a `ZooKeeperSession`. An expired session stays expired: its operations fail with
`SessionExpired`, and `ZooKeeper.session` returns a new one. Code that keeps the session on which it decided
can therefore never act on a later session.

Operations on one session are sent in the order of the calls and may be pipelined. A watch fires before the
answer to any read that follows the change. Everything happens on the caller's (reactor) thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred

ANY_VERSION = -1
"""Matches any version of a znode, in set, delete and check."""


class ZooKeeperError(Exception):
    """An operation failed. `path` is its znode."""

    def __init__(self, path: str = "", message: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path and message else path or message)


class NoNode(ZooKeeperError):
    """The znode does not exist, or the parent of a znode to create."""


class NodeExists(ZooKeeperError):
    """The znode exists already."""


class BadVersion(ZooKeeperError):
    """The znode does not have the expected version: another client has changed it."""


class NotEmpty(ZooKeeperError):
    """The znode has children and cannot be deleted."""


class AccessDenied(ZooKeeperError):
    """The znode's access control list does not permit the operation with these credentials."""


class ZooKeeperConnectionLost(ZooKeeperError):
    """The connection was lost before the answer arrived: a write may or may not have been applied.

    Reads never fail with this error, because they are retried. The caller has to check the outcome of a
    write.
    """


class SessionExpired(ZooKeeperError):
    """The session has expired: its ephemeral znodes and watches are gone, and it accepts no operations."""


class RequestRefused(ZooKeeperError):
    """ZooKeeper answered with an error that no caller handles; the message names it."""


class RequestTooLarge(ZooKeeperError):
    """The request was not sent, because it has more bytes than ZooKeeper takes. The same request never
    succeeds."""


class MultiFailed(ZooKeeperError):
    """No operation of a multi was applied, because the one at `index` failed with `cause`."""

    def __init__(self, index: int, cause: ZooKeeperError) -> None:
        self.index = index
        self.cause = cause
        super().__init__(cause.path, f"{type(cause).__name__} at operation {index} of a multi")


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a znode.

    `czxid` and `mzxid` are the transactions that created it and last changed it; `version` counts changes of
    its data; `ephemeral_owner` is the id of the session with which it ends (0 for a persistent znode);
    `modified_ms` is the server's time of the last change, in ms since the epoch.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. Result in a multi: its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data. Result in a multi: its `Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a znode. Result in a multi: None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the multi unless the znode has this version. Result: None."""

    path: str
    version: int


WriteOperation: TypeAlias = Create | SetData | Delete | Check
OperationResult: TypeAlias = str | Stat | None


class WatchKind(enum.Enum):
    """The kinds of watch events."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"
    LOST = "lost"
    """The connection was lost, so changes may have been missed. Read and watch again."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """The single event of a watch."""

    kind: WatchKind
    path: str


ZnodeWatch: TypeAlias = Callable[[WatchEvent], None]
"""Called at most once, and never after the session has expired."""


class ZooKeeperSession(Protocol):
    """One ZooKeeper session. Every Deferred may fail with `SessionExpired` or `RequestRefused`, and that of a
    write with `RequestTooLarge`."""

    @property
    def session_id(self) -> int:
        """The session id assigned by ZooKeeper; 0 before the first connection."""
        ...

    @property
    def timeout_ms(self) -> int:
        """Time in ms without contact after which ZooKeeper ends the session: what was asked for, bounded by
        the server's limits. 0 before the first connection."""
        ...

    @property
    def expired(self) -> bool: ...

    def get(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Read a znode. Fails with `NoNode`, and then sets no watch."""
        ...

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes, Stat] | None]]:
        """Read several znodes in one request; None for each that does not exist."""
        ...

    def exists(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[Stat | None]:
        """A znode's stat, or None if it does not exist. The watch is set in either case."""
        ...

    def is_alone(self) -> Deferred[bool]:
        """Ask the server whether it runs alone, not as a member of an ensemble.

        If it does, its answer proves as much as that of a write: nobody else could have ended this session.
        """
        ...

    def children(self, path: str, watch: ZnodeWatch | None = None) -> Deferred[list[str]]:
        """The names of a znode's children, sorted. Fails with `NoNode`, and then sets no watch."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> Deferred[tuple[str, Stat]]:
        """Create a znode; fires with its path (including the number for `sequence`) and stat.

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
        """Apply all operations or none; fires with a result for each.

        Fails with `MultiFailed`, `ZooKeeperConnectionLost`.
        """
        ...


class SessionListener(Protocol):
    """Receives the state changes of sessions, in order. None of its methods may raise."""

    def session_connected(self, session: ZooKeeperSession) -> None:
        """A session is connected: a new one, or one that was suspended."""
        ...

    def session_suspended(self, session: ZooKeeperSession) -> None:
        """The session's connection is lost. The session may expire at any moment, with its ephemeral
        znodes."""
        ...

    def session_expired(self, session: ZooKeeperSession) -> None:
        """The session has expired, its ephemeral znodes are gone; a new session is being opened."""
        ...


class ZooKeeper(Protocol):
    """A ZooKeeper client. It always has a session, possibly one that is not connected yet."""

    @property
    def session(self) -> ZooKeeperSession:
        """The current session. Its operations wait until it is connected."""
        ...

    def add_listener(self, listener: SessionListener) -> None:
        """Notify `listener` of state changes from now on."""
        ...

    def start(self) -> None:
        """Open the first session, retrying until it succeeds or `close` is called."""
        ...

    def close(self) -> Deferred[None]:
        """Close the session, so that its ephemeral znodes are removed at once. Never fails."""
        ...
