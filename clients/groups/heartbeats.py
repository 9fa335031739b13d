"""How a consumer stays a member of its group while the application handles records, and how long (KIP-62).

Between two calls of `poll`, heartbeats continue until `max.poll.interval.ms` has passed: then the application
counts as stuck, and the consumer leaves the group, so that others get its partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.membership import NO_GENERATION, GroupMembership

_LOOK_MS = 100
"""How often the heartbeat thread looks for the answer to a request."""


class Heartbeats:
    """The requests that keep the membership beside the application, and the time since the last `poll`.

    `max_poll_interval_ms` and `interval_ms` are the settings `max.poll.interval.ms` and
    `heartbeat.interval.ms`.
    """

    def __init__(
        self,
        membership: GroupMembership,
        coordinator: GroupCoordinator,
        now_ms: Callable[[], int],
        max_poll_interval_ms: int,
        interval_ms: int,
    ) -> None:
        self.max_poll_interval_ms = max_poll_interval_ms
        self.has_left_late = False
        """Whether the membership ended because `poll` was not called in time, and no other has begun."""
        self._membership = membership
        self._coordinator = coordinator
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._polled_at_ms = now_ms()

    # The application ----------------------------------------------------------------------------------

    def poll_begins(self) -> None:
        """The application called `poll`. After more than `max.poll.interval.ms` its partitions are lost."""
        now_ms = self._now_ms()
        self._leave_if_late(now_ms)
        self._polled_at_ms = now_ms

    def application_begins(self) -> None:
        """`poll` returns, or calls the application back: its time to the next `poll` counts from here."""
        self._polled_at_ms = self._now_ms()

    def joined(self) -> None:
        """The group has assigned partitions: a membership that ended late is not the last one any more."""
        self.has_left_late = False

    def _leave_if_late(self, now_ms: int) -> None:
        is_late = now_ms - self._polled_at_ms > self.max_poll_interval_ms
        if is_late and self._is_member():
            self.has_left_late = True
            self._membership.give_up(now_ms)

    def _is_member(self) -> bool:
        return self._membership.identity.generation != NO_GENERATION

    # Beside the application ---------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now, while the application handles records: they keep the membership, or end
        it when `max.poll.interval.ms` has passed since the last `poll`."""
        self._leave_if_late(now_ms)
        return [*self._membership.beats(now_ms), *self._coordinator.calls(now_ms)]

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply that concerns the membership only; returns whether it was one."""
        return self._membership.handle(reply, now_ms) or self._coordinator.handle(reply, now_ms)

    def until_next_ms(self, now_ms: int) -> int:
        """The time until `calls` has something, or until a reply to it should be looked for, in ms."""
        times = [
            now_ms + self._interval_ms,
            self._membership.next_beat_ms(),
            self._coordinator.next_event_ms(now_ms),
        ]
        if self._membership.is_waiting or not self._coordinator.is_known:
            times.append(now_ms + min(_LOOK_MS, self._interval_ms))
        if self._is_member():
            times.append(self._polled_at_ms + self.max_poll_interval_ms + 1)
        return max(1, min(time for time in times if time is not None) - now_ms)
