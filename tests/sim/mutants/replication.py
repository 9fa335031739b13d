"""Bugs of leaders and followers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.process import hand_over
from holdfast_log.broker.replication import fetcher, following, isr_proposals
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.last_writes import LastWrites
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.coordinator.controller.isr import InSyncSets
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlteredPartition, ProposedPartition
from holdfast_log.protocol.messages.fetch import PartitionData
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import RESTARTS, SINGLE

# Followers


def _truncate_to_high_watermark() -> Sequence[Patch]:
    follow = Partition.follow

    def mutant(self: Partition, assignment: LeaderAndIsr) -> bool:
        is_new = follow(self, assignment)
        if is_new:
            self.truncate_to(self.high_watermark, 0)
        return is_new

    return [(Partition, "follow", mutant)]


def _never_truncate() -> Sequence[Patch]:
    take_good = following._take_good

    def mutant(partition: Partition, data: PartitionData, now_ms: int) -> None:
        if data.diverging_epoch.end_offset < 0:
            take_good(partition, data, now_ms)

    def undivided(self: Partition, offset: int, last_fetched_epoch: int) -> None:
        return None

    return [(following, "_take_good", mutant), (Partition, "_divergence", undivided)]


# Leaders


def _hand_over_before_copied() -> Sequence[Patch]:
    async def mutant(replicas: Any, timeout_ms: int, clock: Any) -> None:
        pass

    return [(hand_over, "_followers_catch_up", mutant)]


def _acknowledge_while_handing_over() -> Sequence[Patch]:
    begin = Replicas.begin_hand_over

    def mutant(self: Replicas) -> list[LastWrites]:
        behind = begin(self)
        self.end_hand_over()
        return behind

    return [(Replicas, "begin_hand_over", mutant)]


def _acknowledge_before_in_sync() -> Sequence[Patch]:
    return [(Append, "is_settled", lambda self, acks: True)]


def _count_member_before_caught_up() -> Sequence[Patch]:
    def mutant(
        self: Leadership, replica_id: int, high_watermark: int, is_eligible: Callable[[int], bool]
    ) -> tuple[int, ...] | None:
        if self.pending is not None or replica_id in self.isr or replica_id not in self.remotes:
            return None
        return (*self.isr, replica_id)

    return [(Leadership, "expanded_isr", mutant)]


def _forget_pending_members() -> Sequence[Patch]:
    def mutant(self: Leadership, local_offset: int, end_offset: int, now_ms: int, lag_ms_max: int) -> int:
        counted = [self.remotes[member].log_end_offset for member in self.isr if member in self.remotes]
        if self.pending is not None:
            counted = [
                self.remotes[member].log_end_offset for member in self.pending if member in self.remotes
            ]
        return min([local_offset, *counted])

    return [(Leadership, "committed_offset", mutant)]


def _withdraw_pending_isr() -> Sequence[Patch]:
    """A leader withdraws a proposed in-sync set at an error after which ZooKeeper may still have it. The
    controller sends such an error when two copies of a request come in the same round."""
    judge = InSyncSets._judge

    def refuse_copies(
        self: InSyncSets, broker_id: int, topic: Any, proposal: ProposedPartition, accepted: Any
    ) -> AlteredPartition:
        row = judge(self, broker_id, topic, proposal, accepted)
        for each in accepted.values():
            if any(copy is row for copy in each.rows[1:]):
                each.rows.pop()
                row.error_code = ErrorCode.INVALID_UPDATE_VERSION
        return row

    final = isr_proposals._NOT_WRITTEN | isr_proposals._UNDECIDED | {ErrorCode.INVALID_UPDATE_VERSION}
    return [
        (isr_proposals, "_NOT_WRITTEN", final),
        (isr_proposals, "_UNDECIDED", frozenset()),
        (InSyncSets, "_judge", refuse_copies),
    ]


def _raise_high_watermark_below_min_isr() -> Sequence[Patch]:
    advance = Partition.advance_high_watermark

    def mutant(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        role, needed = self.role, self._in_sync_needed_max
        if not isinstance(role, Leadership):
            return False
        eligible, role.eligible, self._in_sync_needed_max = role.eligible, (), 0
        try:
            return advance(self, now_ms, lag_ms_max)
        finally:
            role.eligible, self._in_sync_needed_max = eligible, needed

    return [(Partition, "advance_high_watermark", mutant)]


def _high_watermark_moves_back() -> Sequence[Patch]:
    def mutant(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        role = self.role
        if not isinstance(role, Leadership):
            return False
        end_offset = self.log.log_end_offset
        before = self.high_watermark
        self.high_watermark = max(0, role.committed_offset(end_offset, end_offset, now_ms, lag_ms_max))
        return self.high_watermark != before

    return [(Partition, "advance_high_watermark", mutant)]


def _show_uncommitted() -> Sequence[Patch]:
    read = Partition.read

    def mutant(self: Partition, *arguments: Any, **keywords: Any) -> Any:
        committed = self.high_watermark
        self.high_watermark = self.log.log_end_offset
        try:
            return read(self, *arguments, **keywords)
        finally:
            self.high_watermark = committed

    return [(Partition, "read", mutant)]


def _acknowledge_before_durable() -> Sequence[Patch]:
    def mutant(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        role = self.role
        if not isinstance(role, Leadership):
            return False
        end_offset = self.log.log_end_offset
        committed = role.committed_offset(end_offset, end_offset, now_ms, lag_ms_max)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    return [(Partition, "advance_high_watermark", mutant)]


def _tell_before_durable() -> Sequence[Patch]:
    return [(fetcher._Copy, "must_flush", property(lambda self: False))]


def _lose_dedupe_state() -> Sequence[Patch]:
    lead = Partition.lead

    def mutant(self: Partition, assignment: LeaderAndIsr, now_ms: int) -> bool:
        is_new = lead(self, assignment, now_ms)
        if is_new:
            self.log.producers.clear(self.log.log_end_offset)
        return is_new

    return [(Partition, "lead", mutant)]


def _accept_any_leader_epoch() -> Sequence[Patch]:
    return [(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)]


MUTATIONS = (
    Mutation(
        "truncate-to-high-watermark",
        "a follower cuts its log at the high watermark instead of by leader epoch (before KIP-101)",
        _truncate_to_high_watermark,
    ),
    Mutation("never-truncate", "a follower keeps records that its leader does not have", _never_truncate),
    Mutation(
        "acknowledge-before-isr",
        "acks=all is answered when the leader has the record",
        _acknowledge_before_in_sync,
    ),
    Mutation(
        "member-before-caught-up",
        "a follower joins the in-sync set with its first fetch",
        _count_member_before_caught_up,
    ),
    Mutation(
        "pending-members-forgotten",
        "the high watermark passes members whose removal the controller has not written yet (KIP-497)",
        _forget_pending_members,
    ),
    Mutation(
        "pending-isr-withdrawn",
        "a leader withdraws an in-sync set that ZooKeeper may have",
        _withdraw_pending_isr,
    ),
    Mutation(
        "high-watermark-below-min-isr",
        "the high watermark rises with fewer in-sync replicas than min.insync.replicas (KIP-966)",
        _raise_high_watermark_below_min_isr,
    ),
    Mutation(
        "hand-over-before-copied",
        "a broker that stops has others lead before they have all that it has acknowledged",
        _hand_over_before_copied,
        RESTARTS,
    ),
    Mutation(
        "acknowledged-during-hand-over",
        "a broker that stops takes writes with acks=1 after its followers were to have all of them",
        _acknowledge_while_handing_over,
        RESTARTS,
    ),
    Mutation(
        "high-watermark-back",
        "a leader's high watermark moves back with its followers",
        _high_watermark_moves_back,
    ),
    Mutation("uncommitted-shown", "consumers read uncommitted records", _show_uncommitted),
    Mutation(
        "acknowledge-before-durable",
        "flush.before.ack does not wait for the fsync",
        _acknowledge_before_durable,
        SINGLE,
    ),
    Mutation(
        "tell-before-durable",
        "followers report records that are not on their disks yet, despite flush.before.ack",
        _tell_before_durable,
    ),
    Mutation("dedupe-lost", "a new leader has lost the producers' sequences", _lose_dedupe_state),
    Mutation(
        "any-leader-epoch", "requests are not fenced by leader epoch (KIP-320)", _accept_any_leader_epoch
    ),
)
