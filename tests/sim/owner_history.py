"""What owners of partitions were told, and the judges of it (seed own-api, KIP-27).

Each record is known to be written under one grant, of which the server never gives two with the same
incarnation. So the log itself tells who wrote where, and a grant tells from where on nobody before may write.
Times order only what was asked after something else was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.messages.ownership import RESET_GENERATION
from tests.sim.checkers import StoredLog
from tests.sim.history import Batch, History, Incarnation


@dataclass(frozen=True, slots=True)
class Told:
    """A grant that an owner was told of. `named` is the generation that its claim named."""

    owner: str
    place: Incarnation
    generation: int
    incarnation: int
    fence_offset: int
    named: int
    asked_s: float
    told_s: float

    def __str__(self) -> str:
        return f"generation {self.generation} ({self.incarnation}) of {self.place} for {self.owner}"


@dataclass(slots=True)
class OwnedBatch:
    """A batch, the grant under which it was written, and where the log was to end (None: anywhere)."""

    batch: Batch
    grant: Told
    expected_offset: int | None
    is_refused: bool = False
    """Whether the broker has said that it is not in the log, and will not be."""


@dataclass(slots=True)
class OwnerHistory:
    """All grants, claims and batches of owners. `has_resets`: whether anybody claims with generation 0."""

    history: History
    has_resets: bool = False
    grants: list[Told] = field(default_factory=list)
    batches: list[OwnedBatch] = field(default_factory=list)

    def granted(self, told: Told) -> None:
        """A claim was answered: no other owner has that grant, and none of the earlier ones is forgotten."""
        for other in self.grants:
            if other.place != told.place or (
                other.owner == told.owner and other.incarnation == told.incarnation
            ):
                continue
            if other.incarnation == told.incarnation:
                self.history.violation(f"{told} has the incarnation of {other}")
            elif other.told_s < told.asked_s and other.incarnation > told.incarnation:
                self.history.violation(f"{told} was granted when {other} had been")
            elif not self.has_resets:
                self._check_generations(told, other)
        self.grants.append(told)

    def _check_generations(self, told: Told, other: Told) -> None:
        if (other.incarnation < told.incarnation) != (other.generation < told.generation):
            self.history.violation(f"{told} and {other}: generations do not rise with the grants")
        elif (
            told.named > RESET_GENERATION
            and other.told_s < told.asked_s
            and told.named < other.generation < told.generation
        ):
            self.history.violation(f"{told} was granted to a claim that named {told.named}, after {other}")

    def resumed(self, grant: Told, asked_s: float) -> None:
        """An owner was told that it may go on: nobody else has been granted the partition since."""
        for other in self.grants:
            is_newer = other.place == grant.place and other.incarnation > grant.incarnation
            if is_newer and other.told_s < asked_s:
                self.history.violation(f"{grant} was resumed after {other}")

    def fenced(self, grant: Told, generation: int, *, is_stolen: bool) -> None:
        """An owner was told that another has taken its place, and in which generation."""
        if is_stolen and not self.has_resets and generation <= grant.generation:
            self.history.violation(f"{grant} was taken away, but generation {generation} is in force")

    def dropped(self, grant: Told) -> None:
        """An owner was told on the connection that owns that this connection has closed."""
        self.history.violation(f"{grant} was ended as disconnected, though its connection stands")

    # When all is over

    def check(self, place: Incarnation, log: StoredLog) -> Iterator[str]:
        """What the log of an owned partition must show."""
        where = {value: offset for offset, value in log.values.items()}
        batches = [each for each in self.batches if each.batch.at == place.at]
        writers = {value: each for each in batches for value in each.batch.values}
        yield from self._check_order(place, log, writers)
        for each in batches:
            offset = where.get(each.batch.values[0])
            if offset is None:
                continue
            if each.is_refused:
                yield f"{each.batch} was refused for good, but is at {offset}"
            if each.expected_offset not in (None, offset):
                yield f"{each.batch} expected the log to end at {each.expected_offset}, and is at {offset}"

    def _check_order(
        self, place: Incarnation, log: StoredLog, writers: dict[bytes, OwnedBatch]
    ) -> Iterator[str]:
        """No owner writes after the next one has begun, nor before its own fence."""
        grants = sorted(
            (grant for grant in self.grants if grant.place == place), key=lambda grant: grant.incarnation
        )
        latest: Told | None = None
        for offset, value in sorted(log.values.items()):
            writer = writers.get(value)
            if writer is None:
                continue
            grant = writer.grant
            if latest is not None and grant.incarnation < latest.incarnation:
                yield f"{place}: {grant} wrote at {offset}, after {latest}"
                return
            latest = grant
            for other in grants:
                is_later = other.incarnation > grant.incarnation
                if is_later == (offset >= other.fence_offset):
                    side = "behind" if is_later else "before"
                    fence = f"the fence {other.fence_offset} of {other}"
                    yield f"{place}: {grant} wrote at {offset}, {side} {fence}"
                    return
