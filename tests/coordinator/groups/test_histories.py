"""Random histories of both protocols, with crashes, failovers and refused appends, under checkers.

At all times: no partition has two owners in a generation; generations of claims never decrease; no
acknowledged commit is lost or reverted; groups restored from the log equal the durable part of those in
memory. After the last fault: every group with live members becomes Stable, and its members own each partition
exactly once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast_log.coordinator.groups.effects import OffsetsAnswer, ReaderClaim, RewindAnswer
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.clients import ClassicClient, ManagedClient, OwnershipChecker
from tests.coordinator.groups.world import GroupWorld

CLIENTS = st.integers(0, 3)
QUIET_SECONDS = 150
FIRST_PARTITIONS = 5  # classic members learn of later partitions only in their next rebalance


def durable_state(shard: GroupShard) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state that a new coordinator should restore."""
    store = shard._store
    groups = {group_id: group.durable for group_id, group in store.groups.items() if group.durable}
    return groups, {group_id: store.offsets.of_group(group_id) for group_id in store.offsets.group_ids()}


class GroupHistories(RuleBasedStateMachine):
    """Four members of each protocol, under random faults."""

    @initialize(
        delay_ms=st.sampled_from([0, 3_000]), strategy=st.sampled_from(["range", "roundrobin", "sticky"])
    )
    def begin(self, delay_ms: int, strategy: str) -> None:
        self.world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=delay_ms), orders=FIRST_PARTITIONS)
        self.world.create_group("managed", assignment_strategy=strategy, single_reader=True)
        self.checker = OwnershipChecker()
        self.classic = [
            ClassicClient(self.world, self.checker, instance_id)
            for instance_id in (None, None, "static-1", "static-2")
        ]
        self.managed = [ManagedClient(self.world, self.checker, name) for name in ("a", "b", "c", "d")]
        self.acknowledged: dict[tuple[str, TopicPartition], int] = {}
        self.rewinds: list[int] = []
        self.claimed: dict[tuple[str, TopicPartition], ReaderClaim] = {}
        self.claims_seen = 0
        self.next_offset = 1

    @rule(number=CLIENTS, steps=st.integers(1, 4))
    def classic_member_acts(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.classic[number].step()

    @rule(number=CLIENTS, steps=st.integers(1, 4))
    def managed_member_acts(self, number: int, steps: int) -> None:
        for _ in range(steps):
            self.managed[number].step()

    @rule(passes=st.integers(1, 8))
    def all_act(self, passes: int) -> None:
        for _ in range(passes):
            self.everybody_acts()
            self.world.wait(1_000)

    @rule(number=CLIENTS)
    def classic_member_crashes(self, number: int) -> None:
        self.classic[number].crash()

    @rule(number=CLIENTS)
    def managed_member_crashes(self, number: int) -> None:
        self.managed[number].crash()

    @rule(number=CLIENTS)
    def member_leaves(self, number: int) -> None:
        client = self.classic[number]
        self.world.leave((client.member.member_id, client.member.instance_id), group="classic")
        client.crash()

    @rule(ms=st.sampled_from([100, 1_000, 5_000, 9_999, 61_000]))
    def time_passes(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(number=CLIENTS, managed=st.booleans(), partition=st.integers(0, 4))
    def member_commits(self, number: int, managed: bool, partition: int) -> None:
        client = self.managed[number] if managed else self.classic[number]
        offset, self.next_offset = self.next_offset, self.next_offset + 1
        error = self.world.commit(offset, client.member, client.group, partition=partition)
        if error is ErrorCode.NONE:
            self.acknowledged[client.group, TopicPartition("orders", partition)] = offset

    @rule(partition=st.integers(0, 4))
    def tool_rewinds(self, partition: int) -> None:
        offset, self.next_offset = self.next_offset, self.next_offset + 1
        self.rewinds.append(self.world.send_rewind({("orders", partition): offset}, group="managed"))

    @rule()
    def topic_grows(self) -> None:
        if self.world.topics["orders"] < 9:
            self.world.topics["orders"] += 1
            self.world.perform(self.world.shard.topics_changed(["orders"], self.world.now_ms))

    @rule()
    def coordinator_moves(self) -> None:
        before = durable_state(self.world.shard)
        self.world.fail_over()
        assert durable_state(self.world.shard) == before
        # Requests waiting at the old coordinator lose their connections
        for client in self.everybody():
            client.disconnect()
        self.rewinds.clear()

    @rule(refuses=st.booleans())
    def log_refuses(self, refuses: bool) -> None:
        self.world.refuse_appends = refuses

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        for request in [request for request in self.rewinds if not self.world.is_waiting(request)]:
            self.rewinds.remove(request)
            answer = self.world.answers[request]
            if isinstance(answer, RewindAnswer):
                for rewound in answer.actual_offsets:
                    if rewound.error is ErrorCode.NONE:
                        self.acknowledged["managed", rewound.partition] = rewound.offset
        for (group, partition), offset in self.acknowledged.items():
            assert self.fetched(group, partition) == offset

    @invariant()
    def claims_follow_each_other(self) -> None:
        """Generations never decrease, also across failovers, so that fencing by generation is safe."""
        for claim in self.world.claims[self.claims_seen :]:
            before = self.claimed.get((claim.group_id, claim.partition))
            if before is not None:
                assert claim.generation >= before.generation
                assert claim.generation > before.generation or claim.reader == before.reader
            self.claimed[claim.group_id, claim.partition] = claim
        self.claims_seen = len(self.world.claims)

    def teardown(self) -> None:
        self.world.refuse_appends = False
        for _ in range(QUIET_SECONDS):
            self.everybody_acts()
            self.world.wait(1_000)
        every = {TopicPartition("orders", number) for number in range(self.world.topics["orders"])}
        assert self.world.describe("managed").state == "Stable"
        assert self.owned_once([client.owned for client in self.managed]) == every
        assert self.world.describe("classic").state == "Stable"
        first = {TopicPartition("orders", number) for number in range(FIRST_PARTITIONS)}
        assert first <= self.owned_once([client.owned for client in self.classic]) <= every
        self.acknowledged_offsets_are_there()

    def everybody_acts(self) -> None:
        for client in self.everybody():
            client.step()

    def everybody(self) -> list[ClassicClient | ManagedClient]:
        return [*self.classic, *self.managed]

    def owned_once(self, shares: list[tuple[TopicPartition, ...] | None]) -> set[TopicPartition]:
        owners = Counter(partition for share in shares for partition in share or ())
        assert all(count == 1 for count in owners.values())
        return set(owners)

    def fetched(self, group: str, partition: TopicPartition) -> int:
        request = self.world.new_request()
        self.world.perform(self.world.shard.fetch_offsets(request, group, [partition]))
        return self.world.answer(request, OffsetsAnswer).offsets[0].offset


TestGroupHistories = GroupHistories.TestCase
TestGroupHistories.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
