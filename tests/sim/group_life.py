"""Members of simulated groups come and go during the faulty minute; at the end the groups are checked."""

from __future__ import annotations

import random
from collections.abc import Mapping

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from holdfast_log.protocol.messages.group_membership import (
    NewOffset,
    RewindConsumerRequest,
    RewindConsumerResponse,
)
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.sim.classic_member import ClassicMember
from tests.sim.client import RETRY_S, Client, Surroundings
from tests.sim.group_history import GroupHistory, Rewind
from tests.sim.history import TopicPartition
from tests.sim.managed_member import ManagedMember
from tests.sim.member import Member
from tests.sim.plan import GroupPlan

_MEAN_PAUSE_S = 5.0
_MEMBERS_MAX = 4
_FETCH_VERSION = 7


class GroupLife:
    """One group whose members join, leave, crash, pause and resume."""

    def __init__(self, around: Surroundings, plan: GroupPlan, told: GroupHistory) -> None:
        self.plan = plan
        self.members: list[Member] = []
        self._around = around
        self._told = told
        self._world = around.world
        self._rng: random.Random = around.world.rng(f"group {plan.name}")
        self._count = 0
        self._is_changing = False
        self.tool = GroupTool(around, f"{plan.name}-tool", plan.name, told)

    def begin(self) -> None:
        for _ in range(self._rng.randint(1, 3)):
            self._come()
        self.tool.start()
        self._is_changing = True
        self._change_later()

    def end(self) -> None:
        """Stop membership changes, and resume all paused members."""
        self._is_changing = False
        for member in self.members:
            member.process.resume()
        if not self.members:
            self._come()

    def dissolve(self) -> None:
        """Kill all members. What brokers write about the group afterwards is not judged."""
        for member in self.members:
            member.process.kill()

    def _come(self) -> None:
        kind = ManagedMember if self.plan.is_managed else ClassicMember
        name = f"{self.plan.name}m{self._count}"
        member = kind(self._around, name, self.plan.name, self.plan.topic, self._told)
        if isinstance(member, ManagedMember):
            member.asks_single_readers = self.plan.has_single_readers
        self._count += 1
        self.members.append(member)
        member.start()

    def _change_later(self) -> None:
        self._world.clock.callLater(self._rng.expovariate(1 / _MEAN_PAUSE_S), self._change)

    def _change(self) -> None:
        if not self._is_changing:
            return
        self._change_later()
        if not self.members or (len(self.members) < _MEMBERS_MAX and self._rng.random() < 0.4):
            self._come()
            return
        member = self._rng.choice(self.members)
        what = self._rng.choice(["leaves", "crashes", "sleeps", "rewind"])
        self._world.trace(member.name, what)
        if what == "leaves":
            self.members.remove(member)
            member.leave()
        elif what == "crashes":
            self.members.remove(member)
            member.process.kill()
        elif what == "sleeps":
            member.process.pause()
            self._world.clock.callLater(self._rng.uniform(0.5, 8.0), member.process.resume)
        elif self.plan.is_managed and member.positions:
            at = self._rng.choice(list(member.positions))
            self.tool.rewind(at, self._rng.randrange(member.positions[at] + 1))

    def is_stable(self) -> bool:
        """Whether all members work in one generation and together own every partition once."""
        first = self.members[0]
        known = first.topics.get(self.plan.topic)
        owned = [at for member in self.members for at in member.positions or ()]
        return (
            known is not None
            and all(member.positions is not None for member in self.members)
            # In a managed group a rewind raises the generation only of the members that it affects.
            and (self.plan.is_managed or len({member.generation for member in self.members}) == 1)
            and sorted(owned) == sorted((self.plan.topic, number) for number in known.leaders)
            and (not self.plan.has_single_readers or all(map(_reads, self.members)))
        )


def _reads(member: Member) -> bool:
    """Whether the leaders have let a member read each of its partitions."""
    return isinstance(member, ManagedMember) and member.reading is not None and member.reading.is_complete


class GroupTool(Client):
    """Rewinds a group, and describes it at the end."""

    def __init__(self, around: Surroundings, name: str, group: str, told: GroupHistory) -> None:
        super().__init__(around, name)
        self.group = group
        self.is_in_order = False
        """Whether exactly one broker coordinates the group and describes it as Stable."""
        self._told = told
        self._answers: dict[int, ErrorCode] = {}

    def rewind(self, at: TopicPartition, offset: int) -> None:
        """Ask the coordinator to move the group to `offset`. Nothing happens if the lookup fails."""
        self.process.run(self._find, at, offset)

    def _find(self, at: TopicPartition, offset: int) -> None:
        request = FindCoordinatorRequest(key=self.group, key_type=0)
        self.send(self.anyone(), request, 3).addCallbacks(
            lambda response: self._rewind(response, at, offset), lambda failure: None
        )

    def _rewind(self, found: FindCoordinatorResponse, at: TopicPartition, offset: int) -> None:
        if found.error_code != ErrorCode.NONE:
            return
        # Without a generation in the answer the rewind may or may not be written: a coordinator that resigns
        # while it waits for the write also answers NOT_COORDINATOR.
        asked = Rewind(self.group, {at: offset})
        self._told.rewinds.append(asked)
        request = RewindConsumerRequest(
            consumer_group=self.group, new_offsets=[NewOffset(topic=at[0], partition=at[1], offset=offset)]
        )

        def answered(response: RewindConsumerResponse) -> None:
            if {row.error_code for row in response.actual_offsets} == {ErrorCode.NONE}:
                asked.generation = response.controller_generation

        self.send(Address(found.host, found.port), request).addCallbacks(answered, lambda failure: None)

    # The end

    def look(self) -> None:
        """Ask all brokers for the group until one answers and all others answer NOT_COORDINATOR."""
        self.process.run(self._look)

    def _look(self) -> None:
        self._answers = {}
        addresses = {broker_id: self.address_of(broker_id) for broker_id in self.brokers()}
        if not addresses:
            self.later(RETRY_S, self._look)
            return
        request = OffsetFetchRequest(group_id=self.group, topics=None, groups=[], require_stable=False)
        # Members commit while the request is under way: it cannot return what they commit later.
        acknowledged = self._told.acknowledged(self.group)
        for broker_id, address in addresses.items():
            assert address is not None
            self.send(address, request, _FETCH_VERSION).addCallbacks(
                self._answered, self._not_answered, callbackArgs=(broker_id, len(addresses), acknowledged)
            )

    def _not_answered(self, failure: Failure) -> None:
        self.later(RETRY_S, self._look)

    def _answered(
        self,
        response: OffsetFetchResponse,
        broker_id: int,
        brokers: int,
        acknowledged: Mapping[TopicPartition, tuple[int, int]],
    ) -> None:
        code = ErrorCode(response.error_code)
        self._answers[broker_id] = code
        if code == ErrorCode.NONE:
            self._told.check_end(self.group, acknowledged, _offsets(response))
        if len(self._answers) < brokers:
            return
        coordinators = [each for each, said in self._answers.items() if said == ErrorCode.NONE]
        others = {said for said in self._answers.values() if said != ErrorCode.NONE}
        if len(coordinators) > 1:
            self.history.violation(f"brokers {coordinators} all coordinate {self.group}")
        elif coordinators and others <= {ErrorCode.NOT_COORDINATOR}:
            self._describe(coordinators[0])
        else:
            self.later(RETRY_S, self._look)

    def _describe(self, broker_id: int) -> None:
        address = self.address_of(broker_id)
        if address is None:
            self.later(RETRY_S, self._look)
            return
        request = DescribeGroupsRequest(groups=[self.group])
        self.send(address, request).addCallbacks(self._described, self._not_answered)

    def _described(self, response: DescribeGroupsResponse) -> None:
        self.is_in_order = response.groups[0].group_state == "Stable"
        if not self.is_in_order:
            self.later(RETRY_S, self._look)


def _offsets(response: OffsetFetchResponse) -> Mapping[TopicPartition, int]:
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in response.topics
        for row in topic.partitions
    }
