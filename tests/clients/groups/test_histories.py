"""Random histories of groups: members come, go, crash and sleep; requests fail; the coordinator moves.

After every step, no member may have read a partition that another owned in the same generation, and no
committed offset may have decreased. When the faults end, the group settles and processes every record. A
failure names the seed; HOLDFAST_GROUP_HISTORIES sets the number of histories.
"""

from __future__ import annotations

import dataclasses
import os
import random

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    CreateGroupRequest,
    ListConsumerGroupsRequest,
    RegisterConsumerRequest,
)
from holdfast_log.protocol.messages.group_readers import AttachReaderRequest
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import JoinGroupRequest
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest
from holdfast_log.protocol.messages.offset_commit import OffsetCommitRequest
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest
from holdfast_log.testing.fakes.fake_cluster import GROUP_CONFIG, FakeCluster
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.clients.groups.party import Member, Party
from tests.clients.test_consumer import fill

HISTORIES = int(os.environ.get("HOLDFAST_GROUP_HISTORIES", "1"))
STEPS = 40
TURN_MS = 100
MEMBERS_MAX = 5
PARTITIONS_MAX = 9
BROKERS = 3
GROUPS = dataclasses.replace(
    GROUP_CONFIG, consumer_session_timeout_ms=3_000, consumer_heartbeat_interval_ms=500
)
FRAGILE = (
    FetchRequest, FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest, LeaveGroupRequest,
    JoinGroupRequest, SyncGroupRequest, HeartbeatRequest,
    ListConsumerGroupsRequest, CreateGroupRequest, RegisterConsumerRequest, ConsumerHeartbeatRequest,
    AttachReaderRequest, ConsumerGroupHeartbeatRequest,
)  # fmt: skip
PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
NO_COORDINATOR = (FetchRequest, ListConsumerGroupsRequest, CreateGroupRequest, AttachReaderRequest)
"""Requests that are not sent to a coordinator."""


class History:
    """One group under random faults."""

    def __init__(self, seed: int, **properties: str) -> None:
        self.rng = random.Random(seed)
        self.cluster = FakeCluster(BROKERS, GROUPS)
        self.partitions = self.cluster.add_topic("flights", 4)
        self.party = Party(self.cluster, turn_ms=TURN_MS, metadata_max_age_ms=2_000, **properties)
        self.everybody: list[Member] = []
        self.asleep: list[Member] = []
        self.committed: dict[tuple[str, int], int] = {}
        for _ in range(3):
            self.come()

    def come(self) -> None:
        if len(self.party.members) + len(self.asleep) < MEMBERS_MAX:
            self.everybody.append(self.party.join(f"m{len(self.everybody)}"))

    def step(self) -> None:
        rng, members = self.rng, self.party.members
        match rng.randrange(10):
            case 0:
                self.come()
            case 1 if len(members) > 1:
                self.party.leave(rng.choice(members))
            case 2 if len(members) > 1:
                self.party.crash(rng.choice(members))
            case 9 if members:
                self.work_slowly(rng.choice(members))
            case 3 if len(members) > 1:
                sleeper = rng.choice(members)
                members.remove(sleeper)
                self.asleep.append(sleeper)
            case 4 if self.asleep:
                members.append(self.asleep.pop())
            case 5 | 6:
                self.fail_something()
            case 7:
                self.cluster.groups.move(rng.randint(1, BROKERS))
                self.cluster.readers.is_held_up = rng.random() < 0.5
            case 8 if len(self.partitions) < PARTITIONS_MAX and rng.random() < 0.3:
                self.partitions.append(FakePartition(rng.randint(1, BROKERS)))
                self.cluster.groups.topics_changed("flights")
        for partition in self.partitions:
            fill(partition, rng.randint(0, 5))
        self.party.run(rng.choice((20, 200, 1_000, 4_000)))
        self.check_commits()

    def work_slowly(self, member: Member) -> None:
        """A handler takes longer than the session, beside the heartbeats of its consumer."""
        members, cluster = self.party.members, self.cluster
        members.remove(member)
        until_ms = cluster.time_ms + self.rng.randint(1_000, 10_000)
        while cluster.time_ms < until_ms:
            member.consumer._loop.turn_beside()
            before_ms = cluster.time_ms
            self.party.turn()
            cluster.time_ms = max(cluster.time_ms, before_ms + TURN_MS)
        members.append(member)

    def fail_something(self) -> None:
        rng = self.rng
        request = rng.choice(FRAGILE)
        hows: list[str | ErrorCode] = ["cut", "cut after"]
        if request not in NO_COORDINATOR:
            hows += PASSING
        rng.choice(list(self.cluster.brokers.values())).fail_next(request, rng.choice(hows))

    def check_commits(self) -> None:
        committed = self.cluster.groups.committed("g")
        for where, offset in self.committed.items():
            assert committed[where] >= offset, f"{where} went back from {offset} to {committed[where]}"
        self.committed = committed

    def end(self) -> None:
        """Without further faults, the group settles and reads to the end."""
        for broker in self.cluster.brokers.values():
            broker.faults.clear()
        self.cluster.readers.catch_up()
        self.party.members += self.asleep
        self.party.run(15_000)
        self.party.settle()
        self.party.run(3_000)
        self.check_commits()
        seen = {(record.partition, record.offset) for member in self.everybody for record in member.records}
        for number, partition in enumerate(self.partitions):
            missing = [offset for offset in range(partition.end_offset) if (number, offset) not in seen]
            assert not missing, f"partition {number}: {missing[:5]} was processed by nobody"
            if partition.end_offset:
                assert self.committed["flights", number] == partition.end_offset


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_random_histories_of_classic_groups_lose_nothing(strategy: str, seed: int) -> None:
    history = History(seed, partition_assignment_strategy=strategy)
    for _ in range(STEPS):
        history.step()
    history.end()


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_random_histories_of_consumer_groups_lose_nothing(assignor: str, seed: int) -> None:
    history = History(seed, group_protocol="consumer", group_remote_assignor=assignor)
    for _ in range(STEPS):
        history.step()
    history.end()


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize(("strategy", "single_reader"), [("range", "true"), ("sticky", "false")])
def test_random_histories_of_managed_groups_lose_nothing(
    strategy: str, single_reader: str, seed: int
) -> None:
    history = History(
        seed, group_protocol="managed", group_remote_assignor=strategy, group_single_reader=single_reader
    )
    for _ in range(STEPS):
        history.step()
    history.end()
