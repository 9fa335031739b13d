"""Counts what happens to this broker's sessions with ZooKeeper, for metrics."""

from __future__ import annotations

from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession


class SessionCounts:
    """A `SessionListener` that only counts."""

    def __init__(self) -> None:
        self.is_connected = False
        self.connects = 0
        """Connections that were made, for new sessions and for those that were suspended."""
        self.disconnects = 0
        self.expires = 0

    def session_connected(self, session: ZooKeeperSession) -> None:
        self.connects += not self.is_connected
        self.is_connected = True

    def session_suspended(self, session: ZooKeeperSession) -> None:
        self.disconnects += self.is_connected
        self.is_connected = False

    def session_expired(self, session: ZooKeeperSession) -> None:
        self.session_suspended(session)
        self.expires += 1
