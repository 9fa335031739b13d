"""Notifications of changes: sequential znodes in one folder, each of which names a thing that has changed.

Each change of a thing creates one; every broker watches the folder and reads the named things again
(`ChangeFollower`). Notifications that are 15 minutes older than the newest one are removed, as in Kafka.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    SessionExpired,
    WatchEvent,
    ZnodeWatch,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.pipelined import outcomes, read_all, results

T = TypeVar("T")

EXPIRATION_MS = 15 * 60 * 1000
_PURGED_TOGETHER = 50
_READ_TOGETHER = 500
"""Notifications that are read, and looked at, in one turn of the reactor."""
_RETRY_S = 1.0
_log = logging.getLogger(__name__)


class ChangeNotifications(Generic[T]):
    """What one broker has seen of the notifications in a folder.

    `prefix` is the path of a notification without its number. `decode(path, data)` returns what one names,
    and raises `BadZnode`.
    """

    def __init__(
        self, prefix: str, decode: Callable[[str, bytes], T], expiration_ms: int = EXPIRATION_MS
    ) -> None:
        self._folder, _, name = prefix.rpartition("/")
        self._name = re.compile(re.escape(name) + r"\d{10}")
        self._decode = decode
        self._expiration_ms = expiration_ms
        self._last_seen = ""
        self._oldest_ms = 0  # Time of the oldest notification, when notifications were last removed.

    async def skip(self, session: ZooKeeperSession, watch: ZnodeWatch) -> None:
        """Take all present notifications as seen, and watch for more. Then read everything: what is read
        later has all changes before."""
        names = await self._names(session, watch)
        self._last_seen = names[-1] if names else ""

    async def news(self, session: ZooKeeperSession, watch: ZnodeWatch) -> list[T] | None:
        """What the notifications since the last call name, and watch for more. None if one of them does not
        say it, or was removed before this broker has read it: then anything may have changed."""
        names = await self._names(session, watch)
        new = names[bisect_right(names, self._last_seen) :]
        if not new:
            return []
        named: dict[T, None] = {}
        is_complete = True
        newest_ms: int | None = None
        for first in range(0, len(new), _READ_TOGETHER):
            paths = [f"{self._folder}/{name}" for name in new[first : first + _READ_TOGETHER]]
            for path, there in zip(paths, await read_all(session, paths), strict=True):
                if there is None:
                    is_complete = False
                    continue
                newest_ms = max(newest_ms or 0, there[1].modified_ms)
                try:
                    named[self._decode(path, there[0])] = None
                except BadZnode as error:
                    _log.error("a malformed notification of a change, so everything is read again: %s", error)
                    is_complete = False
        self._last_seen = new[-1]
        if newest_ms is not None:
            await self._purge(session, names, newest_ms)
        return list(named) if is_complete else None

    async def _names(self, session: ZooKeeperSession, watch: ZnodeWatch) -> list[str]:
        """The names of notifications; of those up to the last one seen all names, whatever they are."""
        names = await session.children(self._folder, watch)
        seen = bisect_right(names, self._last_seen)
        # A znode of another name would sort after the notifications, and hide all later ones.
        return [*names[:seen], *filter(self._name.fullmatch, names[seen:])]

    async def _purge(self, session: ZooKeeperSession, names: Sequence[str], newest_ms: int) -> None:
        """Remove notifications that are older than the newest one by more than the expiration time, the
        oldest first. The times are ZooKeeper's: a broker whose clock is ahead would remove notifications that
        others have not read.

        Reads up to the first one that is younger, and nothing before that one expires: to look at all of
        them after each change would cost the square of the number of changes.
        """
        if self._oldest_ms <= newest_ms <= self._oldest_ms + self._expiration_ms:
            return
        for first in range(0, len(names), _PURGED_TOGETHER):
            some = filter(self._name.fullmatch, names[first : first + _PURGED_TOGETHER])
            paths = [f"{self._folder}/{name}" for name in some]
            stats = await results([session.exists(path) for path in paths])
            there = [(path, stat.modified_ms) for path, stat in zip(paths, stats, strict=True) if stat]
            old = [path for path, modified_ms in there if modified_ms < newest_ms - self._expiration_ms]
            await outcomes([session.delete(path) for path in old])
            if len(old) < len(there):
                self._oldest_ms = min(modified_ms for path, modified_ms in there if path not in old)
                return


class ChangeFollower(Generic[T]):
    """Follows the notifications of some folders: reads what each names, or everything if it may have missed
    one.

    A `MembershipListener`: it follows them on every session on which the broker is registered, and keeps what
    it has read while ZooKeeper is away. `what` names the things in the log.
    """

    def __init__(self, clock: Clock, what: str, notifications: Sequence[ChangeNotifications[T]]) -> None:
        self._clock = clock
        self._what = what
        self._notifications = tuple(notifications)
        self._session: ZooKeeperSession | None = None
        self._is_behind = False
        self._is_following = False
        self._follow_again = False

    async def _read_all(self, session: ZooKeeperSession) -> None:
        """Read everything. What is read has all changes that were made before the call."""
        raise NotImplementedError

    async def _read(self, session: ZooKeeperSession, named: Sequence[T]) -> None:
        """Read again what notifications name."""
        raise NotImplementedError

    # MembershipListener

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        # Reading everything finds the changes that were made while there was no session.
        self._session = session
        self._is_behind = True
        self._is_following = False
        self._changed()

    def suspended(self) -> None:
        pass

    def resumed(self) -> None:
        self._changed()

    def expired(self) -> None:
        self._session = None

    def registration_failed(self, error: Exception) -> None:
        pass

    # Notifications

    def _changed(self, event: WatchEvent | None = None) -> None:
        session = self._session
        if session is None:
            return
        if self._is_following:
            self._follow_again = True
            return
        self._is_following = True
        ensureDeferred(self._follow(session)).addErrback(self._failed, session)

    async def _follow(self, session: ZooKeeperSession) -> None:
        """Read what notifications since the last one handled name."""
        while True:
            self._follow_again = False
            if self._is_behind:
                await self._catch_up(session)
            for notifications in self._notifications:
                named = await notifications.news(session, self._changed)
                if named is None:
                    self._is_behind = self._follow_again = True
                elif named:
                    await self._read(session, named)
            if not self._follow_again or self._session is not session:
                break
        if self._session is session:
            self._is_following = False

    async def _catch_up(self, session: ZooKeeperSession) -> None:
        for notifications in self._notifications:
            await notifications.skip(session, self._changed)
        await self._read_all(session)
        self._is_behind = False

    def _failed(self, failure: Failure, session: ZooKeeperSession) -> None:
        if self._session is not session or failure.check(SessionExpired):
            return  # Everything is read again on the next session.
        self._is_following = False
        self._is_behind = True  # What the notifications have named may not have been read.
        _log.error(
            "reading %s failed, those read before stay in force; retrying: %s",
            self._what,
            failure.getErrorMessage(),
        )
        self._clock.callLater(_RETRY_S, self._changed)
