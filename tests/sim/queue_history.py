"""The answers that waiting clients got, and the judge of queues (PIP-68, own API): clients are served in the
order of arrival, and none is dropped.

The deciding broker keeps its queue in memory, so only clients that wait at the same broker are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.messages.ownership import Access
from tests.sim.history import History, Incarnation

_SLACK_S = 1.0
_HEARD_WITHIN_S = 2.0
"""Seconds within which a client must have been heard; shorter than its session timeout."""


@dataclass(frozen=True, slots=True)
class Home:
    """A deciding broker: its address, process number and leader epoch, and the number of the client's
    connection to it."""

    address: Address
    life: int
    leader_epoch: int
    connection: int

    def in_no_epoch(self) -> Home:
        """The same broker and connection with an unknown leader epoch."""
        return replace(self, leader_epoch=-2)

    def is_same_broker(self, other: Home) -> bool:
        return (self.address, self.life) == (other.address, other.life)


@dataclass(eq=False, slots=True)
class Place:
    """A client's place in a queue. `patience_s` is its wait timeout in seconds; None: no timeout."""

    owner: str
    place: Incarnation
    access: Access
    home: Home
    asked_s: float
    told_s: float
    patience_s: float | None
    position: int = 0
    heard_s: float = 0.0
    """When the client sent its last answered request."""
    promoted_s: float | None = None

    @property
    def ends_not_before_s(self) -> float:
        """Earliest time at which the wait timeout may expire. The broker counts it from the arrival of the
        claim, which may be long before the answer if ZooKeeper was slow."""
        return math.inf if self.patience_s is None else self.asked_s + self.patience_s

    @property
    def ends_not_after_s(self) -> float:
        """Latest time at which the wait timeout may expire."""
        return math.inf if self.patience_s is None else self.told_s + self.patience_s

    def __str__(self) -> str:
        return f"{self.owner}, waiting for {self.place} since {self.told_s:.4f} s,"


@dataclass(slots=True)
class QueueHistory:
    """All places in queues that brokers gave to clients."""

    history: History
    _promoted: list[Place] = field(default_factory=list)

    def queued(self, place: Place, position: int) -> None:
        """Record that a claim was queued."""
        place.position = position
        place.heard_s = place.asked_s

    def promoted(self, place: Place) -> None:
        """Record that a waiting client was granted its resource."""
        place.promoted_s = self.history.world.seconds()
        self._promoted.append(place)

    def waits(self, place: Place, position: int, asked_s: float, awake_since_s: float) -> None:
        """Check the position reported to a waiting client. The broker has run since `awake_since_s`."""
        if position > place.position:
            self.history.violation(f"{place} moved back from {place.position} to {position}")
        place.position, place.heard_s = position, asked_s
        if asked_s > max(place.ends_not_after_s, awake_since_s) + _SLACK_S:
            self.history.violation(
                f"{place} still waits, though its timeout ended at {place.ends_not_after_s:.4f} s"
            )
        for other in self._promoted:
            if self._has_overtaken(other, place, asked_s):
                self.history.violation(f"{place} was overtaken by {other.owner}")

    def _has_overtaken(self, other: Place, place: Place, asked_s: float) -> bool:
        return (
            other.promoted_s is not None
            and other.place == place.place
            and other.access == place.access
            and other.home.is_same_broker(place.home)
            and place.told_s < other.asked_s
            and other.promoted_s < asked_s
        )

    def ran_out(self, place: Place, asked_s: float) -> None:
        """Check that a client dropped from its queue was silent or had reached its wait timeout."""
        now_s = self.history.world.seconds()
        is_early = now_s < place.ends_not_before_s - _SLACK_S
        if is_early and now_s - place.heard_s < _HEARD_WITHIN_S:
            self.history.violation(f"{place} lost its place before its timeout ended")
