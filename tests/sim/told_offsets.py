"""What clients were told of the end of each partition's committed records: it never goes back.

Two answers are compared where one had arrived before the other was asked for, and the later one comes from a
leader of the same leader epoch or a later one: whoever asks in the later epoch must not see less (KIP-207).
A leader that was replaced, and does not know it, may tell less to a client that does not know it either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.history import History, Incarnation


@dataclass(frozen=True, slots=True)
class _End:
    """An answer: the end of what is committed, when it arrived, and in which leader epoch it was given."""

    leader_epoch: int
    arrived_s: float
    offset: int
    client: str


@dataclass(slots=True)
class ToldOffsets:
    """The ends that all clients were told, by ListOffsets and with the records that they fetched."""

    history: History
    _ends: dict[Incarnation, list[_End]] = field(default_factory=dict)

    def told(
        self, client: str, place: Incarnation, leader_epoch: int, offset: int, *, asked_s: float | None
    ) -> None:
        """A client learned that everything before `offset` is committed. With `asked_s`, the time of its
        question, nothing beyond may have been known to clients before; without, it is no more than a lower
        bound, as of records fetched."""
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
        # An end adds nothing that is below one known from the same leader epoch or an earlier one.
        if all(each.offset < offset or each.leader_epoch > leader_epoch for each in ends):
            ends.append(_End(leader_epoch, now_s, offset, client))
