"""A leader's record of its followers; it determines the in-sync set and the high watermark.

The state is numbers only, without log, clock or network. The leader proposes changes of the in-sync set to
the controller; they take effect when the controller has written them (KIP-497). Until then the *maximal* set,
of the old and the proposed members, limits the high watermark, so that neither outcome loses a committed
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
REFUSED_PAUSE_MS = 1000
"""Time in ms for which a follower that the controller has refused is not proposed again."""
_NEVER_MS = -(1 << 62)


@dataclass(slots=True)
class RemoteReplica:
    """A follower's state, known from its fetches. Offsets are -1 until its first fetch from this leader."""

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    caught_up_ms: int = _NEVER_MS
    """Time in ms at which the follower last had all of the leader's records. When a leader's term begins,
    members of the in-sync set count as caught up, other followers do not."""
    fetched_ms: int = 0
    end_offset_at_fetch: int = UNKNOWN_OFFSET
    """The leader's log end offset at the follower's last fetch."""
    broker_epoch: int = NO_BROKER_EPOCH
    """Broker epoch in the follower's last fetch; -1 if it sent none (KIP-903)."""
    refused_ms: int = _NEVER_MS
    """Time in ms of the follower's last fetch before it was refused as a member of the in-sync set: by the
    controller, for example because it is stopping, or by this leader, because it is not known to be alive.
    Until the follower registers again or joins, the high watermark does not wait for it."""

    def confirm(self, fetched_ms: int) -> None:
        """Record a fetch of a session in which this partition is unchanged: its position holds (KIP-227)."""
        if self.log_end_offset >= self.end_offset_at_fetch > UNKNOWN_OFFSET:
            self.caught_up_ms = max(self.caught_up_ms, fetched_ms)

    def is_caught_up(self, end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end_offset == end_offset or now_ms - self.caught_up_ms <= lag_ms_max


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An in-sync set that the leader asks the controller to write (AlterPartition)."""

    topic: str
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """For each member of `isr`, the broker epoch in which it caught up; -1 if it sent none (KIP-903)."""


class Leadership:
    """The state of one partition's leader, for one leader epoch."""

    def __init__(
        self,
        local_id: int,
        leader_epoch: int,
        start_offset: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        partition_epoch: int,
        now_ms: int,
        is_live: Callable[[int], bool] = lambda broker_id: True,
        eligible: Sequence[int] = (),
    ) -> None:
        self.local_id = local_id
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        """The log end offset at the start of this leader epoch."""
        self.partition_epoch = partition_epoch
        self.isr: tuple[int, ...] = tuple(isr)
        """The in-sync replicas as the controller last wrote them."""
        self.pending: tuple[int, ...] | None = None
        """The in-sync replicas as proposed, until this leader has seen a state that decides the proposal."""
        self.eligible: tuple[int, ...] = tuple(eligible)
        """Replicas out of sync that have every committed record, as the controller last wrote them (KIP-966).
        While there are any, the high watermark must not rise: they would lack records below it."""
        self._is_live = is_live
        self._is_followed = False
        self.remotes: dict[int, RemoteReplica] = {}
        self.set_replicas(replicas, now_ms)

    def set_replicas(self, replicas: Sequence[int], now_ms: int) -> None:
        """Apply a new assignment. Keeps the state of replicas that stay."""
        known = self.remotes
        self.remotes = {
            replica: known.get(replica)
            or RemoteReplica(replica, caught_up_ms=now_ms if replica in self.isr else _NEVER_MS)
            for replica in replicas
            if replica != self.local_id
        }

    def broker_epoch_of(self, broker_id: int) -> int:
        """Broker epoch in a replica's last fetch; -1 if it sent none, and for this broker."""
        remote = self.remotes.get(broker_id)
        return NO_BROKER_EPOCH if remote is None else remote.broker_epoch

    @property
    def is_followed(self) -> bool:
        """Whether every replica that is in sync, may be in sync, or is eligible to lead has fetched in this
        leader epoch. Until then such a replica may have records of an earlier epoch that this leader lacks,
        and commit them if it leads next."""
        if not self._is_followed:
            candidates = self.maximal_isr.union(self.eligible)
            # Once true, it stays true: a replica joins the set only after it has fetched.
            self._is_followed = all(
                remote.log_end_offset > UNKNOWN_OFFSET
                for remote in self.remotes.values()
                if remote.broker_id in candidates
            )
        return self._is_followed

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every replica that is in the written set or in the proposed one."""
        return frozenset(self.isr).union(self.pending or ())

    @property
    def is_alone(self) -> bool:
        """Whether the set that the controller has written last may name this replica only. Then an election
        can only be unclean, and may choose a replica that has nothing of what this leader commits."""
        return len(self.isr) == 1 or (self.pending is not None and len(self.pending) == 1)

    def record_fetch(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> RemoteReplica | None:
        """Record that a follower fetches from `fetch_offset`, and so has all records before it.

        `end_offset` is the leader's log end offset. Returns None if the broker is not a replica, or sent the
        fetch before its latest registration.
        """
        remote = self.remotes.get(replica_id)
        if remote is None or NO_BROKER_EPOCH != broker_epoch < remote.broker_epoch:
            return None
        if remote.broker_epoch != broker_epoch:
            remote.refused_ms = _NEVER_MS
        remote.broker_epoch = broker_epoch
        if fetch_offset >= end_offset:
            remote.caught_up_ms = max(remote.caught_up_ms, now_ms)
        elif fetch_offset >= remote.end_offset_at_fetch > UNKNOWN_OFFSET:
            remote.caught_up_ms = max(remote.caught_up_ms, remote.fetched_ms)
        remote.log_end_offset = fetch_offset
        remote.log_start_offset = log_start_offset
        remote.end_offset_at_fetch = end_offset
        remote.fetched_ms = now_ms
        return remote

    def committed_offset(self, local_offset: int, end_offset: int, now_ms: int, lag_ms_max: int) -> int:
        """The offset before which every in-sync replica has all records: the next high watermark.

        `local_offset` is the offset up to which this broker itself counts. Replicas that have caught up but
        are not in the set yet limit the high watermark too, unless they are dead or may not join: it must not
        pass them just before they join.
        """
        if not self.remotes:
            return local_offset
        maximal = self.maximal_isr
        committed = local_offset
        for remote in self.remotes.values():
            if remote.log_end_offset < committed and (
                remote.broker_id in maximal
                or (
                    remote.log_end_offset > UNKNOWN_OFFSET
                    and remote.refused_ms == _NEVER_MS
                    and remote.is_caught_up(end_offset, now_ms, lag_ms_max)
                    and self._is_live(remote.broker_id)
                )
            ):
                committed = remote.log_end_offset
        return committed

    def low_watermark(self, local_start_offset: int, is_live: Callable[[int], bool]) -> int:
        """The lowest durable log start among this broker and the followers that are live (KIP-107), or that
        may be in sync and so might lead next."""
        maximal = self.maximal_isr
        return min(
            [local_start_offset]
            + [
                remote.log_start_offset
                for remote in self.remotes.values()
                if remote.broker_id in maximal or is_live(remote.broker_id)
            ]
        )

    def expanded_isr(
        self, replica_id: int, high_watermark: int, is_eligible: Callable[[int], bool]
    ) -> tuple[int, ...] | None:
        """The set with `replica_id` added. None if the replica may not join: it lacks committed records or
        records from before this leader epoch, a proposal is pending, or it was refused recently."""
        remote = self.remotes.get(replica_id)
        if remote is None or self.pending is not None or replica_id in self.isr:
            return None
        if remote.log_end_offset < max(high_watermark, self.start_offset):
            return None
        if not is_eligible(replica_id):
            remote.refused_ms = max(remote.refused_ms, remote.fetched_ms - REFUSED_PAUSE_MS)
            return None
        if remote.fetched_ms - remote.refused_ms < REFUSED_PAUSE_MS:
            return None
        return (*self.isr, replica_id)

    def shrunken_isr(self, end_offset: int, now_ms: int, lag_ms_max: int) -> tuple[int, ...] | None:
        """The set without followers that have lagged for more than `lag_ms_max`. None if none has, or if a
        proposal is pending."""
        if self.pending is not None or len(self.isr) < 2:
            return None  # Most partitions of many may have one replica: all are asked in one turn.
        lagging = {
            replica
            for replica in self.isr
            if replica in self.remotes
            and not self.remotes[replica].is_caught_up(end_offset, now_ms, lag_ms_max)
        }
        if not lagging:
            return None
        return tuple(replica for replica in self.isr if replica not in lagging)

    def propose(self, isr: tuple[int, ...]) -> None:
        assert self.pending is None
        self.pending = isr

    def is_pending(self, proposal: IsrProposal) -> bool:
        """Whether this proposal is the pending one, and this leader has seen no decision of the
        controller."""
        return (
            self.pending == proposal.isr
            and self.leader_epoch == proposal.leader_epoch
            and self.partition_epoch == proposal.partition_epoch
        )

    def settle(self, isr: Iterable[int], partition_epoch: int, eligible: Iterable[int] = ()) -> bool:
        """Take a later state of the partition. It decides the pending proposal: the proposal was written, or
        never will be, because its partition epoch is outdated. Returns False and changes nothing for a state
        that is already known."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.isr = tuple(isr)
        self.eligible = tuple(eligible)
        self.partition_epoch = partition_epoch
        self.pending = None
        for member in self.isr:
            if member in self.remotes:
                self.remotes[member].refused_ms = _NEVER_MS
        return True

    def withdraw(self) -> None:
        """Drop the pending proposal, which will never be written. The in-sync set stays unchanged."""
        refused, self.pending = self.pending, None
        for member in refused or ():
            if member in self.remotes and member not in self.isr:
                self.remotes[member].refused_ms = self.remotes[member].fetched_ms
