"""Sends readers' claims to partition leaders, so that each leader knows which group member reads a partition.

One request at a time is sent to each leader; the next one has the claims made in between. A failed claim is
sent again, to the partition's leader at that time, until it is in force or replaced by another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.groups.effects import GroupReader, ReaderClaim
from holdfast_log.coordinator.shards.effects import Decision
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.group_readers import (
    AssignedReader,
    AssignReadersRequest,
    AssignReadersResponse,
    ReadPartitions,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

RETRY_S = 0.25
"""Delay in ms before a failed claim is sent again."""
_ANSWER_MS = 5_000
"""Maximum time in ms for a leader's response. The leader writes to ZooKeeper before it responds."""
_PARTITIONS_MAX = 5_000
"""Maximum number of partitions in one request."""
_NAMED_MAX = 5
"""Maximum number of partitions that a log line lists by name."""

_Key: TypeAlias = tuple[str, TopicPartition]


@dataclass(slots=True, eq=False)
class _Waiting:
    """Claims that a shard waits for, until `timer` ends the wait."""

    deferred: Deferred[None]
    keys: dict[_Key, None]
    timer: DelayedCall | None = None


@dataclass(slots=True, eq=False)
class _Pending:
    """A claim that is not known to be in force. `asked` is the leader to which it is being sent."""

    key: _Key
    claim: ReaderClaim
    decision: Decision
    waiting: _Waiting
    asked: int | None = None
    must_pause: bool = False
    is_late: bool = False
    error: str = "the partition has no leader"


class ReaderClaims:
    """The claims of one shard of groups (`coordinator.groups.reader_claimer.ReaderClaimer`).

    `leader_of` returns the leader of a partition: -1 while it has none, None if the partition does not exist.
    """

    def __init__(
        self,
        clock: Clock,
        leader_of: Callable[[str, int], int | None],
        send: SendToBroker,
        timeout_ms: int,
    ) -> None:
        self._clock = clock
        self._leader_of = leader_of
        self._send = send
        self._timeout_ms = timeout_ms
        self._pending: dict[_Key, _Pending] = {}
        self._asking: dict[int, None] = {}
        self._retry: DelayedCall | None = None

    @property
    def pending(self) -> int:
        """Number of claims that are not known to be in force."""
        return len(self._pending)

    def claim(self, claims: Sequence[ReaderClaim], decision: Decision) -> Deferred[None]:
        waiting = _Waiting(Deferred(), {(each.group_id, each.partition): None for each in claims})
        for each in claims:
            key = (each.group_id, each.partition)
            before = self._pending.pop(key, None)
            if before is not None:
                _over(before)
            self._pending[key] = _Pending(key, each, decision, waiting)
        waiting.timer = self._clock.callLater(self._timeout_ms / 1000, self._run_out, waiting)
        self._ask()
        return waiting.deferred

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        pending, self._pending = self._pending, {}
        for each in pending.values():
            _over(each)

    # Asking

    def _ask(self) -> None:
        """Send unsent claims to those leaders to which no request is in flight."""
        by_leader = self._by_leader()
        for leader, asked in by_leader.items():
            self._asking[leader] = None
            for each in asked:
                each.asked = leader
        for leader, asked in by_leader.items():
            answer = self._send(leader, AssignReadersRequest(readers=_readers(asked)), _ANSWER_MS)
            answer.addCallback(self._answered, leader, asked)
            answer.addErrback(self._not_answered, leader, asked)
        if self._pending and self._retry is None:
            self._retry = self._clock.callLater(RETRY_S, self._ask_again)

    def _by_leader(self) -> dict[int, list[_Pending]]:
        """The claims to send now, by leader."""
        found: dict[int, list[_Pending]] = {}
        for each in list(self._pending.values()):
            leader = self._leader_of(*each.claim.partition)
            if leader is None:
                self._settle(each)  # The partition was deleted; the group is notified of that, too.
            elif leader >= 0 and leader != each.asked and leader not in self._asking and not each.must_pause:
                asked = found.setdefault(leader, [])
                if len(asked) < _PARTITIONS_MAX:
                    asked.append(each)
        return found

    def _ask_again(self) -> None:
        self._retry = None
        for each in self._pending.values():
            each.must_pause = False
        self._ask()

    def _answered(self, response: AssignReadersResponse, leader: int, asked: Sequence[_Pending]) -> None:
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, response.error_message)
        self._asking.pop(leader, None)
        refused = {
            (row.group, TopicPartition(row.topic, row.partition)): error_for(
                row.error_code, row.error_message
            )
            for row in response.refused
        }
        made_late = 0
        for each in asked:
            error = refused.get(each.key)
            if error is None or error.code is ErrorCode.STALE_GENERATION:
                made_late += each.is_late
                self._settle(each)
            else:
                _failed(each, leader, str(error))
        if made_late:
            _log.info("Broker %d has accepted %d reader claims that had timed out", leader, made_late)
        self._ask()

    def _not_answered(self, failure: Failure, leader: int, asked: Sequence[_Pending]) -> None:
        self._asking.pop(leader, None)
        for each in asked:
            _failed(each, leader, failure.getErrorMessage())

    # Outcomes

    def _settle(self, each: _Pending) -> None:
        """Remove a claim that is in force or no longer needed."""
        if self._pending.get(each.key) is each:
            del self._pending[each.key]
        _over(each)

    def _run_out(self, waiting: _Waiting) -> None:
        """End the wait for claims after its timeout, and log which are not in force."""
        late = [each for each in self._pending.values() if each.waiting is waiting]
        for each in late:
            each.is_late = True
        named = [
            f"{topic}-{index} for {each.claim.group_id} ({each.error})"
            for each in late[:_NAMED_MAX]
            for topic, index in [each.claim.partition]
        ]
        _log.warning(
            "The leaders of %d partitions have not accepted their reader claims in time; retrying: %s%s",
            len(late), "; ".join(named), "; …" if len(late) > _NAMED_MAX else "",
        )  # fmt: skip
        waiting.keys.clear()
        waiting.deferred.callback(None)


def _over(each: _Pending) -> None:
    """End the wait for this claim."""
    waiting = each.waiting
    if each.key in waiting.keys:
        del waiting.keys[each.key]
        if not waiting.keys:
            assert waiting.timer is not None
            waiting.timer.cancel()
            waiting.deferred.callback(None)


def _failed(each: _Pending, leader: int, error: str) -> None:
    """Schedule the claim to be sent again, unless it is being sent to another leader."""
    if each.asked == leader:
        each.asked = None
        each.must_pause = True
        each.error = f"broker {leader}: {error}"


def _readers(pending: Iterable[_Pending]) -> list[AssignedReader]:
    """The rows of a request, one for each member and decision."""
    found: dict[tuple[str, GroupReader, int, Decision], dict[str, list[int]]] = {}
    for each in pending:
        claim = each.claim
        who: Any = (claim.group_id, claim.reader, claim.generation, each.decision)
        found.setdefault(who, {}).setdefault(claim.partition.topic, []).append(claim.partition.partition)
    return [
        AssignedReader(
            group=group,
            member_id=reader.member_id,
            client_id=reader.client_id,
            client_host=reader.client_host,
            generation=generation,
            decided_epoch=decision.leader_epoch,
            decided_offset=decision.offset,
            topics=[ReadPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )
        for (group, reader, generation, decision), topics in found.items()
    ]
