"""In-sync sets as leaders propose them: AlterPartition (KIP-497, and KIP-903's broker epochs). Pure.

The leader sees who has caught up and who has fallen behind; the controller writes it down, and refuses what
rests on a state that has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.controller.effects import AnswerRequest, DecisionSteps, StateWrite, StateWritten, WriteStates
from coordinator.controller.leaders import Leaders
from coordinator.controller.requests import RequestBatch
from coordinator.controller.state import ControllerState, Topic
from coordinator.znodes.brokers import NO_EPOCH
from coordinator.znodes.topics import PartitionState
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ProposedPartition,
)
from protocol.topic_partition import TopicPartition


@dataclass(slots=True)
class _Round:
    """Proposals that are written together. `waiting` has the rows to fill in once a write is known."""

    writes: list[StateWrite] = field(default_factory=list)
    waiting: list[AlteredPartition] = field(default_factory=list)
    taken: dict[TopicPartition, None] = field(default_factory=dict)


class InSyncSets:
    """Handles proposals."""

    def __init__(self, state: ControllerState, batch: RequestBatch, leaders: Leaders) -> None:
        self._state = state
        self._batch = batch
        self._leaders = leaders

    def alter(
        self, requests: Sequence[tuple[int, AlterPartitionRequest]]
    ) -> DecisionSteps[list[TopicPartition]]:
        """Judge all, write what holds in one go, answer each; the partitions that were changed."""
        proposals = _Round()
        responses = [(token, self._judge_request(request, proposals)) for token, request in requests]
        changed = []
        if proposals.writes:
            written: list[StateWritten] = yield WriteStates(proposals.writes)
            for write, row, result in zip(proposals.writes, proposals.waiting, written, strict=True):
                self._leaders.learn(write.at, result)
                if result.done:
                    _fill(row, write.state, result.version)
                    changed.append(write.at)
                else:
                    row.error_code = ErrorCode.INVALID_UPDATE_VERSION
            self._batch.metadata(changed)
        for token, response in responses:
            yield AnswerRequest(token, None, response)
        return changed

    def _judge_request(self, request: AlterPartitionRequest, proposals: _Round) -> AlterPartitionResponse:
        broker = self._state.brokers.get(request.broker_id)
        stale = broker is None or broker.epoch != request.broker_epoch
        response = AlterPartitionResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.STALE_BROKER_EPOCH if stale else ErrorCode.NONE,
            topics=[],
        )
        for topic in () if stale else request.topics:
            known = self._state.topic_of(topic.topic_id)
            rows = [
                self._judge(request.broker_id, known, proposal, proposals) for proposal in topic.partitions
            ]
            response.topics.append(AlteredTopic(topic_id=topic.topic_id, partitions=rows))
        return response

    def _judge(
        self, broker_id: int, topic: Topic | None, proposal: ProposedPartition, proposals: _Round
    ) -> AlteredPartition:
        row = AlteredPartition(
            partition_index=proposal.partition_index,
            error_code=ErrorCode.NONE,
            leader_id=-1,
            leader_epoch=NO_EPOCH,
            isr=[],
            partition_epoch=NO_EPOCH,
        )
        if topic is None or topic.name in self._state.deletions:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return row
        partition = topic.partitions.get(proposal.partition_index)
        if partition is None or partition.state is None:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return row
        at = TopicPartition(topic.name, proposal.partition_index)
        state, version = partition.state, partition.version
        members = {member.broker_id: member.broker_epoch for member in proposal.new_isr_with_epochs}
        members = members or dict.fromkeys(proposal.new_isr, NO_EPOCH)
        isr = tuple(members)
        if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > version:
            row.error_code = ErrorCode.NOT_CONTROLLER  # The leader has heard of a later controller.
        elif proposal.leader_epoch < state.leader_epoch:
            row.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif state.leader != broker_id or broker_id not in members:
            row.error_code = ErrorCode.INVALID_REQUEST
        elif sorted(isr) == sorted(state.isr):
            _fill(row, state, version)  # Sent again, because the answer was lost.
        elif proposal.partition_epoch < version or at in proposals.taken:
            row.error_code = ErrorCode.INVALID_UPDATE_VERSION
        elif not self._eligible(at, members, state.isr):
            row.error_code = ErrorCode.INELIGIBLE_REPLICA
        else:
            new = PartitionState(state.leader, state.leader_epoch, isr, self._state.controller_epoch)
            proposals.taken[at] = None
            proposals.writes.append(StateWrite(at, new, version))
            proposals.waiting.append(row)
        return row

    def _eligible(self, at: TopicPartition, members: dict[int, int], isr: Sequence[int]) -> bool:
        """Whether those that are to join are replicas, alive, and in the life in which they caught up.

        A broker that has started anew since may have lost its unflushed tail (KIP-903).
        """
        replicas = self._state.partition(at).assignment.replicas
        for member, epoch in members.items():
            if member in isr:
                continue
            if member not in replicas or member not in self._state.may_lead(at):
                return False
            if epoch != NO_EPOCH and epoch != self._state.brokers[member].epoch:
                return False
        return True


def _fill(row: AlteredPartition, state: PartitionState, version: int) -> None:
    row.leader_id, row.leader_epoch = state.leader, state.leader_epoch
    row.isr, row.partition_epoch = list(state.isr), version
