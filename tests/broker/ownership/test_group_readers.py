"""Members of consumer groups as single readers, at the leader of their partitions."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    encode_partition_state,
    partition_state_path,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import PartitionData
from holdfast_log.protocol.messages.group_readers import (
    NOBODY,
    AssignedReader,
    AssignReadersRequest,
    AssignReadersResponse,
    AttachedPartition,
    AttachReaderRequest,
    ReadPartitions,
)
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.messages.ownership_sight import (
    DescribeOwnersRequest,
    ForceReleaseRequest,
    OwnershipState,
    ResourceToRelease,
)
from tests.broker.ownership.world import OwnershipWorld
from tests.broker.world import Client, fetch_request, fired, only_fetched, produce_request
from tests.models.batches import batch

T = "t"
GROUP = "billing"


class Leader(OwnershipWorld):
    """Leads t-0 and t-1, whose readers a coordinator assigns."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for index in range(2):
            self.lead(T, index)
        self.offset = 100

    def assign_reader(
        self,
        member_id: str,
        *partitions: int,
        generation: int = 1,
        group: str = GROUP,
        decided: tuple[int, int] | None = None,
    ) -> AssignReadersResponse:
        """Assign partitions as the coordinator does; without `decided`, the decision is the latest."""
        self.offset += 1
        epoch, offset = decided or (0, self.offset)
        reader = AssignedReader(
            group=group,
            member_id=member_id,
            client_id=f"{member_id}-client",
            client_host="/10.0.0.1",
            generation=generation,
            decided_epoch=epoch,
            decided_offset=offset,
            topics=[ReadPartitions(topic=T, partitions=list(partitions or (0,)))],
        )
        answer = self.dispatcher.call_local(AssignReadersRequest(readers=[reader]))
        response: AssignReadersResponse = fired(answer)
        return response


class Member:
    """A member of the group, with one connection to the leader."""

    def __init__(self, world: Leader, member_id: str, group: str = GROUP) -> None:
        self.member_id = member_id
        self.group = group
        self._world = world
        self.client: Client = world.client()

    def reconnect(self) -> None:
        self.client.connection.close("the network broke")
        self.client = self._world.client()

    def attach_request(self, *partitions: int, generation: int = 1) -> AttachReaderRequest:
        return AttachReaderRequest(
            group=self.group,
            member_id=self.member_id,
            generation=generation,
            topics=[ReadPartitions(topic=T, partitions=list(partitions or (0,)))],
        )

    def attach(self, *partitions: int, generation: int = 1) -> list[AttachedPartition]:
        return self.client.call(self.attach_request(*partitions, generation=generation)).partitions

    def code(self, index: int = 0, generation: int = 1) -> int:
        """The error code of attaching to a partition."""
        (row,) = self.attach(index, generation=generation)
        return row.error_code

    def fetch(self, index: int = 0) -> PartitionData:
        return only_fetched(self.client.call(fetch_request(self._world.topic_id(T), index=index)))

    def reads(self, index: int = 0) -> bool:
        code = self.fetch(index).error_code
        assert code in (0, ErrorCode.OWNERSHIP_FENCED)
        return code == 0


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(tmp_path)


@pytest.fixture
def anna(leader: Leader) -> Member:
    return Member(leader, "anna")


@pytest.fixture
def bert(leader: Leader) -> Member:
    return Member(leader, "bert")


class TestReading:
    def test_a_member_attaches_to_its_assigned_partitions_and_reads(
        self, leader: Leader, anna: Member
    ) -> None:
        assert leader.assign_reader("anna", 0, 1).refused == []
        assert [row.error_code for row in anna.attach(0, 1)] == [0, 0]
        assert anna.reads(0) and anna.reads(1)

    def test_a_member_whose_assignment_has_not_arrived_is_asked_to_retry(
        self, leader: Leader, anna: Member
    ) -> None:
        assert anna.code() == ErrorCode.CLAIM_QUEUED
        leader.assign_reader("anna")
        assert anna.code(generation=2) == 0, "the assignment of generation 2 may still arrive"

    def test_a_new_assignment_stops_the_former_members_fetches_at_once(
        self, leader: Leader, anna: Member, bert: Member
    ) -> None:
        leader.assign_reader("anna", 0, 1)
        anna.attach(0, 1)
        leader.assign_reader("bert", generation=2)
        assert not anna.reads(0)
        assert anna.reads(1), "anna keeps partition 1 and her connection"
        assert anna.code() == ErrorCode.OWNERSHIP_FENCED
        assert bert.code(generation=2) == 0
        assert bert.reads() and not anna.reads()

    def test_the_error_of_a_fenced_fetch_names_the_reader_and_the_remedy(
        self, leader: Leader, anna: Member
    ) -> None:
        leader.assign_reader("anna")
        anna.attach()
        leader.assign_reader("bert", generation=2)
        message = anna.fetch().error_message
        assert message is not None
        assert "t-0 is read by bert for group 'billing', since generation 2" in message
        assert "stop reading, send the group's coordinator a heartbeat" in message
        (row,) = anna.attach()
        assert (row.error_message, row.generation) == (message, 2)

    def test_a_waiting_fetch_is_checked_again_when_records_arrive(self, leader: Leader, anna: Member) -> None:
        leader.assign_reader("anna")
        anna.attach()
        anna.client.ask(fetch_request(leader.topic_id(T), max_wait_ms=10_000))
        assert anna.client.answers() == []
        leader.assign_reader("bert", generation=2)
        leader.client().call(produce_request(T, batch(b"x")))
        (answer,) = anna.client.answers()
        assert only_fetched(answer).error_code == ErrorCode.OWNERSHIP_FENCED
        assert only_fetched(answer).records == b""

    def test_a_member_that_was_replaced_under_its_id_is_fenced(self, leader: Leader, anna: Member) -> None:
        """A process with the same group.instance.id took over."""
        leader.assign_reader("anna", generation=1)
        anna.attach(generation=1)
        leader.assign_reader("anna", generation=2)
        assert not anna.reads()
        assert anna.code(generation=1) == ErrorCode.OWNERSHIP_FENCED
        successor = Member(leader, "anna")
        assert successor.code(generation=2) == 0
        assert successor.reads() and not anna.reads()

    def test_a_member_that_reconnects_reads_on_its_new_connection(self, leader: Leader, anna: Member) -> None:
        leader.assign_reader("anna")
        anna.attach()
        anna.reconnect()
        assert anna.code() == 0
        assert anna.reads()

    def test_a_silent_member_stays_attached_to_its_partitions(self, leader: Leader, anna: Member) -> None:
        """The group's coordinator decides whether a member is alive."""
        leader.assign_reader("anna")
        anna.attach()
        leader.clock.advance(3600)
        assert anna.reads()
        anna.client.connection.close("gone")
        leader.clock.advance(3600)
        assert Member(leader, "anna").code() == 0

    def test_a_groups_reader_excludes_neither_other_groups_nor_ungrouped_clients(
        self, leader: Leader, anna: Member
    ) -> None:
        other = Member(leader, "otto", group="audit")
        leader.assign_reader("anna")
        leader.assign_reader("otto", group="audit")
        assert (anna.code(), other.code()) == (0, 0)
        leader.assign_reader("bert", generation=2)
        assert not anna.reads() and other.reads()
        assert Member(leader, "stock").reads()

    def test_a_partition_without_members_has_no_owner(self, leader: Leader, anna: Member) -> None:
        leader.assign_reader("anna")
        anna.attach()
        leader.assign_reader(NOBODY, generation=2)
        assert not anna.reads()
        assert "t-0 is read by nobody" in (anna.fetch().error_message or "")
        assert anna.code() == ErrorCode.OWNERSHIP_FENCED
        (described,) = leader.client().call(DescribeOwnersRequest(groups=[GROUP])).resources
        assert (described.state, described.owner_id) == (OwnershipState.FREE, None)


class TestDecisions:
    def test_the_later_decision_counts_whichever_arrives_first(self, leader: Leader) -> None:
        leader.assign_reader("bert", generation=2, decided=(0, 20))
        (refused,) = leader.assign_reader("anna", generation=1, decided=(0, 10)).refused
        assert refused.error_code == ErrorCode.STALE_GENERATION
        assert refused.error_message is not None and "assigned to bert later" in refused.error_message
        assert Member(leader, "bert").code(generation=2) == 0

    def test_decisions_of_the_next_coordinator_are_later_even_if_its_log_is_shorter(
        self, leader: Leader
    ) -> None:
        leader.assign_reader("anna", generation=5, decided=(3, 100))
        assert leader.assign_reader("bert", generation=4, decided=(4, 50)).refused == []
        assert leader.assign_reader("anna", generation=6, decided=(3, 200)).refused != []
        assert Member(leader, "bert").code(generation=4) == 0

    def test_a_group_created_again_starts_at_generation_1(self, leader: Leader, bert: Member) -> None:
        leader.assign_reader("anna", generation=57)
        leader.assign_reader("bert", generation=1)
        assert bert.code(generation=1) == 0
        assert bert.reads()

    def test_a_decision_repeated_by_the_next_coordinator_changes_nothing(
        self, leader: Leader, anna: Member
    ) -> None:
        leader.assign_reader("anna", decided=(0, 10))
        anna.attach()
        before = dict(leader.zookeeper.znodes)
        assert leader.assign_reader("anna", decided=(1, 10)).refused == []
        assert anna.reads()
        assert leader.zookeeper.znodes == before, "ZooKeeper is not written to"

    def test_an_assignment_is_refused_only_for_partitions_led_by_other_brokers(self, leader: Leader) -> None:
        leader.assign(T, 1, leader=2, leader_epoch=1, replicas=(1, 2))
        (refused,) = leader.assign_reader("anna", 0, 1).refused
        assert (refused.partition, refused.error_code) == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert Member(leader, "anna").code(0) == 0

    def test_an_assignment_that_could_not_be_written_is_not_in_force(
        self, leader: Leader, anna: Member
    ) -> None:
        leader.assign_reader("anna")
        anna.attach()
        path = partition_state_path(T, 0)
        leader.zookeeper.znodes[path] = (encode_partition_state(PartitionState(2, 1, (2,), 1)), 1)
        (refused,) = leader.assign_reader("bert", generation=2).refused
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert anna.reads()


class TestFailover:
    def test_the_next_leader_loads_the_assigned_reader(
        self, leader: Leader, anna: Member, bert: Member
    ) -> None:
        leader.assign_reader("anna")
        leader.assign_reader("bert", generation=2)
        leader.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
        leader.lead(T, leader_epoch=2)
        assert anna.code() == ErrorCode.OWNERSHIP_FENCED
        assert bert.code(generation=2) == 0
        assert bert.reads()

    def test_the_next_leader_keeps_the_assignment_of_an_absent_member(
        self, leader: Leader, anna: Member
    ) -> None:
        leader.assign_reader("anna")
        leader.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
        leader.lead(T, leader_epoch=2)
        leader.clock.advance(3600)
        assert anna.code() == 0


class TestOwners:
    def test_a_member_is_described_as_an_owner(
        self, leader: Leader, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "holdfast_log.broker.ownership.audit"):
            leader.assign_reader("anna", generation=7)
        assert "granted: t-0 in group 'billing', generation 7" in caplog.text
        (described,) = leader.client().call(DescribeOwnersRequest(groups=[GROUP])).resources
        assert (described.owner_id, described.host, described.generation) == ("anna", "/10.0.0.1", 7)
        assert described.session_remaining_ms == -1, "members have no session at the partition leader"

    @pytest.mark.parametrize("generation", [-1, 1, 50])
    def test_a_client_outside_the_group_cannot_take_a_members_partition(
        self, leader: Leader, generation: int
    ) -> None:
        leader.assign_reader("anna")
        thief = leader.owner("thief", GROUP, Access.READ)
        standing = thief.claim(T, generation)
        assert standing.error_code == ErrorCode.RESOURCE_OWNED
        assert standing.error_message is not None
        assert "join that group, or claim it in another" in standing.error_message

    def test_an_administrator_can_release_a_members_partition(self, leader: Leader, anna: Member) -> None:
        leader.assign_reader("anna")
        anna.attach()
        released = ResourceToRelease(name=T, partition=0, generation=-1)
        leader.client().call(ForceReleaseRequest(group=GROUP, timeout_ms=1000, resources=[released]))
        assert not anna.reads()
        assert anna.code() == ErrorCode.OWNERSHIP_FENCED
        leader.assign_reader("anna", decided=(1, 1))
        assert anna.code() == ErrorCode.OWNERSHIP_FENCED, "fenced until the next assignment"
        leader.assign_reader("anna", generation=2, decided=(1, 2))
        assert anna.code(generation=2) == 0


def test_a_request_that_attaches_more_partitions_than_a_turn_has_time_for_is_refused(leader: Leader) -> None:
    anna = Member(leader, "anna")
    answer = anna.client.call(anna.attach_request(*range(4_001)))
    assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.partitions == []
    leader.assign_reader("anna", 0, 1)
    assert [row.error_code for row in anna.attach(0)] == [ErrorCode.NONE]


def test_an_attachment_does_not_wait_behind_a_fetch_of_its_connection(leader: Leader) -> None:
    """Answers leave a connection in the order of the requests, and a fetch may wait for minutes."""
    leader.assign_reader("anna", 0, 1)
    anna = Member(leader, "anna")
    anna.attach(0)
    anna.client.ask(fetch_request(leader.topic_id(T), max_wait_ms=300_000))
    assert anna.client.answers() == []

    anna.client.ask(anna.attach_request(1))

    answers = anna.client.answers()
    assert len(answers) == 2
    fetched, attached = answers
    assert only_fetched(fetched).error_code == ErrorCode.NONE
    assert [row.error_code for row in attached.partitions] == [ErrorCode.NONE]
