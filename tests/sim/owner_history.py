"""The answers that owners and sharing producers got, and their judges (own API, KIP-27, PIP-68).

Each record names the grant under which it was written, and the server never gives two grants the same
incarnation, so the log shows each record's owner. A grant's fence is the first offset that no earlier owner
may write. Two events are ordered only if one request was sent after the other was answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    GENERATION_RAISE_MAX,
    IF_FREE,
    NO_PARTITION,
    PRODUCERS_GROUP,
    RESET_GENERATION,
    Access,
    LossReason,
)
from tests.sim.checkers import StoredLog
from tests.sim.foreign_reads import ForeignReads
from tests.sim.history import Batch, History, Incarnation, Outcome, TopicPartition
from tests.sim.queue_history import QueueHistory


@dataclass(frozen=True, slots=True)
class Told:
    """A grant that a client received. `named` is the generation that its claim named.

    A grant without an incarnation is shared access: its producer may write beside others.
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
    owner_id: str = ""
    """The owner id in the requests. Several claimants may have the same."""
    claimed: frozenset[int] = frozenset()
    """The generations named by all claims of this owner that may have been given the grant. A broker answers
    a claim of the present owner with the grant that it has, perhaps by an earlier claim without an answer."""

    @property
    def is_shared(self) -> bool:
        return self.incarnation < 0

    def excludes(self, other: Told) -> bool:
        """Whether both cannot be in force at once: a group has one reader, all groups together one writer."""
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
    """A batch, the grant under which it was written, and the expected end of the log (None: no condition).
    `is_late`: its producer already knew that it had lost the partition. `append_id`: the id of the append;
    empty for none."""

    batch: Batch
    grant: Told
    expected_offset: int | None
    is_late: bool = False
    append_id: bytes = b""
    is_refused: bool = False
    """Whether a broker answered that the batch will never be in the log."""

    @property
    def id_unused_before(self) -> int:
        """An offset before which the log has no append with this id; -1 without an id."""
        return self.expected_offset if self.append_id and self.expected_offset is not None else -1


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition: a batch for another partition is appended only if `at` ends at `expected`. Consumers had
    read `known_end` records of `at` when the batch was sent."""

    at: TopicPartition
    expected: int
    known_end: int


@dataclass(slots=True)
class OwnerHistory:
    """All grants and batches of tenants. `has_resets`: whether any tenant claims with generation 0.
    `names_forgotten_after_s`: how long nobody has owned a name before brokers may forget it; None if they do
    not forget any."""

    history: History
    has_resets: bool = False
    names_forgotten_after_s: float | None = None
    has_forgotten_ids: bool = False
    """Whether brokers remember so few append ids that they forget some."""
    grants: list[Told] = field(default_factory=list)
    batches: list[OwnedBatch] = field(default_factory=list)
    queues: QueueHistory = field(init=False)
    foreign_reads: ForeignReads = field(init=False)
    _stolen: list[Told] = field(default_factory=list)
    """The grants whose owners were told that another client has taken them."""
    _fenced_s: dict[Told, float] = field(default_factory=dict)
    """When a client was answered that the grant of its fence has ended for good, in simulated seconds."""

    def __post_init__(self) -> None:
        self.queues = QueueHistory(self.history)
        self.foreign_reads = ForeignReads(self.history)

    def granted(self, told: Told) -> None:
        """Check the grant that a claim was answered with: no other owner has its incarnation, it is newer
        than every earlier grant, and every record before a writer's fence is committed."""
        if Access.WRITE in told.access:
            self.history.told_committed(told.place, told.fence_offset, f"fence of {told}")
        if told.generation > GENERATION_RAISE_MAX:
            self.history.violation(f"{told} has a generation that no number of grants can have reached")
        for other in self.grants:
            if other.place != told.place or other.is_shared or told.is_shared:
                continue
            if other.owner == told.owner and other.incarnation == told.incarnation:
                self.foreign_reads.confirmed(other, told.asked_s)
                continue
            if other.incarnation == told.incarnation:
                self.history.violation(f"{told} has the incarnation of {other}")
            elif not other.excludes(told):
                continue
            elif other.told_s < told.asked_s and other.incarnation > told.incarnation:
                self.history.violation(f"{told} was granted after {other}")
            elif other.group == told.group:
                self._check_generations(told, other)
        for lost in self._stolen:
            self._check_taking(lost, told)
        self.grants.append(told)

    def _check_generations(self, told: Told, other: Told) -> None:
        """Check that generations rise with the grants, unless claims with generation 0 may reset them."""
        if self.has_resets and told.group != PRODUCERS_GROUP:
            return
        if self._may_have_been_forgotten(told, other):
            return
        if (other.incarnation < told.incarnation) != (other.generation < told.generation):
            self.history.violation(f"{told} and {other}: generations do not rise with the grants")
        elif (
            told.named > RESET_GENERATION
            and other.told_s < told.asked_s
            and told.named < other.generation < told.generation
        ):
            self.history.violation(f"{told} was granted to a claim that named {told.named}, after {other}")

    def _may_have_been_forgotten(self, told: Told, other: Told) -> bool:
        """Whether a name can have been forgotten between the two grants: its generations then begin at 1."""
        if self.names_forgotten_after_s is None or told.place.at[1] != NO_PARTITION:
            return False
        first_s, last_s = min(told.asked_s, other.asked_s), max(told.told_s, other.told_s)
        return last_s - first_s >= self.names_forgotten_after_s

    def stands(self, grant: Told, asked_s: float) -> None:
        """Check a renewal on the connection of the grant: no conflicting grant was given since."""
        self._check_fence(grant, asked_s)
        self.foreign_reads.confirmed(grant, asked_s)
        for other in self.grants:
            if other is grant or not other.excludes(grant):
                continue
            if other.asked_s > grant.told_s and other.told_s < asked_s and other.owner != grant.owner:
                self.history.violation(f"{grant} was confirmed beside {other}")

    def resumed(self, grant: Told, asked_s: float) -> None:
        """Check a resumption on a new connection: no newer conflicting grant was given before it."""
        self._check_fence(grant, asked_s)
        self.foreign_reads.confirmed(grant, asked_s)
        for other in self.grants:
            is_newer = other.incarnation > grant.incarnation or (
                other.is_shared and other.asked_s > grant.told_s
            )
            if is_newer and other.excludes(grant) and other.told_s < asked_s:
                self.history.violation(f"{grant} was resumed after {other}")

    def fenced(self, grant: Told, generation: int, reason: LossReason) -> None:
        """Check a grant taken by another client of its group: the group's generation must have risen since.

        Another group's claim with generation 0 and a producer that fences others take the partition from all
        groups, but raise only the generation of their own group.
        """
        may_begin_anew = self.has_resets and grant.group != PRODUCERS_GROUP
        is_within = reason is LossReason.STOLEN or (
            reason is LossReason.EVICTED and grant.group == PRODUCERS_GROUP
        )
        if is_within and not may_begin_anew and generation <= grant.generation:
            self.history.violation(f"{grant} was taken away, but generation {generation} is in force")
        if reason is LossReason.STOLEN:
            self._stolen.append(grant)
            for other in self.grants:
                self._check_taking(grant, other)

    def _check_taking(self, lost: Told, taker: Told) -> None:
        """Check a grant that follows one which was taken from its owner: a claim that names no generation is
        granted only what is free. It may be answered with what an earlier claim of its owner took."""
        is_next = taker.incarnation > lost.incarnation and taker.generation == lost.generation + 1
        is_of_group = taker.place == lost.place and taker.group == lost.group != PRODUCERS_GROUP
        if not (is_of_group and is_next) or taker.named != IF_FREE or self.has_resets:
            return
        if taker.claimed & {lost.generation, taker.generation}:
            return
        if not self._may_have_been_forgotten(taker, lost):
            self.history.violation(f"{taker} was granted to a claim of a free resource, but took {lost}")

    def dropped(self, grant: Told, reason: LossReason) -> None:
        """Report a grant ended without a successor, or forgotten, although its owner's connection is open."""
        self.history.violation(f"{grant} was ended ({reason.name}), though its connection is open")

    # Fences

    def fence_refused(self, grant: Told, code: int, now_s: float) -> None:
        """Check the refusal of a request that carried the fence of `grant`, with the secret of its claim."""
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.history.violation(f"the fence of {grant} was refused as if it were forged")
        elif code in (ErrorCode.PRODUCER_FENCED, ErrorCode.OWNERSHIP_FENCED):
            self._fenced_s.setdefault(grant, now_s)

    def _check_fence(self, grant: Told, asked_s: float) -> None:
        fenced_s = self._fenced_s.get(grant)
        if fenced_s is not None and asked_s > fenced_s:
            self.history.violation(f"{grant} was confirmed, though its fence was refused for good before")

    def forged(self, stranger: str, victim: Told, what: str) -> None:
        """Report a request that was served with the fence of another's grant, but without its secret."""
        self.history.violation(f"{stranger} {what} by the fence of {victim}, without its secret")

    # Conditional appends

    def was_appended(self, owned: OwnedBatch) -> None:
        """Check an acknowledgement: the batch, and all before it, is committed."""
        batch = owned.batch
        if batch.offset is not None:
            end = batch.offset + len(batch.values)
            self.history.told_committed(Incarnation(batch.at, batch.topic_id), end, f"the answer to {batch}")

    def mismatched(self, owned: OwnedBatch, end: int, asked_s: float) -> None:
        """Check the refusal of a conditional append, which says where the log ended when it was judged."""
        place = Incarnation(owned.batch.at, owned.batch.topic_id)
        self.history.told_committed(place, end, f"the refusal of {owned.batch}")
        self.history.told_present_end(place, end, f"the refusal of {owned.batch}", asked_s=asked_s)

    # Guards

    def known_end(self, at: TopicPartition) -> int:
        """Number of records of a partition that consumers have read."""
        return max((len(seen) for place, seen in self.history.seen.items() if place.at == at), default=0)

    def guard_held(self, owned: OwnedBatch, guard: Guard) -> None:
        """Check a condition on another partition that a broker reported to hold."""
        if guard.expected < guard.known_end:
            self.history.violation(
                f"{owned.batch} found that {guard.at[0]}-{guard.at[1]} ends at {guard.expected}, "
                f"but consumers had read {guard.known_end} records of it"
            )

    def guard_ignored(self, owned: OwnedBatch, guard: Guard) -> None:
        """Report a batch that was or may have been appended although a condition of its request did not
        hold."""
        self.history.violation(f"{owned.batch} was or may have been appended, though {guard} did not hold")

    # Append ids

    def was_repeated(self, owned: OwnedBatch, offset: int, *, is_repeat: bool) -> None:
        """Check the success of an append that another process repeated, expecting an impossible offset."""
        batch = owned.batch
        if not is_repeat:
            self.history.violation(f"{batch} was appended again at {offset} by its repetition")
        elif owned.is_refused:
            self.history.violation(f"{batch} was refused for good, but its repetition found it at {offset}")
        elif batch.offset not in (None, offset):
            self.history.violation(f"{batch} is at {batch.offset}, but its repetition was answered {offset}")
        place, end = Incarnation(batch.at, batch.topic_id), offset + len(batch.values)
        self.history.told_committed(place, end, f"the repetition of {batch}")
        batch.outcome, batch.offset = Outcome.ACKED, offset

    def was_forgotten(self, owned: OwnedBatch) -> None:
        """Check that a broker answered that it does not know the id of an append that was acknowledged."""
        batch = owned.batch
        place = Incarnation(batch.at, batch.topic_id)
        is_deleted = batch.offset is None or batch.offset < self.history.deleted.get(place, 0)
        if batch.at[0] not in self.history.may_lose and not is_deleted:
            self.history.violation(f"{batch} is at {batch.offset}, but its append id was unknown")

    # The log at the end

    def check(self, place: Incarnation, log: StoredLog) -> Iterator[str]:
        """Yield all violations in the log of an owned partition."""
        where = {value: offset for offset, value in log.values.items()}
        batches = [each for each in self.batches if each.batch.at == place.at]
        writers = {value: each for each in batches for value in each.batch.values}
        yield from self._check_order(place, log, writers)
        for each in batches:
            offset = where.get(each.batch.values[0])
            if offset is None:
                continue
            if each.is_late:
                yield f"{each.batch} is at {offset}, though {each.grant} had ended and its owner knew"
            if each.is_refused:
                yield f"{each.batch} was refused for good, but is at {offset}"
            if each.expected_offset not in (None, offset):
                yield f"{each.batch} expected the log to end at {each.expected_offset}, but is at {offset}"

    def _check_order(
        self, place: Incarnation, log: StoredLog, writers: dict[bytes, OwnedBatch]
    ) -> Iterator[str]:
        """Check that no owner wrote after its successor's first record or before its own fence, and that
        nobody else, neither a sharing producer nor a stranger, wrote between two records of a grant."""
        grants = sorted(
            (
                grant
                for grant in self.grants
                if grant.place == place and not grant.is_shared and Access.WRITE in grant.access
            ),
            key=lambda grant: grant.incarnation,
        )
        latest: Told | None = None
        foreign = ""
        """Who else has written since the latest record of an exclusive owner."""
        for offset, value in sorted(log.written.items()):
            writer = writers.get(value)
            if writer is None:
                foreign = f"the record {value!r} of a stranger"
                continue
            grant = writer.grant
            if grant.is_shared:
                foreign = str(grant)
                wrong = _misplaced_share(grant, grants, offset)
            elif latest is not None and grant.incarnation < latest.incarnation:
                wrong = f"after {latest}"
            elif latest is not None and grant.incarnation == latest.incarnation and foreign:
                wrong = f"before and after {foreign}"
            else:
                latest, foreign = grant, ""
                wrong = _misplaced(grant, grants, offset)
            if wrong:
                yield f"{place}: {grant} wrote at {offset}, {wrong}"
                return


def _misplaced(grant: Told, grants: list[Told], offset: int) -> str:
    """How a record of `grant` at an offset violates a fence; empty if it does not."""
    for other in grants:
        if other.incarnation == grant.incarnation and other is not grant:
            continue  # The same grant, repeated by a new leader that had to estimate the fence.
        is_later = other.incarnation > grant.incarnation
        if is_later == (offset >= other.fence_offset):
            return _beyond(other, is_behind=is_later)
    return ""


def _misplaced_share(share: Told, grants: list[Told], offset: int) -> str:
    """How a record of a sharing producer at an offset violates a fence; empty if it does not. Only grants
    requested after `share` was answered, or answered before it was requested, are compared."""
    for other in grants:
        if share.told_s < other.asked_s and offset >= other.fence_offset:
            return _beyond(other, is_behind=True)
        if other.told_s < share.asked_s and offset < other.fence_offset:
            return _beyond(other, is_behind=False)
    return ""


def _beyond(other: Told, *, is_behind: bool) -> str:
    return f"{'at or after' if is_behind else 'before'} the fence {other.fence_offset} of {other}"
