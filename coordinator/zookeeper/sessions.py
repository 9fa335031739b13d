"""Work that may run on any session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast_log.coordinator.zookeeper.interface import SessionExpired, ZooKeeper, ZooKeeperSession

T = TypeVar("T")


async def on_any_session(zookeeper: ZooKeeper, work: Callable[[ZooKeeperSession], Awaitable[T]]) -> T:
    """The result of `work`, which is started again on the next session if its session expires.

    Only for work that may run twice and does not depend on the session, such as on ephemeral znodes. Raises
    what `work` raises; `SessionExpired` only after the ZooKeeper client is closed, because no session
    follows.
    """
    while True:
        session = zookeeper.session
        try:
            return await work(session)
        except SessionExpired:
            if zookeeper.session is session:
                raise
