"""The answers that group members got, and the judges of partition ownership and committed offsets.

Once a new generation has begun, the coordinator refuses commits of older ones. So members of the new
generation start at or after the last offset that an older generation committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.sim.history import History, TopicPartition
from tests.sim.reader_history import ReaderHistory

NO_OFFSET = -1


@dataclass(eq=False, slots=True)
class Rewind:
    """A request to move a group to these offsets. `generation` is the group's generation that starts from
    them; None until the coordinator reports it."""

    group: str
    offsets: Mapping[TopicPartition, int]
    generation: int | None = None


@dataclass(slots=True)
class _Place:
    """One partition in one group, by generation: owner, start offset, highest committed offset."""

    owners: dict[int, str] = field(default_factory=dict)
    began: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupHistory:
    """All groups of a simulation."""

    history: History
    readers: ReaderHistory = field(init=False)
    rewinds: list[Rewind] = field(default_factory=list)
    _places: dict[tuple[str, TopicPartition], _Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = ReaderHistory(self.history)

    def owns(self, member: str, group: str, generation: int, partitions: Iterable[TopicPartition]) -> None:
        """Check an assignment: no other member got the partition in the same generation."""
        for at in partitions:
            owners = self._place(group, at).owners
            owner = owners.setdefault(generation, member)
            if owner != member:
                self.history.violation(
                    f"{at[0]}-{at[1]} of {group} is both {owner}'s and {member}'s in generation {generation}"
                )

    def began(self, member: str, group: str, generation: int, at: TopicPartition, offset: int) -> None:
        """Check the offset at which a member starts in a partition that it owns."""
        place = self._place(group, at)
        place.began[generation] = offset
        for before, committed in place.committed.items():
            if before < generation:
                self._check(member, group, at, (before, committed), (generation, offset))
        for before, begun in place.began.items():
            if before < generation:
                self._check(member, group, at, (before, begun), (generation, offset))

    def committed(self, member: str, group: str, generation: int, at: TopicPartition, offset: int) -> None:
        """Check an acknowledged commit against the start offsets of later generations."""
        place = self._place(group, at)
        place.committed[generation] = max(offset, place.committed.get(generation, NO_OFFSET))
        for later, begun in place.began.items():
            if later > generation:
                self._check(member, group, at, (generation, offset), (later, begun))

    def _check(
        self,
        member: str,
        group: str,
        at: TopicPartition,
        earlier: tuple[int, int],
        later: tuple[int, int],
    ) -> None:
        (before, least), (generation, offset) = earlier, later
        if offset >= least or self._was_rewound(group, at, before, generation, offset):
            return
        self.history.violation(
            f"{member}: generation {generation} of {group} started at {offset} of {at[0]}-{at[1]}, but "
            f"generation {before} was at {least}"
        )

    def _was_rewound(self, group: str, at: TopicPartition, before: int, generation: int, offset: int) -> bool:
        """Whether a rewind between two generations explains a lower offset."""
        return any(
            rewind.group == group
            and rewind.offsets.get(at, offset + 1) <= offset
            and (rewind.generation is None or before <= rewind.generation <= generation)
            for rewind in self.rewinds
        )

    def acknowledged(self, group: str) -> dict[TopicPartition, tuple[int, int]]:
        """By partition, the last generation with an acknowledged commit, and its highest offset."""
        return {
            at: max(place.committed.items())
            for (name, at), place in self._places.items()
            if name == group and place.committed
        }

    def check_end(
        self,
        group: str,
        acknowledged: Mapping[TopicPartition, tuple[int, int]],
        kept: Mapping[TopicPartition, int],
    ) -> None:
        """Check that the coordinator's offsets are not below those `acknowledged` before it was asked."""
        for at, (generation, committed) in acknowledged.items():
            found = kept.get(at, NO_OFFSET)
            self._check("at the end", group, at, (generation, committed), (generation + 1_000_000, found))

    def _place(self, group: str, at: TopicPartition) -> _Place:
        return self._places.setdefault((group, at), _Place())
