"""The managed protocol (client rewrite, "Consumer Group Membership Protocol") through the real handlers.

tests/coordinator/groups/test_managed_groups.py covers the effects of requests on a group; these tests cover
the messages, and the effects of the broker's metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from twisted.internet.defer import Deferred, fail

from holdfast_log.broker.handlers import delete_group
from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.requests.features import FEATURES
from holdfast_log.broker.requests.parts import PART_ROWS
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.describe_groups import DescribeGroupsRequest
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    CreateGroupRequest,
    DeleteGroupRequest,
    ListConsumerGroupsRequest,
    NewOffset,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    RewindConsumerRequest,
)
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from tests.broker.groups.group_broker import GroupBroker, commit, fetched
from tests.broker.world import Client

SESSION_MS = 6_000


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    broker = GroupBroker(tmp_path)
    for index in range(4):
        broker.assign("t", index)
    return broker


@pytest.fixture
def client(broker: GroupBroker) -> Client:
    return broker.client()


def create(client: Client, group: str = "g", *topics: str, **how: Any) -> int:
    request = CreateGroupRequest(
        consumer_group=group, session_timeout=SESSION_MS, topics=list(topics or ("t",)), **how
    )
    return client.call(request).error_code


def register_request(consumer: str, group: str = "g") -> RegisterConsumerRequest:
    return RegisterConsumerRequest(consumer_group=group, consumer_id=consumer)


def beat(client: Client, consumer: str, generation: int) -> ConsumerHeartbeatResponse:
    return client.call(
        ConsumerHeartbeatRequest(
            session_timeout=-1, consumer_group="g", consumer_id=consumer, controller_generation=generation
        )
    )


def owned(response: RegisterConsumerResponse) -> dict[tuple[str, int], int]:
    assert response.error_code == ErrorCode.NONE
    return {(each.topic, each.partition): each.offset for each in response.partitions_to_own}


def test_the_groups_feature_is_announced_without_its_api_keys() -> None:
    assert FEATURES["holdfast.groups"] == (1, 1)
    assert ApiVersionsRequest.api.key < 1000 <= CreateGroupRequest.api.key


def test_creating_a_group_finds_its_coordinator(broker: GroupBroker, client: Client) -> None:
    """The first group of a cluster causes the creation of `__consumer_offsets`."""
    assert create(client) == ErrorCode.NONE
    assert broker.created == ["__consumer_offsets"]

    response = client.call(ListConsumerGroupsRequest(consumer_groups=["g", "none"]))

    (group,) = response.groups_info
    assert (group.group_name, group.topics, group.session_timeout) == ("g", ["t"], SESSION_MS)
    controller = group.controller_broker
    assert (controller.broker_id, controller.host, controller.port) == (1, "127.0.0.1", 9001)


def test_the_only_consumer_owns_everything(broker: GroupBroker, client: Client) -> None:
    create(client)
    commit(client, "g", 17, partition=2)
    response = client.call(register_request("a"))
    assert owned(response) == {("t", 0): -1, ("t", 1): -1, ("t", 2): 17, ("t", 3): -1}
    assert beat(client, "a", response.controller_generation).error_code == ErrorCode.NONE


def test_a_second_consumer_is_answered_when_the_first_has_registered_again(
    broker: GroupBroker, client: Client
) -> None:
    create(client)
    first = client.call(register_request("a"))
    other = broker.client()
    other.ask(register_request("b"))
    told = beat(client, "a", first.controller_generation)
    assert told.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert other.answers() == []

    again = client.call(register_request("a"))

    (second,) = other.answers()
    assert len(owned(again)) == len(owned(second)) == 2
    assert owned(again).keys() | owned(second).keys() == {("t", index) for index in range(4)}


def test_partitions_that_are_added_start_at_the_smallest_offset(broker: GroupBroker, client: Client) -> None:
    create(client)
    first = client.call(register_request("a"))
    for index in (4, 5):
        broker.assign("t", index)
    told = beat(client, "a", first.controller_generation)
    assert told.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    again = owned(client.call(register_request("a")))

    assert (again["t", 3], again["t", 4], again["t", 5]) == (-1, 0, 0)


def test_a_topic_created_later_starts_at_the_smallest_offset(broker: GroupBroker, client: Client) -> None:
    create(client, "g", "t", "later")
    first = client.call(register_request("a"))
    broker.assign("later", 0)
    assert beat(client, "a", first.controller_generation).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    assert owned(client.call(register_request("a")))["later", 0] == 0


def test_a_deleted_topic_is_taken_from_its_owners(broker: GroupBroker, client: Client) -> None:
    broker.assign("u", 0)
    create(client, "g", "t", "u")
    first = client.call(register_request("a"))
    broker.delete("u")
    assert beat(client, "a", first.controller_generation).error_code == ErrorCode.REBALANCE_IN_PROGRESS

    assert {topic for topic, _ in owned(client.call(register_request("a")))} == {"t"}


def test_a_rewind_is_recorded_and_sent_to_the_owners(broker: GroupBroker, client: Client) -> None:
    create(client)
    first = client.call(register_request("a"))
    tool = broker.client()
    wanted = [NewOffset(topic="t", partition=1, offset=5), NewOffset(topic="t", partition=9, offset=5)]
    tool.ask(RewindConsumerRequest(consumer_group="g", new_offsets=wanted))
    assert beat(client, "a", first.controller_generation).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert tool.answers() == []

    again = client.call(register_request("a"))

    (rewound,) = tool.answers()
    outcomes = [(each.partition, each.offset, each.error_code) for each in rewound.actual_offsets]
    assert outcomes == [(1, 5, ErrorCode.NONE), (9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert owned(again)["t", 1] == 5
    assert fetched(client, "g", partition=1) == (5, ErrorCode.NONE)


def test_a_group_survives_a_change_of_coordinator(broker: GroupBroker, client: Client) -> None:
    create(client)
    first = client.call(register_request("a"))
    broker.workers.is_held = True
    broker.hand_over("g", leader=1, leader_epoch=1)
    loading = beat(client, "a", first.controller_generation)
    assert (loading.error_code, loading.controller_generation) == (0, first.controller_generation)

    broker.workers.release()

    assert beat(client, "a", first.controller_generation).error_code == ErrorCode.NONE


def test_stock_tools_see_a_managed_group(broker: GroupBroker, client: Client) -> None:
    create(client)
    client.call(register_request("a"))
    (described,) = client.call(DescribeGroupsRequest(groups=["g"])).groups
    assert (described.group_state, described.protocol_type) == ("Stable", "consumer")
    assert [member.member_id for member in described.members] == ["a"]
    assert [group.group_id for group in client.call(ListGroupsRequest(types_filter=["managed"])).groups] == [
        "g"
    ]


def test_only_empty_groups_that_are_not_ephemeral_are_deleted(broker: GroupBroker, client: Client) -> None:
    create(client, "idle")
    create(client, "busy")
    create(client, "ephemeral", ephemeral=True)
    client.call(register_request("a", "busy"))

    response = client.call(DeleteGroupRequest(consumer_group=["idle", "busy", "ephemeral"]))

    assert response.deleted_consumer_groups == ["idle"]
    assert response.error_code == ErrorCode.NON_EMPTY_GROUP


def test_many_groups_are_deleted_in_turns_and_each_name_once(broker: GroupBroker, client: Client) -> None:
    create(client, "idle")
    names = [*(f"unknown-{number}" for number in range(6 * PART_ROWS)), "idle"]
    with mock.patch.object(GroupService, "ask", autospec=True, side_effect=GroupService.ask) as ask:
        client.ask(DeleteGroupRequest(consumer_group=["idle", *names]))
        assert (client.answers(), ask.call_count) == ([], 2 * PART_ROWS), "the turn of the first parts"
        broker.clock.advance(0)
        (response,) = client.answers()
    assert ask.call_count == len(names)
    assert (response.deleted_consumer_groups, response.error_code) == (["idle"], ErrorCode.GROUP_ID_NOT_FOUND)


def test_the_deletion_of_all_groups_in_one_turn_is_missed(
    broker: GroupBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_group, "PART_ROWS", 1 << 60)
    with pytest.raises(AssertionError, match="the first parts"):
        test_many_groups_are_deleted_in_turns_and_each_name_once(broker, client)


def test_requests_for_a_group_of_another_coordinator_are_refused(broker: GroupBroker, client: Client) -> None:
    create(client)
    broker.hand_over("g", leader=2, leader_epoch=1)
    assert client.call(register_request("a")).error_code == ErrorCode.NOT_COORDINATOR
    assert beat(client, "a", 1).error_code == ErrorCode.NOT_COORDINATOR
    wanted = [NewOffset(topic="t", partition=1, offset=5)]
    rewound = client.call(RewindConsumerRequest(consumer_group="g", new_offsets=wanted))
    assert rewound.actual_offsets[0].error_code == ErrorCode.NOT_COORDINATOR
    deleted = client.call(DeleteGroupRequest(consumer_group=["g"]))
    assert (deleted.deleted_consumer_groups, deleted.error_code) == ([], ErrorCode.NOT_COORDINATOR)


class TestForwarding:
    """Requests "to any server": two brokers that know the same cluster."""

    @pytest.fixture
    def second(self, tmp_path: Path) -> GroupBroker:
        second = GroupBroker(tmp_path / "second", local_id=2)
        second.make_offsets_topic()
        second.assign("t", 0, leader=2, replicas=(2,))
        return second

    @pytest.fixture
    def first(self, tmp_path: Path, second: GroupBroker) -> GroupBroker:
        """The broker that clients ask; the second broker coordinates group "g"."""
        self.reachable = True
        self.sent: list[Any] = []

        def send(broker_id: int, request: Any, timeout_ms: int | None = None) -> Deferred[Any]:
            assert broker_id == 2
            self.sent.append(request)
            if not self.reachable:
                return fail(ChannelLost("broker 2 is unreachable"))
            return second.dispatcher.call_local(request)

        first = GroupBroker(tmp_path / "first", send=send)
        first.offsets_replicas = (1, 2)
        first.make_offsets_topic()
        first.hand_over("g", leader=2, leader_epoch=1)
        return first

    def test_any_broker_forwards_the_creation_of_a_group(
        self, first: GroupBroker, second: GroupBroker
    ) -> None:
        assert create(first.client()) == ErrorCode.NONE
        assert len(second.client().call(ListConsumerGroupsRequest(consumer_groups=["g"])).groups_info) == 1
        assert [request.forwarded for request in self.sent] == [True], "forwarded once"

    def test_any_broker_lists_the_groups_of_all_brokers(
        self, first: GroupBroker, second: GroupBroker
    ) -> None:
        here = next(name for name in "abcdef" if first.partition_of(name) != first.partition_of("g"))
        first.hand_over(here, leader=1, leader_epoch=1)
        create(first.client(), "g")
        create(first.client(), here)
        for names in (["g", here], []):
            response = first.client().call(ListConsumerGroupsRequest(consumer_groups=names))
            found = {
                group.group_name: (group.controller_broker.broker_id, group.controller_broker.port)
                for group in response.groups_info
            }
            assert found == {"g": (2, 9002), here: (1, 9001)}
            assert response.error_code == ErrorCode.NONE

    def test_each_broker_is_asked_once_for_all_groups_that_it_coordinates(self, first: GroupBroker) -> None:
        names = [f"{first_letter}{number}" for first_letter in "ab" for number in range(100)]
        first.client().call(ListConsumerGroupsRequest(consumer_groups=names))
        assert len(self.sent) <= 1

    def test_an_unreachable_coordinator_is_an_error(self, first: GroupBroker) -> None:
        self.reachable = False
        assert create(first.client()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        response = first.client().call(ListConsumerGroupsRequest(consumer_groups=[]))
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
