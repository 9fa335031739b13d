"""Members of consumer groups (KIP-848), for scenarios: each keeps what its client would keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast_log.coordinator.groups.consumer_assignment import IdPartition, Partitions
from holdfast_log.coordinator.groups.consumer_group import ConsumerHeartbeat
from holdfast_log.coordinator.groups.effects import ConsumerGroupInfo, ConsumerHeartbeatAnswer
from holdfast_log.coordinator.shards.effects import RecordsRefused
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.world import REBALANCE_MS, GroupWorld

NOTHING: Partitions = frozenset()


class ConsumerMember:
    """One member. `owned` is what it reads: it gives partitions up when it learns that it has to, and says so
    with its next heartbeat."""

    def __init__(
        self,
        world: GroupWorld,
        member_id: str = "m",
        *,
        topics: tuple[str, ...] = ("orders",),
        instance_id: str | None = None,
        **fields: Any,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.owned: Partitions = NOTHING
        self.instance_id = instance_id
        self.fields: dict[str, Any] = {"topics": topics, "rebalance_timeout_ms": REBALANCE_MS, **fields}
        self.group = "g"
        self._is_unsure = False

    def send(self, **changed: Any) -> ConsumerHeartbeatAnswer | RecordsRefused:
        """Send a heartbeat, and return the answer."""
        request = self.world.new_request()
        fields: dict[str, Any] = {
            "member_id": self.member_id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topics": None,
            "regex": None,
            "assignor": None,
            "owned": self.owned,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "may_see": every_topic,
            **changed,
        }
        sent = ConsumerHeartbeat(request, **fields)
        self.world.perform(self.world.shard.consumers.heartbeat(self.group, sent, self.world.now_ms))
        answer = self.world.answers[request]
        assert isinstance(answer, ConsumerHeartbeatAnswer | RecordsRefused)
        return answer

    def join(self, **changed: Any) -> ErrorCode:
        """Join, or join again, without partitions."""
        self.epoch, self.owned = 0, NOTHING
        return self._take(self.send(**{**self.fields, "owned": NOTHING, **changed}))

    def beat(self, **changed: Any) -> ErrorCode:
        """Send a heartbeat: a full one after a lost answer, so that the next answer has the assignment."""
        fields = self.fields if self._is_unsure else {}
        return self._take(self.send(**{**fields, **changed}))

    def lose(self) -> None:
        """Send a heartbeat whose answer is lost."""
        self.send()
        self._is_unsure = True

    def leave(self, epoch: int = -1) -> ErrorCode:
        return self.send(epoch=epoch).error

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions of "orders" that it reads."""
        orders = self.world.topic_id("orders")
        return sorted(number for topic_id, number in self.owned if topic_id == orders)

    def _take(self, answer: ConsumerHeartbeatAnswer | RecordsRefused) -> ErrorCode:
        if isinstance(answer, ConsumerHeartbeatAnswer) and answer.error is ErrorCode.NONE:
            self._is_unsure = False
            self.epoch = answer.epoch
            self.member_id = answer.member_id or self.member_id
            if answer.assignment is not None:
                self.owned = frozenset(IdPartition(*each) for each in answer.assignment)
        return answer.error


def every_topic(_: str) -> bool:
    return True


def settle(*members: ConsumerMember, check: Callable[[], None] = lambda: None) -> None:
    """Heartbeats of all members until nothing changes."""
    for _ in range(20):
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            assert member.beat() is ErrorCode.NONE
            check()
        if [(member.epoch, member.owned) for member in members] == before:
            return
    raise AssertionError("the group does not settle")


def told(world: GroupWorld, group: str = "g") -> ConsumerGroupInfo:
    """ConsumerGroupDescribe."""
    request = world.new_request()
    world.perform(world.shard.consumers.describe(request, group))
    return world.answer(request, ConsumerGroupInfo)


def group_of(world: GroupWorld, *names: str, **fields: Any) -> list[ConsumerMember]:
    """Members that have settled."""
    members = [ConsumerMember(world, name, **fields) for name in names]
    for member in members:
        assert member.join() is ErrorCode.NONE
    settle(*members)
    return members
