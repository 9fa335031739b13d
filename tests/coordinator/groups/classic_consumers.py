"""Consumers of the classic protocol, for scenarios: each behaves as its client does, one request a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast_log.coordinator.groups.consumer_protocol import encode_assignment
from holdfast_log.coordinator.groups.effects import ErrorAnswer, JoinAnswer, SyncAnswer
from holdfast_log.coordinator.shards.effects import RecordsRefused
from holdfast_log.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
    flat,
    grouped,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld, Member

_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS)
_LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ClassicConsumer:
    """One consumer. An eager one gives up all partitions before it joins, a cooperative one keeps them until
    it is told to give some up. What it gives up it has committed; `commits` has the outcomes."""

    def __init__(
        self, world: GroupWorld, *, is_cooperative: bool = False, instance_id: str | None = None
    ) -> None:
        self.world = world
        self.is_cooperative = is_cooperative
        self.member = Member(instance_id=instance_id)
        self.numbers: list[int] = []
        """The partitions of "orders" that it reads."""
        self.commits: list[ErrorCode] = []
        self.losses: list[ErrorCode] = []
        """The errors by which it has lost what it had."""
        self.must_join = True
        self._join: int | None = None
        self._sync: int | None = None

    def step(self) -> None:
        """Read an answer, or send the next request."""
        if self._join is not None:
            self._read_join()
        elif self._sync is not None:
            self._read_sync()
        elif self.must_join:
            self._send_join()
        else:
            self._beat()

    def leave(self) -> None:
        self._give_up(self.numbers)
        self.world.leave((self.member.member_id, self.member.instance_id))

    def reconnect(self) -> None:
        """Its coordinator has changed: what waited there is not answered."""
        self.must_join = self.must_join or self._join is not None or self._sync is not None
        self._join = self._sync = None

    def _send_join(self) -> None:
        if not self.is_cooperative:
            self._give_up(self.numbers)
        owned = grouped(("orders", number) for number in self.numbers)
        data = encode_subscription(Subscription(topics=["orders"], owned_partitions=owned))
        name = "cooperative-sticky" if self.is_cooperative else "range"
        self.member = replace(self.member, protocols=((name, data),))
        self._join = self.world.send_join(self.member)

    def _read_join(self) -> None:
        assert self._join is not None
        answer = self._answer(self._join, JoinAnswer)
        if answer is None:
            return
        self._join = None
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member = replace(self.member, member_id=answer.member_id)
        elif answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
        else:
            self.must_join = False
            self.member = self.member.after(answer)
            shares = _shares(answer) if answer.leader_id == answer.member_id else None
            self._sync = self.world.send_sync(self.member, shares, protocol_name=answer.protocol_name)

    def _read_sync(self) -> None:
        assert self._sync is not None
        answer = self._answer(self._sync, SyncAnswer)
        if answer is None:
            return
        self._sync = None
        if answer.error is not ErrorCode.NONE:
            self._failed(answer.error)
            return
        given = sorted(number for _, number in decode_assignment(answer.assignment))
        lost = sorted(set(self.numbers).difference(given))
        self._give_up(lost)
        self.must_join = bool(lost)
        self.numbers = given

    def _beat(self) -> None:
        error = self.world.heartbeat(self.member)
        if error is not ErrorCode.NONE:
            self._failed(error)

    def _give_up(self, numbers: list[int]) -> None:
        self.commits += [self.world.commit(1, self.member, partition=number) for number in numbers]
        self.numbers = sorted(set(self.numbers).difference(numbers))

    def _failed(self, error: ErrorCode) -> None:
        self.must_join = True
        if error in _LOST:
            self.losses.append(error)
            self.numbers = []
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member = replace(self.member, member_id="", generation=-1)
        else:
            assert error in _AGAIN, error

    def _answer(self, request: int, kind: type[Any]) -> Any:
        """The answer to a request of this kind; None if there is none yet."""
        answer = self.world.answers.get(request)
        if isinstance(answer, RecordsRefused):
            return kind(answer.error)
        assert answer is None or isinstance(answer, kind | ErrorAnswer)
        return answer


def _shares(answer: JoinAnswer) -> dict[str, bytes]:
    """What the leader assigns: in turns, but nothing that another member still has."""
    owners = {
        number: member.member_id
        for member in answer.members
        for _, number in flat(decode_subscription(member.metadata).owned_partitions)
    }
    names = sorted(member.member_id for member in answer.members)
    shares: dict[str, list[TopicPartition]] = {name: [] for name in names}
    for number in range(PARTITIONS):
        name = names[number % len(names)]
        if owners.get(number, name) == name:
            shares[name].append(TopicPartition("orders", number))
    return {name: encode_assignment(share) for name, share in shares.items()}


PARTITIONS = 4
SILENCE_MS = max(SESSION_MS, REBALANCE_MS)
"""After so long a member that says nothing is gone."""
