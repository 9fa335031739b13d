"""Two leaders are replaced within seconds, and the third was never in touch with the second.

The third leader has records of a former owner that the second one lacks. No fence that an owner was told, or
that a record in ZooKeeper says, lies before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from holdfast_log.coordinator.ownership.records import PartitionKey, decode_ownership
from holdfast_log.coordinator.zookeeper.interface import Create, SetData, WriteOperation
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, OwnRequest, OwnResponse, ResourceClaim
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.models.batches import batch
from tests.models.world import Process, World
from tests.sim.client import OWNERS_GROUP, Client, Surroundings
from tests.sim.cluster import Machine
from tests.sim.history import NO_ID, Batch, Incarnation
from tests.sim.owner_history import OwnedBatch, OwnerHistory, Told
from tests.sim.test_cluster import Stage

AT = ("owned", 0)
_SESSION_MS = 60_000
_TIMEOUT_MS = 4000
_SOON_S = 1.0
"""Seconds in which a broker answers every claim that need not wait. Followers leave the in-sync set later."""


WORLD_SEED = 3


class Claimer(Client):
    """A client that claims the partition, and writes to it, when the test says so."""

    def __init__(
        self, around: Surroundings, name: str, owners: OwnerHistory, group: str, access: Access
    ) -> None:
        super().__init__(around, name)
        self.told: list[Told] = []
        """Every grant that an answer confirmed: a claim that is repeated gets the same one."""
        self._owners = owners
        self._group = group
        self._access = access
        self._written = 0

    def claim(self, machine: Machine, topic: Incarnation, generation: int = IF_FREE) -> None:
        asked_s = self.world.seconds()
        request = OwnRequest(
            group=self._group,
            owner_id=self.name,
            session_timeout_ms=_SESSION_MS,
            timeout_ms=_TIMEOUT_MS,
            wait_timeout_ms=0,
            access=self._access,
            resources=[ResourceClaim(name=AT[0], partition=AT[1], generation=generation)],
            secret=f"the secret of {self.name}".encode(),
        )

        def answered(response: OwnResponse) -> None:
            for found in response.resources:
                if found.error_code != ErrorCode.NONE:
                    continue
                told = Told(
                    self.name, topic, found.generation, found.incarnation, found.fence_offset, generation,
                    asked_s, self.world.seconds(), self._group, self._access,
                )  # fmt: skip
                self.told.append(told)
                self._owners.granted(told)

        self.send(machine.address, request).addCallbacks(answered, lambda failure: None)

    def write(self, machine: Machine, count: int) -> list[ErrorCode]:
        """Write a batch under the latest grant. The list gets the answer, if one comes."""
        under, number, answers = self.told[-1], self._written, list[ErrorCode]()
        self._written += 1
        values = [f"{self.name} {number}.{index}".encode() for index in range(count)]
        written = Batch(self.name, AT, number, values, -1, is_idempotent=False, made_s=self.world.seconds())
        self._owners.batches.append(OwnedBatch(written, under, expected_offset=None))

        def answered(response: ProduceResponse) -> None:
            answers.append(ErrorCode(response.responses[0].partition_responses[0].error_code))

        data = PartitionProduceData(index=AT[1], records=batch(*values))
        topics = [TopicProduceData(name=AT[0], partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=topics)
        self.send(machine.address, request).addCallbacks(answered, lambda failure: None)
        return answers


class Succession:
    """Three brokers with the partition of which `anna` is the owner.

    `first` leads and dies. `second`, which is the controller, then leads, and lacks the last two of anna's
    three records. `third` has them, is in sync, and is cut off from `second`.
    """

    def __init__(self, world: World, min_in_sync: int = 2) -> None:
        self.world = world
        self.stage = Stage(world, 3, {})
        self.cluster = self.stage.cluster
        self.owners = OwnerHistory(self.stage.history)
        around = self.stage.around
        self.anna, self.ben = (
            Claimer(around, name, self.owners, OWNERS_GROUP, Access.WRITE) for name in ("anna", "ben")
        )
        self.cleo = Claimer(around, "cleo", self.owners, "readers", Access.READ)
        (self.second,) = (each for each in self.cluster.machines if each.is_controller)
        self.first, self.third = (each for each in self.cluster.machines if each is not self.second)
        self._create_topic(min_in_sync)
        self.written_fences: dict[int, None] = {}
        """Every fence of ben's grants that a record in ZooKeeper has said."""
        self.cluster.zookeeper.written = self._watch_records
        self._begin()

    def _create_topic(self, min_in_sync: int) -> None:
        brokers = [machine.broker_id for machine in (self.first, self.second, self.third)]
        topic = CreatableTopic(
            name=AT[0],
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=AT[1], broker_ids=brokers)],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(min_in_sync))],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=False)
        self.anna.send(self.second.address, request).addErrback(lambda failure: None)
        self.stage.until(lambda: AT in self.cluster.states() and self.cluster.is_whole())
        self.topic = Incarnation(AT, self.cluster.topics()[AT[0]].topic_id or NO_ID)
        assert self.leader() is self.first

    def _watch_records(self, operations: Sequence[WriteOperation], process: Process) -> None:
        path = PartitionKey(self.topic.topic_id, AT[1]).path
        for operation in operations:
            if not isinstance(operation, (Create, SetData)) or operation.path != path:
                continue
            grants = decode_ownership(path, operation.data).histories.get(OWNERS_GROUP, ())
            fences = (grant.fence_offset for grant in grants if grant.owner.owner_id == self.ben.name)
            self.written_fences.update(dict.fromkeys(fences))

    def _begin(self) -> None:
        self._until_told(self.anna, self.first)
        answers = self.anna.write(self.first, 1)
        self.stage.until(lambda: answers == [ErrorCode.NONE] and self._has_committed(self.second, 1))
        self._cut(self.first, self.second)
        self.anna.write(self.first, 2)
        self.stage.until(lambda: [self.end_of(each) for each in self.cluster.machines] == self._ends())
        self.first.kill()
        self.cluster.network.heal()
        self._cut(self.second, self.third)
        self.stage.until(lambda: self.leader() is self.second and self._leads(self.second))
        assert self.third.broker_id in self.isr()

    def _ends(self) -> list[int]:
        return [1 if machine is self.second else 3 for machine in self.cluster.machines]

    def _cut(self, one: Machine, other: Machine) -> None:
        self.cluster.network.cut(one.name, other.name)
        self.cluster.network.cut(other.name, one.name)

    # What the machines know

    def leader(self) -> Machine | None:
        """The leader's machine, by ZooKeeper."""
        broker_id = self.cluster.states()[AT].leader
        return None if broker_id < 0 else self.cluster.machine(broker_id)

    def isr(self) -> tuple[int, ...]:
        return self.cluster.states()[AT].isr

    def end_of(self, machine: Machine) -> int:
        """The log end offset of a machine's replica; -1 without one."""
        replica = machine.partition(AT)
        return -1 if replica is None else replica.log.log_end_offset

    def _has_committed(self, machine: Machine, offset: int) -> bool:
        replica = machine.partition(AT)
        return replica is not None and replica.high_watermark >= offset

    def _leads(self, machine: Machine) -> bool:
        return self.cluster.decider(machine.address, AT).is_current

    # The course of events

    def claim_soon(self, machine: Machine) -> None:
        """Ben takes the partition from anna, and cleo begins to read it. Each grant is a write of the record
        in ZooKeeper. Return when the broker has had time to answer."""
        self.ben.claim(machine, self.topic, generation=self.anna.told[-1].generation + 1)
        self.world.run(_SOON_S / 2)
        self.cleo.claim(machine, self.topic)
        self.world.run(_SOON_S / 2)
        assert self.third.broker_id in self.isr()
        assert self.written_fences

    def let_third_lead(self) -> None:
        """The second leader dies before the third broker was in touch with it. Then the others return."""
        self.second.kill()
        self.cluster.network.heal()
        self.stage.until(lambda: self.leader() is self.third and self._leads(self.third))
        self.cluster.mend()

    def told_by(self, leader: Machine) -> Told:
        """What this broker tells ben of his grant. He repeats his claim until it answers."""
        self._until_told(self.ben, leader, generation=self.anna.told[-1].generation + 1)
        return self.ben.told[-1]

    def _until_told(self, claimer: Claimer, leader: Machine, generation: int = IF_FREE) -> None:
        known = len(claimer.told)
        for _ in range(10):
            claimer.claim(leader, self.topic, generation)
            if self._holds_within(lambda: len(claimer.told) > known, _TIMEOUT_MS / 1000 + 1):
                return
        raise AssertionError(f"{leader.name} does not answer the claim of {claimer.name}")

    def _holds_within(self, condition: Callable[[], bool], seconds: float) -> bool:
        try:
            self.stage.until(condition, seconds)
        except AssertionError:
            return False
        return True

    def judge(self) -> None:
        """Mend the cluster, and check the log against every fence that an answer or a record has said."""
        self.cluster.mend()
        self.stage.until(self.cluster.is_whole, 60)
        leader = self.leader()
        assert leader is not None
        self.told_by(leader)
        answers = self.ben.write(leader, 1)
        self.stage.until(lambda: answers == [ErrorCode.NONE])
        log = leader.stored(AT)
        assert list(self.owners.check(self.topic, log)) == []
        annas = [offset for offset, value in log.values.items() if value.startswith(b"anna")]
        for fence in self.written_fences:
            assert fence < 0 or max(annas) < fence, f"anna wrote at {max(annas)}, behind the fence {fence}"
        assert self.stage.history.violations == []


def test_no_fence_lies_before_records_that_only_the_next_leader_has(world: World) -> None:
    succession = Succession(world)
    succession.claim_soon(succession.second)
    succession.let_third_lead()
    succession.judge()
    assert {told.fence_offset for told in succession.ben.told} == {3}


@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_an_owner_is_confirmed_once_the_other_replica_has_followed_the_leader(
    world: World, min_in_sync: int
) -> None:
    succession = Succession(world, min_in_sync)
    succession.claim_soon(succession.second)
    assert succession.ben.told == []
    succession.cluster.network.heal()
    told = succession.told_by(succession.second)
    assert succession.end_of(succession.third) == told.fence_offset == 1
    succession.judge()


def test_an_owner_is_confirmed_once_the_other_replica_has_left_the_in_sync_set(world: World) -> None:
    """One replica in sync is enough here, so the one that left it cannot lead next."""
    succession = Succession(world, min_in_sync=1)
    succession.claim_soon(succession.second)
    assert succession.ben.told == []
    told = succession.told_by(succession.second)
    assert succession.isr() == (succession.second.broker_id,)
    assert (told.fence_offset, succession.end_of(succession.third)) == (1, 3)
    succession.second.kill()
    succession.cluster.network.heal()
    world.run(10)
    assert succession.leader() is None
    succession.judge()
