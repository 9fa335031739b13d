"""Unclean recovery (KIP-966): the longest log leads if no replica certainly has every committed record. Pure.

All members of a partition (its in-sync and eligible replicas) may have lost the ends of their logs, because
their machines lost power at the same time. Once all of them are back, the controller asks every live replica
where its log ends (GetReplicaLogInfo) and elects the one with the longest log. If unclean elections are
allowed, it does not wait for replicas that are not alive.

An answer counts only while the broker stays registered as it was when it was asked. Nothing of this is
written to ZooKeeper except the partition's `unclean` replicas: a new controller asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.controller.effects import CheckRecovery, DecisionSteps
from holdfast_log.coordinator.controller.election import ElectedLeader, ReplicaEnd, elect_longest
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState
from holdfast_log.coordinator.znodes.brokers import REPLICA_LOG_INFO
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

CHECK_INTERVAL_S = 3.0
"""Seconds between two checks while answers are missing."""
_CHECKS_MAX = 2
"""Checks after which an election no longer waits for live replicas that it can do without."""
_UNKNOWN = ReplicaEnd(-1, -1)
"""The end of the log of a broker that cannot be asked, because its version is too old."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Inquiry:
    """What the replicas of one partition were asked and have answered, by broker id.

    `asked` has the broker epoch under which a broker was asked, `ends` that epoch and its answer. Brokers in
    `refused` answered with an error: they are asked again at the next check. `checks` counts checks so far.
    """

    asked: dict[int, int] = field(default_factory=dict)
    ends: dict[int, tuple[int, ReplicaEnd]] = field(default_factory=dict)
    refused: dict[int, None] = field(default_factory=dict)
    checks: int = 0


class UncleanRecovery:
    """Asks for the ends of logs, and elects the longest log once the necessary answers are there."""

    def __init__(self, state: ControllerState, batch: RequestBatch) -> None:
        self._state = state
        self._batch = batch
        self._inquiries: dict[TopicPartition, _Inquiry] = {}
        self._undecided: dict[TopicPartition, None] = {}
        """The partitions without an election for lack of answers, in the present event."""
        self._is_check_due = False
        self._elected: dict[TopicPartition, str] = {}

    def elect(
        self,
        at: TopicPartition,
        state: PartitionState,
        replicas: Sequence[int],
        live: Sequence[int],
        *,
        unclean_allowed: Callable[[], bool],
        at_once: bool = False,
    ) -> ElectedLeader | None:
        """Elect the live replica with the longest log; None if that is not allowed, or answers are missing.

        `state` has no live member that certainly has every committed record. `live` are the replicas that may
        lead. `at_once` decides with the answers that are there.
        """
        needed = state.members
        if not all(member in live for member in needed):
            if not unclean_allowed():
                self._inquiries.pop(at, None)
                return None
            needed = ()
        inquiry = self._inquiries.setdefault(at, _Inquiry())
        ends = self._ends(inquiry, live)
        missing = [broker_id for broker_id in live if broker_id not in ends]
        if missing and not at_once:
            is_patient = inquiry.checks < _CHECKS_MAX and len(live) > 1
            if is_patient or any(broker_id in needed for broker_id in missing):
                self._undecided[at] = None
                return None
        found = elect_longest(replicas, ends or dict.fromkeys(live, _UNKNOWN), state.last_known_leader)
        if found is not None:
            self._elected[at] = f"{at[0]}-{at[1]} is led by broker {found.leader} (log ends: {_shown(ends)})"
        return found

    def answered(
        self,
        broker_id: int,
        broker_epoch: int,
        request: GetReplicaLogInfoRequest,
        response: GetReplicaLogInfoResponse,
    ) -> list[TopicPartition]:
        """Remember the answers of a broker that was asked under `broker_epoch`; the partitions to decide."""
        ends: dict[TopicPartition, ReplicaEnd] = {}
        for topic in response.topic_partition_log_info_list:
            known = self._state.topic_of(topic.topic_id)
            if known is None:
                continue
            for row in topic.partition_log_info:
                if row.error_code == ErrorCode.NONE:
                    end = ReplicaEnd(row.last_written_leader_epoch, row.log_end_offset)
                    ends[TopicPartition(known.name, row.partition)] = end
        if response.broker_epoch != broker_epoch:
            ends.clear()  # Another process or registration of the broker has answered.
        decidable = []
        for at in self._asked(request):
            inquiry = self._inquiries.get(at)
            if inquiry is None or inquiry.asked.get(broker_id) != broker_epoch:
                continue
            if at in ends:
                inquiry.ends[broker_id] = broker_epoch, ends[at]
                decidable.append(at)
            else:
                inquiry.refused[broker_id] = None
        return decidable

    def partitions(self) -> list[TopicPartition]:
        """The partitions whose replicas are being asked."""
        self._forget_ended()
        return list(self._inquiries)

    def check(self) -> list[TopicPartition]:
        """Handle the end of a check interval; the partitions to decide."""
        self._is_check_due = False
        for inquiry in self._inquiries.values():
            inquiry.checks += 1
            for broker_id in inquiry.refused:
                inquiry.asked.pop(broker_id, None)
            inquiry.refused.clear()
        return self.partitions()

    def ask(self) -> DecisionSteps[None]:
        """End an event: ask the replicas that have not been asked, and check later whether they answered."""
        self._log_elected()
        self._forget_ended()
        undecided, self._undecided = self._undecided, {}
        for at in undecided:
            if at in self._inquiries:
                self._ask_replicas(at, self._inquiries[at])
        if self._inquiries and not self._is_check_due:
            self._is_check_due = True
            yield CheckRecovery(CHECK_INTERVAL_S)

    def _ask_replicas(self, at: TopicPartition, inquiry: _Inquiry) -> None:
        live = self._state.may_lead(at)
        ends = self._ends(inquiry, live)
        for broker_id in live:
            epoch = self._state.brokers[broker_id].epoch
            if broker_id not in ends and inquiry.asked.get(broker_id) != epoch:
                inquiry.asked[broker_id] = epoch
                inquiry.refused.pop(broker_id, None)
                self._batch.log_info(broker_id, at)

    def _forget_ended(self) -> None:
        """Forget the partitions that were removed or have a leader now."""
        for at in list(self._inquiries):
            topic = self._state.topics.get(at[0])
            partition = None if topic is None else topic.partitions.get(at[1])
            has_leader = partition is not None and partition.state and partition.state.leader != NO_LEADER
            if partition is None or has_leader or self._state.is_deleting(at):
                del self._inquiries[at]

    def _ends(self, inquiry: _Inquiry, brokers: Sequence[int]) -> dict[int, ReplicaEnd]:
        """The known ends of the logs of live brokers, by broker id."""
        ends = {}
        for broker_id in brokers:
            broker = self._state.brokers[broker_id]
            epoch, end = inquiry.ends.get(broker_id, (None, _UNKNOWN))
            if epoch == broker.epoch or REPLICA_LOG_INFO not in broker.info.features:
                ends[broker_id] = end if epoch == broker.epoch else _UNKNOWN
        return ends

    def _asked(self, request: GetReplicaLogInfoRequest) -> list[TopicPartition]:
        return [
            TopicPartition(known.name, number)
            for topic in request.topic_partitions or ()
            if (known := self._state.topic_of(topic.topic_id)) is not None
            for number in topic.partitions
        ]

    def _log_elected(self) -> None:
        """Log one line for all partitions: ten thousand lines would delay the controller."""
        if not self._elected:
            return
        elected, self._elected = list(self._elected.values()), {}
        _log.warning(
            "the longest log was elected, as no live replica certainly has every committed record: %s%s. "
            "Records that no live replica has are lost",
            elected[0],
            f", and {len(elected) - 1} more partitions" if len(elected) > 1 else "",
        )


def _shown(ends: dict[int, ReplicaEnd]) -> str:
    return (
        ", ".join(
            f"broker {broker_id}: offset {end.offset} in leader epoch {end.leader_epoch}"
            for broker_id, end in sorted(ends.items())
        )
        or "none known"
    )
