"""Kafka's membership protocol through the real handlers: every version, and refusals."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.handlers import leave_group
from holdfast_log.broker.requests.operations import OPERATIONS, operation_bits
from holdfast_log.broker.requests.parts import PART_ROWS
from holdfast_log.protocol.acls import AclResource
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast_log.protocol.messages.describe_groups import DescribeGroupsRequest
from holdfast_log.protocol.messages.join_group import JoinGroupResponse
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.groups.group_broker import (
    SESSION_MS,
    GroupBroker,
    commit,
    fetched,
    heartbeat_request,
    join_alone,
    join_request,
    sync_request,
)
from tests.broker.world import Client

FIRST_VERSION_THAT_ASKS_MEMBER_ID = 4


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    broker = GroupBroker(tmp_path, group_initial_rebalance_delay_ms=100)
    broker.assign("t", 0)
    broker.make_offsets_topic()
    return broker


@pytest.fixture
def client(broker: GroupBroker) -> Client:
    return broker.client()


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_is_answered(broker: GroupBroker, client: Client, version: int) -> None:
    member_id = ""
    if version >= FIRST_VERSION_THAT_ASKS_MEMBER_ID:
        asked = client.call(join_request("g"), version)
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = asked.member_id
    client.ask(join_request("g", member_id), version)
    assert client.answers() == []
    broker.pass_time(200)

    (joined,) = client.answers()

    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert joined.member_id.startswith("test-")


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_group_is_answered(broker: GroupBroker, client: Client, version: int) -> None:
    joined = join_alone(broker, client, "g")
    synced = client.call(sync_request("g", joined.member_id, 1), version)
    assert (synced.error_code, synced.assignment) == (0, b"all")


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_is_answered(broker: GroupBroker, client: Client, version: int) -> None:
    joined = join_alone(broker, client, "g")
    client.call(sync_request("g", joined.member_id, 1))
    assert client.call(heartbeat_request("g", joined.member_id, 1), version).error_code == ErrorCode.NONE
    assert client.call(heartbeat_request("g", "who", 1), version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_group_is_answered(broker: GroupBroker, client: Client, version: int) -> None:
    joined = join_alone(broker, client, "g")
    request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    request.members = [MemberIdentity(member_id=joined.member_id)]

    assert client.call(request, version).error_code == ErrorCode.NONE

    left = client.call(request, version)
    unknown = left.error_code if version < 3 else left.members[0].error_code
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_describe_groups_is_answered(
    broker: GroupBroker, client: Client, version: int
) -> None:
    joined = join_alone(broker, client, "g")
    client.call(sync_request("g", joined.member_id, 1))
    request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)

    group, none = client.call(request, version).groups

    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
    (member,) = group.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("test", "/127.0.0.1", b"all")
    assert (none.error_code, none.group_state, none.members) == (0, "Dead", [])
    if version >= 3:
        assert group.authorized_operations == operation_bits(OPERATIONS[AclResource.GROUP])


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_list_groups_is_answered(broker: GroupBroker, client: Client, version: int) -> None:
    join_alone(broker, client, "g")
    commit(client, "offsets-only", 5)
    response = client.call(ListGroupsRequest(), version)
    assert response.error_code == ErrorCode.NONE
    assert {group.group_id: group.protocol_type for group in response.groups} == {
        "g": "consumer",
        "offsets-only": "",
    }
    if version >= 4:
        empty = client.call(ListGroupsRequest(states_filter=["Empty"]), version)
        assert [group.group_id for group in empty.groups] == ["offsets-only"]


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_delete_groups_is_answered(
    broker: GroupBroker, client: Client, version: int
) -> None:
    join_alone(broker, client, "busy")
    commit(client, "idle", 5)
    request = DeleteGroupsRequest(groups_names=["idle", "busy", "none"])

    results = client.call(request, version).results

    assert [(result.group_id, result.error_code) for result in results] == [
        ("idle", ErrorCode.NONE),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert fetched(client, "idle") == (-1, ErrorCode.NONE)


def test_the_reasons_for_joining_and_leaving_are_logged(
    broker: GroupBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-800: the reason is logged on one line, whatever a client sends."""
    caplog.set_level(logging.INFO, "holdfast_log.broker.groups.reasons")
    request = join_request("g")
    request.reason = "woke up\nERROR all is lost" + "!" * 10_000
    client.call(request)
    leaving = MemberIdentity(member_id="", group_instance_id="i-1", reason="the consumer is being closed")
    client.call(LeaveGroupRequest(group_id="g", members=[leaving]))

    joins, leaves = [record.getMessage() for record in caplog.records]
    assert joins.startswith("Member '' of group 'g' joins: 'woke up\\nERROR all is lost!!!")
    assert len(joins) < 400
    assert leaves == "Member 'i-1' of group 'g' leaves: 'the consumer is being closed'"


def answer_in_turns(broker: GroupBroker, client: Client, request: Request[Any]) -> Any:
    """The answer to a request of many rows, which is made in later turns."""
    client.ask(request)
    broker.clock.advance(0)
    (answer,) = client.answers()
    return answer


def test_few_reasons_of_one_request_are_logged(
    broker: GroupBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A line costs more than all else about a member that is not in the group."""
    caplog.set_level(logging.INFO, "holdfast_log.broker.groups.reasons")
    leaving = [MemberIdentity(member_id=f"m-{n}", group_instance_id=None, reason="x") for n in range(500)]
    response = answer_in_turns(broker, client, LeaveGroupRequest(group_id="g", members=leaving))
    assert len(response.members) == 500
    assert 1 <= len(caplog.records) <= 50


def test_a_line_for_each_member_is_missed(
    broker: GroupBroker, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_group, "_LOGGED_MAX", 1 << 60)
    with pytest.raises(AssertionError):
        test_few_reasons_of_one_request_are_logged(broker, client, caplog)


def test_a_rebalance_lost_with_its_coordinator_starts_again(broker: GroupBroker, client: Client) -> None:
    """Kafka's consumer gives up on COORDINATOR_LOAD_IN_PROGRESS in answer to SyncGroup."""
    commit(client, "g", 5)
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)

    assert client.call(sync_request("g", "m", 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_listing_groups_during_loading_is_a_retriable_error(broker: GroupBroker, client: Client) -> None:
    commit(client, "g", 5)
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)
    assert client.call(ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    broker.workers.release()

    response = client.call(ListGroupsRequest())
    assert (response.error_code, [group.group_id for group in response.groups]) == (0, ["g"])


def test_a_member_keeps_its_membership_after_a_change_of_leader_epoch(
    broker: GroupBroker, client: Client
) -> None:
    joined = join_alone(broker, client, "g")
    client.call(sync_request("g", joined.member_id, 1))
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)
    beat = heartbeat_request("g", joined.member_id, 1)
    assert client.call(beat).error_code == ErrorCode.NONE, "while it is loading"

    broker.workers.release()

    assert client.call(beat).error_code == ErrorCode.NONE
    assert client.call(sync_request("g", joined.member_id, 1)).assignment == b"all"
    broker.pass_time(SESSION_MS + 100)
    assert client.call(beat).error_code == ErrorCode.UNKNOWN_MEMBER_ID, "and is missed as before"


def test_waiting_members_are_sent_to_the_next_coordinator(broker: GroupBroker, client: Client) -> None:
    member_id = client.call(join_request("g")).member_id
    client.ask(join_request("g", member_id))

    broker.hand_over("g", leader=2, leader_epoch=1)

    (answer,) = client.answers()
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.error_code, answer.member_id) == (ErrorCode.NOT_COORDINATOR, member_id)
    beat = client.call(heartbeat_request("g", member_id, 1))
    assert beat.error_code == ErrorCode.NOT_COORDINATOR


class TestRefusals:
    def test_unknown_members_and_stale_generations_are_refused(
        self, broker: GroupBroker, client: Client
    ) -> None:
        joined = join_alone(broker, client, "g")
        client.call(sync_request("g", joined.member_id, 1))
        stale = commit(client, "g", 5, member_id=joined.member_id, generation_id_or_member_epoch=0)
        unknown = commit(client, "g", 5, member_id="who", generation_id_or_member_epoch=1)
        outsider = commit(client, "g", 5)
        assert (stale, unknown, outsider) == (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        assert client.call(sync_request("g", joined.member_id, 7)).error_code == ErrorCode.ILLEGAL_GENERATION
        assert client.call(join_request("g", "who")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert fetched(client, "g") == (-1, ErrorCode.NONE)

    @pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001])
    def test_session_timeouts_out_of_bounds_are_refused(
        self, client: Client, session_timeout_ms: int
    ) -> None:
        answer = client.call(join_request("g", session_timeout_ms=session_timeout_ms))
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT

    def test_oversized_commit_metadata_is_refused(self, client: Client) -> None:
        assert commit(client, "g", 5, metadata="ö" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert commit(client, "g", 6, metadata="ö" * 2048) == ErrorCode.NONE

    def test_a_group_named_many_times_is_described_once(self, client: Client) -> None:
        response = client.call(DescribeGroupsRequest(groups=["g"] * PART_ROWS))
        assert [group.group_id for group in response.groups] == ["g"]

    def test_an_offset_requested_many_times_is_answered_once(
        self, broker: GroupBroker, client: Client
    ) -> None:
        commit(client, "g", 5)
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0] * PART_ROWS)]
        wanted = OffsetFetchRequestGroup(group_id="g", topics=topics)
        (group,) = client.call(OffsetFetchRequest(groups=[wanted])).groups
        assert [len(topic.partitions) for topic in group.topics] == [1]
        refused = answer_in_turns(broker, client, OffsetFetchRequest(groups=[wanted, wanted])).groups
        assert {group.error_code for group in refused} == {ErrorCode.INVALID_REQUEST}

    def test_groups_without_a_name_are_refused(self, client: Client) -> None:
        assert client.call(join_request("")).error_code == ErrorCode.INVALID_GROUP_ID

    def test_a_member_beyond_the_maximum_group_size_is_refused(self, tmp_path: Path) -> None:
        broker = GroupBroker(tmp_path / "small", group_max_size=2)
        broker.make_offsets_topic()
        client = broker.client()
        errors = [client.call(join_request("g")).error_code for _ in range(3)]
        assert errors == [
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.MEMBER_ID_REQUIRED,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        ]

    def test_an_assignment_too_large_for_its_record_is_refused(
        self, broker: GroupBroker, client: Client
    ) -> None:
        joined = join_alone(broker, client, "g")
        large = sync_request("g", joined.member_id, 1, bytes(2 << 20))
        assert client.call(large).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert commit(client, "other", 1) == ErrorCode.NONE
        assert client.call(join_request("g")).error_code == ErrorCode.MEMBER_ID_REQUIRED, "one can begin anew"

    def test_ten_thousand_members_that_never_sync_are_removed_in_time(self, tmp_path: Path) -> None:
        broker = GroupBroker(tmp_path / "large", group_max_size=10_000, group_initial_rebalance_delay_ms=100)
        broker.make_offsets_topic()
        clients = [broker.client() for _ in range(100)]
        for client in clients:
            for _ in range(100):
                client.ask(join_request("g"), version=3)
        broker.pass_time(1_000)
        joined = [answer for client in clients for answer in client.answers()]
        assert len(joined) == 10_000
        assert {answer.error_code for answer in joined} == {ErrorCode.NONE}
        (described,) = clients[0].call(DescribeGroupsRequest(groups=["g"])).groups
        assert (described.group_state, len(described.members)) == ("CompletingRebalance", 10_000)

        broker.pass_time(SESSION_MS + 100)

        (described,) = clients[0].call(DescribeGroupsRequest(groups=["g"])).groups
        assert (described.group_state, described.members) == ("Empty", [])
        late = clients[0].call(sync_request("g", joined[0].member_id, 1))
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID
