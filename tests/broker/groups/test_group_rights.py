"""What a client may not describe it does not see: groups, and the topics of their offsets. What it may not
read or delete stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_groups import DeleteGroupsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.group_membership import (
    CreateGroupRequest,
    DeleteGroupRequest,
    ListConsumerGroupsRequest,
)
from holdfast_log.protocol.messages.list_groups import ListGroupsRequest
from holdfast_log.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.groups.group_broker import GroupBroker, commit, commit_request, fetch_request, fetched
from tests.models.rules import Rules

DESCRIBE, READ, DELETE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DELETE
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def rules() -> Rules:
    return Rules(set())


@pytest.fixture
def broker(tmp_path: Path, rules: Rules) -> GroupBroker:
    """Groups `open` and `closed` have committed offsets of topics t and u."""
    broker = GroupBroker(tmp_path, authorizer=rules)
    for topic in ("t", "u"):
        broker.assign(topic)
    broker.make_offsets_topic()
    for group in ("open", "closed"):
        for topic in ("t", "u"):
            assert commit(broker.client(), group, 3, topic=topic) == ErrorCode.NONE
    return broker


@pytest.mark.parametrize("can_describe_cluster", [False, True])
def test_a_list_has_the_groups_that_the_client_may_describe(
    broker: GroupBroker, rules: Rules, can_describe_cluster: bool
) -> None:
    rules.denied = {(DESCRIBE, GROUP)} if can_describe_cluster else {(DESCRIBE, GROUP), (DESCRIBE, CLUSTER)}
    rules.named = {"closed", "kafka-cluster"}
    listed = broker.stranger().call(ListGroupsRequest())
    names = {"open", "closed"} if can_describe_cluster else {"open"}
    assert {group.group_id for group in listed.groups} == names
    assert listed.error_code == ErrorCode.NONE


def test_a_list_of_managed_groups_has_those_that_the_client_may_describe(
    broker: GroupBroker, rules: Rules
) -> None:
    for group in ("managed", "hidden"):
        request = CreateGroupRequest(consumer_group=group, session_timeout=6_000, topics=["t"])
        assert broker.client().call(request).error_code == ErrorCode.NONE
    rules.denied, rules.named = {(DESCRIBE, GROUP), (DESCRIBE, CLUSTER)}, {"hidden", "kafka-cluster"}
    client = broker.stranger()
    for is_forwarded in (False, True):
        request_all = ListConsumerGroupsRequest(consumer_groups=["managed", "hidden"], forwarded=is_forwarded)
        answer = client.call(request_all)
        assert [group.group_name for group in answer.groups_info] == ["managed"]
        assert answer.error_code == ErrorCode.NONE


def test_all_offsets_of_a_group_are_those_of_topics_that_the_client_may_describe(
    broker: GroupBroker, rules: Rules
) -> None:
    rules.denied, rules.named = {(DESCRIBE, TOPIC)}, {"u"}
    client = broker.stranger()
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="open", topics=None)])
    (answer,) = client.call(request).groups
    assert [topic.name for topic in answer.topics] == ["t"]
    (named,) = client.call(fetch_request("open", topic="u")).groups
    ((partition,),) = [topic.partitions for topic in named.topics]
    assert (partition.error_code, partition.committed_offset) == (DENIED, -1)


def test_one_group_of_a_request_is_refused_and_the_other_answered(broker: GroupBroker, rules: Rules) -> None:
    rules.denied, rules.named = {(DESCRIBE, GROUP)}, {"closed"}
    client = broker.stranger()
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("closed", "open")]
    )
    codes = {group.group_id: group.error_code for group in client.call(request).groups}
    assert codes == {"closed": ErrorCode.GROUP_AUTHORIZATION_FAILED, "open": ErrorCode.NONE}


def test_an_offset_of_a_topic_that_the_client_may_not_read_is_not_stored(
    broker: GroupBroker, rules: Rules
) -> None:
    rules.denied, rules.named = {(READ, TOPIC)}, {"u"}
    client = broker.stranger()
    request = commit_request("open", 7, topic="t")
    request.topics += commit_request("open", 7, topic="u").topics
    codes = {topic.name: topic.partitions[0].error_code for topic in client.call(request).topics}
    assert codes == {"t": ErrorCode.NONE, "u": DENIED}
    assert fetched(broker.client(), "open", topic="t")[0] == 7
    assert fetched(broker.client(), "open", topic="u")[0] == 3


def test_an_offset_of_a_topic_that_the_client_may_not_read_is_not_deleted(
    broker: GroupBroker, rules: Rules
) -> None:
    rules.denied, rules.named = {(READ, TOPIC)}, {"u"}
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("t", "u", "none")]
    answer = broker.stranger().call(OffsetDeleteRequest(group_id="open", topics=topics))
    codes = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {"t": ErrorCode.NONE, "u": DENIED, "none": unknown}
    assert fetched(broker.client(), "open", topic="u")[0] == 3


def test_groups_that_the_client_may_not_delete_stay(broker: GroupBroker, rules: Rules) -> None:
    rules.denied, rules.named = {(DELETE, GROUP)}, {"closed"}
    client = broker.stranger()
    answer = client.call(DeleteGroupsRequest(groups_names=["closed", "open"]))
    codes = {result.group_id: result.error_code for result in answer.results}
    assert codes == {"closed": ErrorCode.GROUP_AUTHORIZATION_FAILED, "open": ErrorCode.NONE}
    own = client.call(DeleteGroupRequest(consumer_group=["closed"]))
    assert own.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert {group.group_id for group in broker.client().call(ListGroupsRequest()).groups} == {"closed"}


def test_a_look_up_that_is_denied_creates_no_topic_of_offsets(tmp_path: Path, rules: Rules) -> None:
    broker = GroupBroker(tmp_path, authorizer=rules)
    rules.denied = {(DESCRIBE, GROUP)}
    answer = broker.stranger().call(FindCoordinatorRequest(key="g"), 0)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert broker.created == []
