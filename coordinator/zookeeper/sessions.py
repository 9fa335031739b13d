"""Work that is to be done on whatever session there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from coordinator.zookeeper.interface import SessionExpired, ZooKeeper, ZooKeeperSession

T = TypeVar("T")


async def on_any_session(zookeeper: ZooKeeper, work: Callable[[ZooKeeperSession], Awaitable[T]]) -> T:
    """What comes of `work`, begun anew on the next session when the one it was done on expires.

    Only for work that may be done twice, and that rests on nothing which a session takes with it. Raises what
    `work` raises; `SessionExpired` only once the way to ZooKeeper is closed, for then there is no next one.
    """
    while True:
        session = zookeeper.session
        try:
            return await work(session)
        except SessionExpired:
            if zookeeper.session is session:
                raise
