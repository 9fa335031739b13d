"""Bugs of leaders: of high watermarks, in-sync sets and the time at which requests are answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.log.timestamps import TimestampOffset
from holdfast_log.broker.replication import in_sync_changes, offset_lookup
from holdfast_log.broker.replication.appends import ACKS_ALL, ACKS_LEADER, Append
from holdfast_log.broker.replication.isr_proposals import IsrProposals
from holdfast_log.broker.replication.leadership import IsrProposal, Leadership
from holdfast_log.broker.replication.offset_lookup import LATEST, NO_TIMESTAMP
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.controller.isr import InSyncSets
from holdfast_log.coordinator.controller.leaders import Leaders
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.mutation import Mutation, Patch


def _join_at_a_lagging_high_watermark() -> Sequence[Patch]:
    expanded = Leadership.expanded_isr

    def mutant(
        self: Leadership, replica_id: int, high_watermark: int, is_eligible: Callable[[int], bool]
    ) -> tuple[int, ...] | None:
        start_offset, self.start_offset = self.start_offset, 0
        try:
            return expanded(self, replica_id, high_watermark, is_eligible)
        finally:
            self.start_offset = start_offset

    return [(Leadership, "expanded_isr", mutant)]


def _tell_the_end_too_early() -> Sequence[Patch]:
    offset_at = offset_lookup.offset_at

    def mutant(self: Partition, timestamp: int, *, replica_id: int = -1, **more: Any) -> Any:
        if timestamp == LATEST and replica_id < 0:
            self.leadership(more.get("current_leader_epoch", -1))
            return TimestampOffset(self.high_watermark, NO_TIMESTAMP, self.leader_epoch)
        return (yield from offset_at(self, timestamp, replica_id=replica_id, **more))

    return [(offset_lookup, "offset_at", mutant)]


def _shrink_before_it_is_written() -> Sequence[Patch]:
    propose = in_sync_changes.proposal_of

    def mutant(partition: Partition, role: Leadership, isr: tuple[int, ...]) -> IsrProposal:
        proposal = propose(partition, role, isr)
        if len(isr) < len(role.isr):
            role.isr = isr
        return proposal

    return [(in_sync_changes, "proposal_of", mutant)]


def _settle_as_a_former_leader() -> Sequence[Patch]:
    is_settled = Append.is_settled

    def mutant(self: Append, acks: int) -> bool:
        role = None if self.partition is None else self.partition.role
        if self.error is None and self.result is not None and not isinstance(role, Leadership):
            return True
        return is_settled(self, acks)

    return [(Append, "is_settled", mutant)]


def _begin_with_the_log_end() -> Sequence[Patch]:
    def mutant(self: Partition, checkpoint: int) -> None:
        self.high_watermark = self.log.log_end_offset

    return [(Partition, "restore_high_watermark", mutant)]


def _count_the_leader_alone() -> Sequence[Patch]:
    """The high watermark is the highest offset that a majority of replicas has, as in other protocols."""

    def mutant(self: Leadership, local_offset: int, end_offset: int, now_ms: int, lag_ms_max: int) -> int:
        offsets = sorted([local_offset, *(remote.log_end_offset for remote in self.remotes.values())])
        return offsets[(len(offsets) - 1) // 2]

    return [(Leadership, "committed_offset", mutant)]


def _take_any_number_of_replicas() -> Sequence[Patch]:
    prepare, is_settled = Append.prepare, Append.is_settled

    def prepared(self: Append, partition: Partition, acks: int, now_ms: int) -> None:
        prepare(self, partition, ACKS_LEADER if acks == ACKS_ALL else acks, now_ms)

    def settled(self: Append, acks: int) -> bool:
        done = is_settled(self, acks)
        if self.error is not None and self.error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self.error = None
        return done

    return [(Append, "prepare", prepared), (Append, "is_settled", settled)]


def _keep_the_leader_epoch() -> Sequence[Patch]:
    next_state = Leaders.next_state

    def mutant(self: Leaders, at: Any, state: Any, *more: Any, **keywords: Any) -> Any:
        found = next_state(self, at, state, *more, **keywords)
        if found is not None and found.leader == state.leader:
            return found
        if found is not None and found.leader > 0:
            object.__setattr__(found, "leader_epoch", state.leader_epoch)
        return found

    return [(Leaders, "next_state", mutant)]


def _accept_any_registration() -> Sequence[Patch]:
    eligible = InSyncSets._eligible

    def mutant(self: InSyncSets, at: TopicPartition, members: dict[int, int], isr: Sequence[int]) -> bool:
        return eligible(self, at, dict.fromkeys(members, NO_EPOCH), isr)

    return [(InSyncSets, "_eligible", mutant)]


def _let_stopping_brokers_join() -> Sequence[Patch]:
    eligible = InSyncSets._eligible

    def mutant(self: InSyncSets, at: TopicPartition, members: dict[int, int], isr: Sequence[int]) -> bool:
        absent = [each for each in members if each not in self._state.may_lead(at)]
        return eligible(self, at, members, [*isr, *absent])

    return [(InSyncSets, "_eligible", mutant)]


def _gather_the_undecided_last() -> Sequence[Patch]:
    def mutant(self: IsrProposals, proposals: dict[tuple[str, int], IsrProposal]) -> None:
        self._gathered = {**proposals, **self._gathered}

    return [(IsrProposals, "_gather_again", mutant)]


MUTATIONS = (
    Mutation(
        "joins-at-lagging-high-watermark",
        "a follower joins the in-sync set before it has reached the start of the leader's epoch (KAFKA-7128)",
        _join_at_a_lagging_high_watermark,
    ),
    Mutation(
        "end-told-too-early",
        "a new leader tells its high watermark before it has reached the start of its epoch (KIP-207)",
        _tell_the_end_too_early,
    ),
    Mutation(
        "shrinks-before-written",
        "a leader stops waiting for a member whose removal it has only proposed (KIP-497)",
        _shrink_before_it_is_written,
    ),
    Mutation(
        "settled-by-former-leader",
        "appends that wait when leadership ends are answered as if they were committed",
        _settle_as_a_former_leader,
    ),
    Mutation(
        "high-watermark-at-log-end",
        "a broker takes all that it finds in its log for committed when it starts",
        _begin_with_the_log_end,
    ),
    Mutation(
        "majority-commits",
        "the high watermark is what a majority has, and leaders are elected from in-sync sets",
        _count_the_leader_alone,
    ),
    Mutation(
        "min-isr-ignored",
        "acks=all is answered although fewer than min.insync.replicas are in sync",
        _take_any_number_of_replicas,
    ),
    Mutation(
        "leader-epoch-kept",
        "a new leader begins in the leader epoch of the one before it",
        _keep_the_leader_epoch,
    ),
    Mutation(
        "any-registration-joins",
        "a follower joins the in-sync set although it has restarted since it caught up (KIP-903)",
        _accept_any_registration,
    ),
)

# The answer to an earlier proposal must leave it undecided, and a second later the controller must be lost
# while it has the next proposal. The first seed in which that happens is 1335. A broker that stops has hardly
# anything left to catch up with.
RARE = (
    Mutation(
        "stopping-member-joins",
        "a broker that stops, or is gone, joins the in-sync set (KIP-841)",
        _let_stopping_brokers_join,
    ),
    Mutation(
        "proposal-overtaken",
        "an undecided proposal of an in-sync set replaces a later one, which stays pending for ever",
        _gather_the_undecided_last,
    ),
)
