"""What stray readers got, and their judge: nobody else reads within a grant to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast_log.protocol.messages.ownership import Access
from tests.sim.history import History, Incarnation

if TYPE_CHECKING:
    from tests.sim.owner_history import Told


@dataclass(frozen=True, slots=True)
class ForeignRead:
    """A fetch without an error, of a client that never owned the partition, on a connection that had named
    the group of its single reader."""

    client: str
    place: Incarnation
    group: str
    sent_s: float
    answered_s: float

    def __str__(self) -> str:
        when = f"between {self.sent_s:.4f} s and {self.answered_s:.4f} s"
        return f"{self.client} read {self.place} for {self.group!r} {when}"


@dataclass(slots=True)
class ForeignReads:
    """All foreign reads, with and without records.

    A grant to read lasts from the moment at which its owner was told of it to the last moment at which a
    broker confirmed it. An owner whose grant is confirmed once more may rely on it that nobody else has read
    for its group since: the first foreign read after it has gone ends its grant for good.
    """

    history: History
    _reads: list[ForeignRead] = field(default_factory=list)

    def served(self, read: ForeignRead) -> None:
        """Record a foreign read. It is judged when a broker confirms a grant again."""
        self._reads.append(read)

    def confirmed(self, grant: Told, asked_s: float) -> None:
        """Check an answer that confirms `grant` once more, to a request that was sent at `asked_s`."""
        if Access.READ not in grant.access:
            return
        for read in self._reads:
            is_of_group = read.place == grant.place and read.group == grant.group
            if is_of_group and grant.told_s < read.sent_s and read.answered_s < asked_s:
                self.history.violation(f"{grant} was confirmed at {asked_s:.4f} s or later, although {read}")
                return
