"""Proposes in-sync sets to the controller, one AlterPartition request at a time, with retries (KIP-497)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.replication.leadership import IsrProposal
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    ProposedPartition,
    TopicData,
)

_log = logging.getLogger(__name__)

_NOT_WRITTEN = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Refusals after which a proposal may be withdrawn.

These errors prove that ZooKeeper does not hold this proposal. The controller refuses a replica only after it
has found that the proposal's leader epoch and partition epoch equal those in ZooKeeper
(`coordinator/controller/isr.py`). If an earlier copy of the proposal had been written, the partition epoch in
ZooKeeper would be higher.
"""

_UNDECIDED = frozenset(
    {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors that do not show whether an earlier copy of the proposal was written.

The proposal stays pending until LeaderAndIsr or StopReplica decides it. It is sent again after
`_UNDECIDED_RETRY_MS`, because this broker or the controller may not know the topic yet.
INVALID_UPDATE_VERSION is not among them: it shows that this leader's state is outdated, and the controller
answers a repeated proposal that it has written with the current state.
"""

_UNDECIDED_RETRY_MS = 1000

PROPOSED_TOGETHER = 500
"""Maximum number of proposals in one request: its answer is dealt with in one turn of the reactor, in some
ms. When a broker dies, each other one proposes all the in-sync sets that it was in."""


class ProposalOutcome(Protocol):
    """Receives the results of proposals: `Replicas`."""

    def is_isr_pending(self, proposal: IsrProposal) -> bool: ...

    def settle_isr(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        isr: list[int],
        partition_epoch: int,
        eligible: list[int],
    ) -> None: ...

    def withdraw_isr(self, proposal: IsrProposal) -> None: ...


class IsrProposals:
    """Sends proposals of one reactor turn, and those made while a request is in flight, in one request, or in
    several one after the other."""

    def __init__(
        self,
        local_id: int,
        clock: Clock,
        metadata: MetadataCache,
        broker_epoch: Callable[[], int],
        send: Callable[[AlterPartitionRequest], Deferred[AlterPartitionResponse]],
        retry_ms: int = 50,
    ) -> None:
        self._local_id = local_id
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._send = send
        self._retry_ms = retry_ms
        self._gathered: dict[tuple[str, int], IsrProposal] = {}
        self._undecided: dict[tuple[str, int], IsrProposal] = {}
        """Proposals to send again when `_undecided_alarm` rings."""
        self._undecided_alarm = Alarm(clock, self._propose_undecided)
        self._is_under_way = False
        self._alarm = Alarm(clock, self._send_gathered)
        self._told: str | None = None
        """The last logged reason of a retry; the same reason is not logged twice in a row."""
        self._listeners: list[ProposalOutcome] = []

    def add_listener(self, listener: ProposalOutcome) -> None:
        """Call `listener` with the result of each proposal."""
        self._listeners.append(listener)

    def propose(self, proposal: IsrProposal) -> None:
        """Send a proposal to the controller. It replaces an unsent one for the same partition."""
        self._gathered[proposal.topic, proposal.partition] = proposal
        self._schedule(0)

    def stop(self) -> None:
        self._gathered.clear()
        self._undecided.clear()
        self._alarm.cancel()
        self._undecided_alarm.cancel()

    def _schedule(self, delay_ms: int) -> None:
        if not self._alarm.is_set and not self._is_under_way:
            self._alarm.set(delay_ms / 1000)

    def _send_gathered(self) -> None:
        # LeaderAndIsr or StopReplica may have decided a proposal since it was gathered.
        some = dict(islice(self._gathered.items(), PROPOSED_TOGETHER))
        for key in some:
            del self._gathered[key]
        proposals = {key: each for key, each in some.items() if self._is_pending(each)}
        if not proposals:
            if self._gathered:
                self._schedule(0)
            return
        self._is_under_way = True
        answer = self._send(self._request(list(proposals.values())))
        answer.addCallback(self._answered, proposals)
        answer.addErrback(self._failed, proposals)

    def _is_pending(self, proposal: IsrProposal) -> bool:
        return any(listener.is_isr_pending(proposal) for listener in self._listeners)

    def _request(self, proposals: list[IsrProposal]) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for proposal in proposals:
            topic = topics.get(proposal.topic)
            if topic is None:
                topic_id = self._metadata.topic_id(proposal.topic)
                topic = topics[proposal.topic] = TopicData(topic_id=topic_id, partitions=[])
            topic.partitions.append(
                ProposedPartition(
                    partition_index=proposal.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._local_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(
        self, response: AlterPartitionResponse, proposals: dict[tuple[str, int], IsrProposal]
    ) -> None:
        self._is_under_way = False
        if response.error_code != ErrorCode.NONE:
            self._try_again(proposals, f"the controller answered {ErrorCode(response.error_code).name}")
            return
        self._told = None
        answered = {
            (self._metadata.name_of(topic.topic_id), partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        unanswered = {}
        refused: list[tuple[IsrProposal, int]] = []
        for key, proposal in proposals.items():
            partition = answered.get(key)
            error_code = None if partition is None else partition.error_code
            if partition is not None and error_code == ErrorCode.NONE:
                self._settle(proposal, partition)
            elif error_code in _NOT_WRITTEN:
                self._withdraw(proposal)
            elif error_code in _UNDECIDED:
                self._undecided[key] = proposal
            else:
                unanswered[key] = proposal
            if error_code in _NOT_WRITTEN | _UNDECIDED:
                refused.append((proposal, error_code))
        if refused:
            _log_refusals(refused)
        if self._undecided and not self._undecided_alarm.is_set:
            self._undecided_alarm.set(_UNDECIDED_RETRY_MS / 1000)
        if unanswered:
            self._try_again(unanswered, "the controller gave no final answer")
        elif self._gathered:
            self._schedule(0)

    def _settle(self, proposal: IsrProposal, altered: AlteredPartition) -> None:
        for listener in self._listeners:
            listener.settle_isr(
                proposal,
                altered.leader_epoch,
                altered.isr,
                altered.partition_epoch,
                altered.eligible_leader_replicas,
            )

    def _withdraw(self, proposal: IsrProposal) -> None:
        for listener in self._listeners:
            listener.withdraw_isr(proposal)

    def _propose_undecided(self) -> None:
        undecided, self._undecided = self._undecided, {}
        self._gather_again(undecided)
        self._schedule(0)

    def _failed(self, failure: Failure, proposals: dict[tuple[str, int], IsrProposal]) -> None:
        self._is_under_way = False
        self._try_again(proposals, str(failure.value))

    def _try_again(self, proposals: dict[tuple[str, int], IsrProposal], why: str) -> None:
        """Send proposals again after a delay."""
        if why != self._told:
            self._told = why
            _log.info(
                "The controller has not decided the in-sync sets of %d partitions; proposing them again: %s",
                len(proposals),
                why,
            )
        self._gather_again(proposals)
        self._schedule(self._retry_ms)

    def _gather_again(self, proposals: dict[tuple[str, int], IsrProposal]) -> None:
        """Gather the proposals that still are pending. At most one for each partition is, so none takes the
        place of a later one, whichever of the two comes back first."""
        for key, proposal in proposals.items():
            if self._is_pending(proposal):
                self._gathered[key] = proposal


def _log_refusals(refused: list[tuple[IsrProposal, int]]) -> None:
    """Log all refusals in one line: a stopping broker may have very many partitions."""
    proposal, error_code = refused[0]
    _log.info(
        "The controller refused %d in-sync sets, which stay as they are; the first: %s of %s-%d: %s",
        len(refused),
        proposal.isr,
        proposal.topic,
        proposal.partition,
        ErrorCode(error_code).name,
    )
