"""Notices when a rebalance begins and ends for a consumer."""

from __future__ import annotations

from holdfast_log.clients.feedback.events import Events, RebalanceBegan, RebalanceEnded
from holdfast_log.clients.groups.membership import GroupMembership


class RebalanceTracker:
    """Counts rebalances, and reports them as events."""

    def __init__(self, membership: GroupMembership, events: Events) -> None:
        self.count = 0
        """Number of rebalances that ended."""
        self.total_ms = 0
        """Total duration of the rebalances, in ms."""
        self._membership = membership
        self._events = events
        self._since_ms: int | None = None

    def look(self, now_ms: int, *, is_subscribed: bool) -> None:
        """Note whether a rebalance has begun or ended since the last call."""
        identity = self._membership.identity
        is_under_way = is_subscribed and not self._membership.is_joined
        if is_under_way and self._since_ms is None:
            self._since_ms = now_ms
            self._events.note(RebalanceBegan(identity.group_id))
        elif not is_under_way and self._since_ms is not None:
            took_ms, self._since_ms = now_ms - self._since_ms, None
            if is_subscribed:
                self.count += 1
                self.total_ms += took_ms
                self._events.note(
                    RebalanceEnded(
                        identity.group_id, identity.generation, tuple(self._membership.owned), took_ms
                    )
                )
