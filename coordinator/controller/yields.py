"""Before leadership moves away from a live leader, the leader yields it. Pure.

A leader confirms to clients what only the current leader knows, such as who owns a partition. It cannot see
that the controller has written another leader, if it is cut off from the controller. So the controller first
asks it to stop confirming (YieldLeadership), and writes the next leader only after its answer. A leader that
does not answer keeps its leadership until its registration ends: every such move is optional or can wait.

What was yielded counts in the same leader epoch and in the same registration of the leader. A leader that has
yielded and stays the leader is asked to confirm again. A broker that answers with an unexpected error is
asked again, after longer and longer pauses. Nothing of this is written to ZooKeeper: the first LeaderAndIsr
of a new controller ends what was yielded to the one before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast_log.coordinator.controller.effects import AskToYieldLater, DecisionSteps
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState
from holdfast_log.coordinator.znodes.brokers import YIELDS_LEADERSHIP
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.yield_leadership import (
    YieldedPartition,
    YieldLeadershipRequest,
    YieldLeadershipResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

PAUSE_S = 0.5
"""Seconds before a broker is asked again after its first unexpected error; each further one doubles them."""
PAUSE_MAX_S = 30.0
_STALE = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH})
"""The broker has registered again, or this controller has been replaced: either is about to become known."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Question:
    """A leader that was asked to yield, in one registration and leader epoch, and whether it has."""

    leader: int
    broker_epoch: int
    leader_epoch: int
    is_sent: bool = False
    has_yielded: bool = False


class Yields:
    """Knows which leaders were asked to yield, and which have."""

    def __init__(self, state: ControllerState, batch: RequestBatch) -> None:
        self._state = state
        self._batch = batch
        self._questions: dict[TopicPartition, _Question] = {}
        self._unsent: list[TopicPartition] = []
        self._failed: dict[TopicPartition, _Question] = {}
        """The leaders to ask again, to yield or to confirm: they answered with an unexpected error."""
        self._errors: dict[int, int] = {}
        """How many unexpected errors each broker has answered without a success in between."""
        self._is_pausing = False
        self._touched: dict[TopicPartition, None] = {}
        """The partitions whose leader, leader epoch or registration may have changed since `outdated`."""

    def may_move(self, at: TopicPartition, state: PartitionState) -> bool:
        """Whether leadership may move away from the leader in `state`. If not, the leader is asked to yield
        when the present event ends; the partition is decided again when it has answered.

        It may move away from a leader that is not registered, that has asked for it (controlled shutdown, a
        replica that it reported offline), or whose version is too old to be asked.
        """
        leader = self._state.brokers.get(state.leader)
        if (
            leader is None
            or YIELDS_LEADERSHIP not in leader.info.features
            or state.leader in self._state.shutting_down
            or not self._state.is_online(state.leader, at)
        ):
            return True
        question = self._questions.get(at)
        if question is None or not self._is_current(question, state):
            self._questions[at] = _Question(state.leader, leader.epoch, state.leader_epoch)
            self._unsent.append(at)
            return False
        return question.has_yielded

    def is_asked(self, at: TopicPartition) -> bool:
        """Whether the leader's answer is missing."""
        question = self._questions.get(at)
        return question is not None and not question.has_yielded

    def answered(
        self,
        broker_id: int,
        broker_epoch: int,
        request: YieldLeadershipRequest,
        response: YieldLeadershipResponse,
    ) -> list[TopicPartition]:
        """Remember the answer of a broker that was asked under `broker_epoch`; the partitions to decide."""
        code = response.error_code
        if code in _STALE:
            return []
        if code != ErrorCode.NONE:
            self._errors[broker_id] = self._errors.get(broker_id, 0) + 1
            _log.error(
                "broker %d was asked to yield leadership before it moves, or to confirm again, and answered "
                "with error %d; it will be asked again",
                broker_id,
                code,
            )
            self._failed.update(
                (at, _Question(broker_id, broker_epoch, row.leader_epoch)) for at, row in self._rows(request)
            )
            return []
        self._errors.pop(broker_id, None)
        decidable = []
        for at, row in self._rows(request):
            question = self._questions.get(at)
            if (
                question is not None
                and row.is_yielded
                and (question.leader, question.broker_epoch) == (broker_id, broker_epoch)
                and question.leader_epoch == row.leader_epoch
            ):
                question.has_yielded = True
                decidable.append(at)
        return decidable

    def _rows(self, request: YieldLeadershipRequest) -> Iterator[tuple[TopicPartition, YieldedPartition]]:
        """The rows of a request about partitions that still exist."""
        for topic in request.topics:
            known = self._state.topic_of(topic.topic_id)
            for row in topic.partitions if known is not None else ():
                assert known is not None
                yield TopicPartition(known.name, row.partition), row

    def due(self) -> None:
        """Ask the leaders again that answered with an unexpected error, if they still lead.

        A leader that was not asked to yield in the meantime is to confirm: it may have done neither.
        """
        self._is_pausing = False
        failed, self._failed = self._failed, {}
        for at, asked in failed.items():
            question, state = self._questions.get(at), self._state_of(at)
            if state is None or not self._is_current(asked, state):
                continue
            if question is None:
                self._batch.yield_leadership(asked.leader, at, asked.leader_epoch, is_yielded=False)
            elif not question.has_yielded:
                question.is_sent = False
                self._unsent.append(at)

    def learned(self, at: TopicPartition) -> None:
        """The state of a partition may have changed."""
        if at in self._questions:
            self._touched[at] = None

    def cluster_changed(self) -> None:
        """Brokers or topics have changed."""
        self._touched.update(dict.fromkeys(self._questions))

    def outdated(self) -> list[TopicPartition]:
        """Forget the questions whose leader, leader epoch or registration has changed; their partitions."""
        touched, self._touched = self._touched, {}
        gone = []
        for at in touched:
            question, state = self._questions.get(at), self._state_of(at)
            if question is not None and (state is None or not self._is_current(question, state)):
                del self._questions[at]
                gone.append(at)
        return gone

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the leaders of these partitions that have yielded, but are to stay, confirm again."""
        for at in partitions:
            question, state = self._questions.get(at), self._state_of(at)
            if question is None or not question.has_yielded:
                continue
            del self._questions[at]
            if state is not None and self._is_current(question, state):
                self._batch.yield_leadership(question.leader, at, question.leader_epoch, is_yielded=False)

    def ask(self) -> DecisionSteps[None]:
        """End an event: ask the leaders that have not been asked yet, and later those that have failed."""
        unsent, self._unsent = self._unsent, []
        for at in unsent:
            question = self._questions.get(at)
            if question is not None and not question.is_sent:
                question.is_sent = True
                self._batch.yield_leadership(question.leader, at, question.leader_epoch, is_yielded=True)
        if self._failed and not self._is_pausing:
            self._is_pausing = True
            errors = max(self._errors.get(asked.leader, 1) for asked in self._failed.values())
            yield AskToYieldLater(min(PAUSE_S * 2 ** min(errors - 1, 10), PAUSE_MAX_S))

    def _state_of(self, at: TopicPartition) -> PartitionState | None:
        topic = self._state.topics.get(at[0])
        partition = None if topic is None or self._state.is_deleting(at) else topic.partitions.get(at[1])
        return None if partition is None else partition.state

    def _is_current(self, question: _Question, state: PartitionState) -> bool:
        leader = self._state.brokers.get(question.leader)
        return (
            leader is not None
            and leader.epoch == question.broker_epoch
            and state.leader == question.leader != NO_LEADER
            and state.leader_epoch == question.leader_epoch
        )
