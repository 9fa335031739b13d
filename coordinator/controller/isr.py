"""AlterPartition: leaders propose in-sync sets (KIP-497; KIP-903's broker epochs). Pure.

The leader sees which followers have caught up or fallen behind; the controller writes the new set, and
refuses proposals that are based on an outdated state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    DecisionSteps,
    StateWrite,
    StateWritten,
    WriteStates,
)
from holdfast_log.coordinator.controller.leaders import Leaders
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, Topic
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.coordinator.znodes.topics import PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ProposedPartition,
)
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True)
class _Accepted:
    """A proposal to be written, and the answers to fill in: one for each copy of it."""

    write: StateWrite
    members: dict[int, int]
    rows: list[AlteredPartition]


_Accepting = dict[TopicPartition, _Accepted]
"""Accepted proposals of one round, written together."""


class InSyncSets:
    """Judges proposals and writes the accepted ones."""

    def __init__(self, state: ControllerState, batch: RequestBatch, leaders: Leaders) -> None:
        self._state = state
        self._batch = batch
        self._leaders = leaders

    def alter(
        self, requests: Sequence[tuple[int, AlterPartitionRequest]]
    ) -> DecisionSteps[list[TopicPartition]]:
        """Judge all requests, write the accepted proposals together, answer each; the changed partitions."""
        accepted: _Accepting = {}
        responses = [(token, self._judge_request(request, accepted)) for token, request in requests]
        changed = []
        if accepted:
            proposals = list(accepted.values())
            written: list[StateWritten] = yield WriteStates([proposal.write for proposal in proposals])
            for proposal, result in zip(proposals, written, strict=True):
                self._leaders.learn(proposal.write.at, result)
                if result.done:
                    changed.append(proposal.write.at)
                for row in proposal.rows:
                    if result.done:
                        _fill(row, proposal.write.state, result.version)
                    else:
                        self._refuse_outdated(proposal.write.at, row)
            self._batch.metadata(changed)
        for token, response in responses:
            yield AnswerRequest(token, None, response)
        return changed

    def _judge_request(self, request: AlterPartitionRequest, accepted: _Accepting) -> AlterPartitionResponse:
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
                self._judge(request.broker_id, known, proposal, accepted) for proposal in topic.partitions
            ]
            response.topics.append(AlteredTopic(topic_id=topic.topic_id, partitions=rows))
        return response

    def _judge(
        self, broker_id: int, topic: Topic | None, proposal: ProposedPartition, accepted: _Accepting
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
            row.error_code = ErrorCode.NOT_CONTROLLER  # The leader knows a later controller.
        elif proposal.leader_epoch < state.leader_epoch:
            row.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif state.leader != broker_id or broker_id not in members:
            row.error_code = ErrorCode.INVALID_REQUEST
        elif sorted(isr) == sorted(state.isr):
            _fill(row, state, version)  # A retry, because the answer was lost.
        elif proposal.partition_epoch < version:
            self._refuse_outdated(at, row)
        elif at in accepted:
            if accepted[at].members == members:
                accepted[at].rows.append(row)  # A retry that came in the same round.
            else:
                self._refuse_outdated(at, row)
        elif not self._eligible(at, members, state.isr):
            row.error_code = ErrorCode.INELIGIBLE_REPLICA
        else:
            new = self._leaders.next_in_sync(at, state, isr)
            accepted[at] = _Accepted(StateWrite(at, new, version), members, [row])
        return row

    def _refuse_outdated(self, at: TopicPartition, row: AlteredPartition) -> None:
        """Refuse a proposal that is based on an outdated state, and send its leader the current one."""
        row.error_code = ErrorCode.INVALID_UPDATE_VERSION
        state = self._state.partition(at).state
        if state is not None:
            self._batch.leader_and_isr([state.leader], [at])

    def _eligible(self, at: TopicPartition, members: dict[int, int], isr: Sequence[int]) -> bool:
        """Whether all brokers that would join are live replicas under the epochs in which they caught up.

        A broker that has restarted since may have lost its unflushed tail (KIP-903).
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
    row.eligible_leader_replicas = list(state.eligible)
