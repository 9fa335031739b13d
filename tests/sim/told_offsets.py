"""Checks the end offsets of committed records that brokers report to clients: they never decrease.

Two answers are compared if one had arrived before the client sent the request for the other, and the later
answer comes from a leader of the same leader epoch or a later one: a request in the later epoch must not get
a lower offset (KIP-207). A replaced leader that does not know of its successor may report a lower offset to a
client that does not know of the successor either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.history import History, Incarnation


@dataclass(frozen=True, slots=True)
class _End:
    """An answer: the end offset of the committed records, the time of its arrival, and the leader epoch of
    the broker that gave it."""

    leader_epoch: int
    arrived_s: float
    offset: int
    client: str


@dataclass(slots=True)
class ToldOffsets:
    """The end offsets that all clients learned from ListOffsets answers and from the records they fetched."""

    history: History
    _ends: dict[Incarnation, list[_End]] = field(default_factory=dict)

    def told(
        self, client: str, place: Incarnation, leader_epoch: int, offset: int, *, asked_s: float | None
    ) -> None:
        """Record that a client learned that every record before `offset` is committed.

        `asked_s` is the time in seconds at which the client sent the request: it is a violation if by then a
        client had learned a higher offset from the same leader epoch or an earlier one. Without `asked_s` the
        offset is only a lower bound, as with fetched records."""
        if place.at[0] in self.history.may_lose:
            return
        self.history.told_committed(place, offset, f"what {client} was told")
        ends = self._ends.setdefault(place, [])
        if asked_s is not None:
            earlier = max(
                (each for each in ends if each.leader_epoch <= leader_epoch and each.arrived_s < asked_s),
                key=lambda each: each.offset,
                default=None,
            )
            if earlier is not None and earlier.offset > offset:
                self.history.violation(
                    f"{client} was told that {place} ends at {offset} in epoch {leader_epoch}, after "
                    f"{earlier.client} had been told {earlier.offset} in epoch {earlier.leader_epoch}"
                )
        now_s = self.history.world.seconds()
        # Skip an end that is below one already known from the same leader epoch or an earlier one.
        if all(each.offset < offset or each.leader_epoch > leader_epoch for each in ends):
            ends.append(_End(leader_epoch, now_s, offset, client))
