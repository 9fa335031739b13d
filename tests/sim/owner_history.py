"""The answers that owners and sharing producers got, and their judges (own API, KIP-27, PIP-68).

Each record names the grant under which it was written, and the server never gives two grants the same
incarnation. So the log shows each record's owner, and a grant's fence is the first offset that no earlier
owner may write. Times order two events only where one was asked after the other was answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.messages.ownership import PRODUCERS_GROUP, RESET_GENERATION, Access, LossReason
from tests.sim.checkers import StoredLog
from tests.sim.history import Batch, History, Incarnation, TopicPartition
from tests.sim.queue_history import QueueHistory


@dataclass(frozen=True, slots=True)
class Told:
    """A grant that a client received. `named` is the generation that its claim named.

    One without an incarnation is shared access: a producer may write beside others.
    """

    owner: str
    place: Incarnation
    generation: int
    incarnation: int
    fence_offset: int
    named: int
    asked_s: float
    told_s: float
    group: str = "owners"
    access: Access = Access.WRITE

    @property
    def is_shared(self) -> bool:
        return self.incarnation < 0

    def excludes(self, other: Told) -> bool:
        """Whether the two cannot be in force at a time: one reader in a group, one writer in all of them."""
        return self.place == other.place and (
            self.group == other.group
            if Access.WRITE not in self.access & other.access
            else not (self.is_shared and other.is_shared)
        )

    def __str__(self) -> str:
        if self.is_shared:
            return f"shared access to {self.place} for {self.owner}"
        return f"generation {self.generation} ({self.incarnation}) of {self.place} for {self.owner}"


@dataclass(slots=True)
class OwnedBatch:
    """A batch, the grant under which it was written, and where the log was to end (None: anywhere).
    `is_late`: its producer knew already that it has lost the partition."""

    batch: Batch
    grant: Told
    expected_offset: int | None
    is_late: bool = False
    is_refused: bool = False
    """Whether the broker has said that it is not in the log, and will not be."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A partition that was to end at `expected` for a batch of another one to be appended. It is known to
    have had `known_end` records when that was asked."""

    at: TopicPartition
    expected: int
    known_end: int


@dataclass(slots=True)
class OwnerHistory:
    """All grants, claims and batches of tenants. `has_resets`: whether anybody claims with generation 0."""

    history: History
    has_resets: bool = False
    grants: list[Told] = field(default_factory=list)
    batches: list[OwnedBatch] = field(default_factory=list)
    queues: QueueHistory = field(init=False)

    def __post_init__(self) -> None:
        self.queues = QueueHistory(self.history)

    def granted(self, told: Told) -> None:
        """A claim was answered: no other owner has that grant, none of the earlier ones is forgotten, and
        everything before a writer's fence is committed."""
        if Access.WRITE in told.access:
            self.history.told_committed(told.place, told.fence_offset, f"fence of {told}")
        for other in self.grants:
            if other.place != told.place or other.is_shared or told.is_shared:
                continue
            if other.owner == told.owner and other.incarnation == told.incarnation:
                continue
            if other.incarnation == told.incarnation:
                self.history.violation(f"{told} has the incarnation of {other}")
            elif not other.excludes(told):
                continue
            elif other.told_s < told.asked_s and other.incarnation > told.incarnation:
                self.history.violation(f"{told} was granted when {other} had been")
            elif other.group == told.group:
                self._check_generations(told, other)
        self.grants.append(told)

    def _check_generations(self, told: Told, other: Told) -> None:
        """Check that a topic epoch never goes down: producers cannot reset it."""
        if self.has_resets and told.group != PRODUCERS_GROUP:
            return
        if (other.incarnation < told.incarnation) != (other.generation < told.generation):
            self.history.violation(f"{told} and {other}: generations do not rise with the grants")
        elif (
            told.named > RESET_GENERATION
            and other.told_s < told.asked_s
            and told.named < other.generation < told.generation
        ):
            self.history.violation(f"{told} was granted to a claim that named {told.named}, after {other}")

    def stands(self, grant: Told, asked_s: float) -> None:
        """An owner, or a producer that shares, was told that it still is one where it was told so before.

        Then nobody has come meanwhile who cannot be beside it.
        """
        for other in self.grants:
            if other is grant or not other.excludes(grant):
                continue
            if other.asked_s > grant.told_s and other.told_s < asked_s and other.owner != grant.owner:
                self.history.violation(f"{grant} stands beside {other}")

    def resumed(self, grant: Told, asked_s: float) -> None:
        """Check a renewal: no other owner was granted the partition since."""
        for other in self.grants:
            is_newer = other.incarnation > grant.incarnation or (
                other.is_shared and other.asked_s > grant.told_s
            )
            if is_newer and other.excludes(grant) and other.told_s < asked_s:
                self.history.violation(f"{grant} was resumed after {other}")

    def fenced(self, grant: Told, generation: int, reason: LossReason) -> None:
        """An owner was told that it is one no more, why, and which generation is in force in its group.

        Another group's claim with generation 0 and a producer that fences take from all groups, and raise the
        generation of their own.
        """
        may_begin_anew = self.has_resets and grant.group != PRODUCERS_GROUP
        is_within = reason is LossReason.STOLEN or (
            reason is LossReason.EVICTED and grant.group == PRODUCERS_GROUP
        )
        if is_within and not may_begin_anew and generation <= grant.generation:
            self.history.violation(f"{grant} was taken away, but generation {generation} is in force")

    def dropped(self, grant: Told, reason: LossReason) -> None:
        """Check an expiry: the owner was silent on its connection for the session timeout."""
        self.history.violation(f"{grant} was ended ({reason.name}), though its connection stands")

    # Guards

    def known_end(self, at: TopicPartition) -> int:
        """How many records consumers have seen of a partition."""
        return max((len(seen) for place, seen in self.history.seen.items() if place.at == at), default=0)

    def guard_held(self, owned: OwnedBatch, guard: Guard) -> None:
        """A condition on another partition was said to hold."""
        if guard.expected < guard.known_end:
            self.history.violation(
                f"{owned.batch} found that {guard.at[0]}-{guard.at[1]} ends at {guard.expected}, "
                f"of which {guard.known_end} records had been read"
            )

    def guard_ignored(self, owned: OwnedBatch, guard: Guard) -> None:
        """A batch was appended though a condition of its request did not hold."""
        self.history.violation(f"{owned.batch} was appended, though {guard} did not hold")

    # When all is over

    def check(self, place: Incarnation, log: StoredLog) -> Iterator[str]:
        """All violations in the log of an owned partition."""
        where = {value: offset for offset, value in log.values.items()}
        batches = [each for each in self.batches if each.batch.at == place.at]
        writers = {value: each for each in batches for value in each.batch.values}
        yield from self._check_order(place, log, writers)
        for each in batches:
            offset = where.get(each.batch.values[0])
            if offset is None:
                continue
            if each.is_late:
                yield f"{each.batch} is at {offset}, though {each.grant} was over and its owner knew"
            if each.is_refused:
                yield f"{each.batch} was refused for good, but is at {offset}"
            if each.expected_offset not in (None, offset):
                yield f"{each.batch} expected the log to end at {each.expected_offset}, and is at {offset}"

    def _check_order(
        self, place: Incarnation, log: StoredLog, writers: dict[bytes, OwnedBatch]
    ) -> Iterator[str]:
        """No owner writes after the next one has begun, nor before its own fence; and while one is the only
        writer no producer that shares does."""
        grants = sorted(
            (
                grant
                for grant in self.grants
                if grant.place == place and not grant.is_shared and Access.WRITE in grant.access
            ),
            key=lambda grant: grant.incarnation,
        )
        latest: Told | None = None
        shared: Told | None = None
        for offset, value in sorted(log.values.items()):
            writer = writers.get(value)
            if writer is None:
                continue
            grant = writer.grant
            if grant.is_shared:
                shared = grant
                wrong = _misplaced_share(grant, grants, offset)
            elif latest is not None and grant.incarnation < latest.incarnation:
                wrong = f"after {latest}"
            elif latest is not None and grant.incarnation == latest.incarnation and shared is not None:
                wrong = f"after and before {shared}"
            else:
                latest, shared = grant, None
                wrong = _misplaced(grant, grants, offset)
            if wrong:
                yield f"{place}: {grant} wrote at {offset}, {wrong}"
                return


def _misplaced(grant: Told, grants: list[Told], offset: int) -> str:
    """What is wrong with a record of `grant` at an offset."""
    for other in grants:
        if other.incarnation == grant.incarnation and other is not grant:
            continue  # Told again, after another leader had to guess where its fence was.
        is_later = other.incarnation > grant.incarnation
        if is_later == (offset >= other.fence_offset):
            return _beyond(other, is_behind=is_later)
    return ""


def _misplaced_share(share: Told, grants: list[Told], offset: int) -> str:
    """What is wrong with a record at an offset, of a producer that shares. When it was granted that is only
    known beside what was asked afterwards, or told before."""
    for other in grants:
        if share.told_s < other.asked_s and offset >= other.fence_offset:
            return _beyond(other, is_behind=True)
        if other.told_s < share.asked_s and offset < other.fence_offset:
            return _beyond(other, is_behind=False)
    return ""


def _beyond(other: Told, *, is_behind: bool) -> str:
    return f"{'behind' if is_behind else 'before'} the fence {other.fence_offset} of {other}"
