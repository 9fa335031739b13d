"""Every cell of the transition tables of classic, consumer and managed group members."""

from __future__ import annotations

import ast
import inspect
import uuid
from typing import Any

import pytest

from holdfast_log.clients.config import consumer_settings
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.groups import classic, managed
from holdfast_log.clients.groups import consumer_member as consumer_member_module
from holdfast_log.clients.groups import member as member_base
from holdfast_log.clients.groups.assignors import RangeAssignor
from holdfast_log.clients.groups.classic import ClassicEvent, ClassicMembership, ClassicState
from holdfast_log.clients.groups.classic_requests import ClassicSettings
from holdfast_log.clients.groups.consumer_member import (
    ConsumerMemberEvent,
    ConsumerMembership,
    ConsumerMemberState,
)
from holdfast_log.clients.groups.consumer_requests import ConsumerGroupSettings
from holdfast_log.clients.groups.coordinator import GroupCoordinator
from holdfast_log.clients.groups.managed import ManagedEvent, ManagedMembership, ManagedState
from holdfast_log.clients.groups.managed_requests import ManagedSettings
from holdfast_log.clients.groups.membership import RevokePartitions
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    ControllerBroker,
    GroupInfo,
    ListConsumerGroupsResponse,
    PartitionToOwn,
    RegisterConsumerResponse,
)
from holdfast_log.protocol.messages.join_group import JoinGroupResponse
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

CLASSIC = """
                   OUTSIDE REVOKING JOINING   ASSIGNING SYNCING STABLE   FENCED
REVOKE             -       -        -         -         -       REVOKING -
REJOIN             -       -        -         -         -       OUTSIDE  -
REVOKED            OUTSIDE OUTSIDE  -         -         -       STABLE   FENCED
LEFT               OUTSIDE -        -         -         -       -        -
JOIN_SENT          JOINING -        -         -         -       -        -
MEMBER_ID_REQUIRED -       -        OUTSIDE   -         -       -        -
JOINED             -       -        ASSIGNING -         -       -        -
SYNC_SENT          -       -        -         SYNCING   -       -        -
ASSIGNED           -       -        -         -         STABLE  -        -
REBALANCED         -       -        OUTSIDE   -         OUTSIDE -        -
FAILED             OUTSIDE -        OUTSIDE   OUTSIDE   OUTSIDE OUTSIDE  FENCED
LOST               OUTSIDE OUTSIDE  OUTSIDE   OUTSIDE   OUTSIDE OUTSIDE  FENCED
FENCED             FENCED  FENCED   FENCED    FENCED    FENCED  FENCED   FENCED
"""
MANAGED = """
              OUTSIDE  REVOKING LOCATING LOCATED     CREATING REGISTERING STABLE   FENCED
REVOKE        -        -        -        -           -        -           REVOKING -
REREGISTER    -        -        -        -           -        -           OUTSIDE  -
REVOKED       OUTSIDE  OUTSIDE  -        LOCATED     -        -           -        FENCED
LEFT          OUTSIDE  -        -        LOCATED     -        -           -        -
LIST_SENT     LOCATING -        -        -           -        -           -        -
LISTED        LOCATED  -        LOCATED  -           -        -           -        -
CREATE_SENT   -        -        -        CREATING    -        -           -        -
CREATED       OUTSIDE  -        -        -           OUTSIDE  -           -        -
REGISTER_SENT -        -        -        REGISTERING -        -           -        -
ASSIGNED      -        -        -        -           -        STABLE      -        -
FAILED        OUTSIDE  -        OUTSIDE  -           OUTSIDE  OUTSIDE     -        -
LOST          OUTSIDE  OUTSIDE  OUTSIDE  OUTSIDE     OUTSIDE  OUTSIDE     OUTSIDE  FENCED
FENCED        -        -        -        -           -        -           FENCED   -
"""
CONSUMER = """
            OUTSIDE JOINING STABLE      RECONCILING LEAVING FENCED
JOIN_SENT   JOINING -       -           -           -       -
JOINED      -       STABLE  -           -           -       -
RECONCILE   -       -       RECONCILING -           -       -
STOP        -       -       LEAVING     -           -       -
REVOKED     OUTSIDE -       -           STABLE      OUTSIDE FENCED
LEFT        OUTSIDE -       OUTSIDE     -           -       -
FAILED      OUTSIDE OUTSIDE -           -           -       -
LOST        OUTSIDE OUTSIDE OUTSIDE     OUTSIDE     OUTSIDE FENCED
FENCED      -       FENCED  FENCED      FENCED      FENCED  -
"""


def cells(grid: str) -> list[tuple[str, str, str]]:
    """(state, event, next state or "-") of each cell."""
    header, *rows = (line.split() for line in grid.strip().splitlines())
    return [(state, row[0], cell) for row in rows for state, cell in zip(header, row[1:], strict=True)]


def connection() -> tuple[Connection, GroupCoordinator]:
    cluster = FakeCluster(1)
    settings = consumer_settings({"bootstrap.servers": cluster.bootstrap})
    made = Connection(settings["bootstrap.servers"], settings, network=cluster.network())
    coordinator = GroupCoordinator(made, "g", 100)
    coordinator.is_known = True
    return made, coordinator


def classic_member() -> ClassicMembership:
    made, coordinator = connection()
    settings = ClassicSettings("g", None, None, 3_000, 5_000, 500, 1_000, 100, (RangeAssignor(),))
    return ClassicMembership(settings, coordinator, made.metadata)


def managed_member() -> ManagedMembership:
    made, coordinator = connection()
    settings = ManagedSettings("g", "one", False, 3_000, 10_000, 500, 1_000, 100)
    return ManagedMembership(settings, coordinator, made.metadata)


def consumer_member() -> ConsumerMembership:
    made, coordinator = connection()
    settings = ConsumerGroupSettings("g", None, None, None, 3_000, 10_000, 500, 1_000, 100)
    return ConsumerMembership(settings, "one", coordinator, made.metadata)


@pytest.mark.parametrize(("state", "event", "following"), cells(CONSUMER))
def test_a_consumer_member_goes_where_the_table_says(state: str, event: str, following: str) -> None:
    check(consumer_member(), ConsumerMemberState[state], ConsumerMemberEvent[event], following)


@pytest.mark.parametrize(("state", "event", "following"), cells(CLASSIC))
def test_a_classic_member_goes_where_the_table_says(state: str, event: str, following: str) -> None:
    check(classic_member(), ClassicState[state], ClassicEvent[event], following)


@pytest.mark.parametrize(("state", "event", "following"), cells(MANAGED))
def test_a_managed_member_goes_where_the_table_says(state: str, event: str, following: str) -> None:
    check(managed_member(), ManagedState[state], ManagedEvent[event], following)


def check(member: Any, state: Any, event: Any, following: str) -> None:
    member.state = state
    if following == "-":
        with pytest.raises(RuntimeError, match=state.value):
            member._advance(event)
        assert member.state is state
    else:
        member._advance(event)
        assert member.state.name == following


@pytest.mark.parametrize(
    ("grid", "states", "events"),
    [
        (CLASSIC, ClassicState, ClassicEvent),
        (CONSUMER, ConsumerMemberState, ConsumerMemberEvent),
        (MANAGED, ManagedState, ManagedEvent),
    ],
    ids=["classic", "consumer", "managed"],
)
def test_the_grid_has_every_state_and_every_event(grid: str, states: Any, events: Any) -> None:
    listed = cells(grid)

    assert {state for state, _, _ in listed} == {state.name for state in states}
    assert {event for _, event, _ in listed} == {event.name for event in events}
    assert len(listed) == len(states) * len(events)


def test_only_the_constructor_and_the_table_set_the_state() -> None:
    setters = [
        f"{module.__name__.rpartition('.')[2]}.{function.name}"
        for module in (member_base, classic, consumer_member_module, managed)
        for function in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(function, ast.FunctionDef)
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Attribute) and target.attr == "state"
    ]

    assert setters == ["member.__init__", "member._advance"]


def answer(member: ClassicMembership | ManagedMembership, call: Call, response: Response) -> None:
    assert member.handle(Reply(call, response), 1)


def test_a_classic_member_without_topics_does_not_join_with_the_member_id_it_is_given() -> None:
    member = classic_member()
    member.subscribe(["flights"])
    (join,) = member.calls(0)
    member.subscribe([])
    refusal = JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m", leader="", protocol_name=None, members=[]
    )
    answer(member, join, refusal)

    assert [type(call.request) for call in member.calls(1)] == [LeaveGroupRequest]
    assert member.calls(1_000) == []
    assert member.state is ClassicState.OUTSIDE


def test_a_coordinator_that_assigns_others_with_every_answer_is_not_asked_without_a_pause() -> None:
    member = consumer_member()
    topic_id, now_ms, count = uuid.uuid4(), 0, 0
    rows = [
        MetadataResponsePartition(
            error_code=0, partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        for n in range(2)
    ]
    topic = MetadataResponseTopic(error_code=0, name="flights", topic_id=topic_id, partitions=rows)
    member._metadata.update(
        MetadataResponse(brokers=[], controller_id=1, topics=[topic]), MetadataRequest(topics=[]), 0
    )
    member.subscribe(["flights"])
    while now_ms < 10_000:
        now_ms += 1
        for call in member.calls(now_ms):
            count += 1
            rows_given = [HeartbeatTopicPartitions(topic_id=topic_id, partitions=[count % 2])]
            given = ConsumerGroupHeartbeatResponse(
                error_code=0,
                member_id="one",
                member_epoch=count,
                heartbeat_interval_ms=5_000,
                assignment=HeartbeatAssignment(topic_partitions=rows_given),
            )
            assert member.handle(Reply(call, given), now_ms)
        while (event := member.take_event()) is not None:
            if isinstance(event, RevokePartitions):
                member.revoked()
    assert 20 < count < 100


def registered_member() -> ManagedMembership:
    """A managed member that has registered at time 0 and owns flights-0; its consumer has not noticed yet."""
    member = managed_member()
    member.subscribe(["flights"])
    (list_groups,) = member.calls(0)
    info = GroupInfo(
        group_name="g",
        group_members=[],
        topics=["flights"],
        controller_broker=ControllerBroker(broker_id=0, host="localhost", port=9092),
        session_timeout=3_000,
    )
    answer(member, list_groups, ListConsumerGroupsResponse(groups_info=[info], error_code=0))
    (register,) = member.calls(0)
    given = PartitionToOwn(topic="flights", partition=0, offset=-1)
    answer(
        member,
        register,
        RegisterConsumerResponse(
            consumer_group="g", partitions_to_own=[given], error_code=0, controller_generation=1
        ),
    )
    return member


def test_a_managed_member_without_topics_does_not_register_again_in_a_rebalance() -> None:
    member = registered_member()
    (heartbeat,) = member.calls(1)
    assert isinstance(heartbeat.request, ConsumerHeartbeatRequest)
    member.subscribe([])  # While the consumer has not handled the assignment yet.
    rebalance = ConsumerHeartbeatResponse(controller_generation=1, error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    answer(member, heartbeat, rebalance)
    member.take_event()
    member.calls(2)
    assert isinstance(member.take_event(), RevokePartitions)
    member.revoked()

    assert [type(call.request) for call in member.calls(3)] == [LeaveGroupRequest]
    assert member.calls(1_000) == []
    assert member.state is ManagedState.OUTSIDE


@pytest.mark.parametrize(("answered_ms", "is_lost"), [(2_999, False), (3_000, True)])
def test_a_managed_member_loses_its_partitions_when_no_heartbeat_succeeds_within_the_session_timeout(
    answered_ms: int, is_lost: bool
) -> None:
    member = registered_member()
    member.take_event()
    (heartbeat,) = member.calls(1)
    assert member.handle(Reply(heartbeat, error=TimeoutError("no answer")), answered_ms)
    member.calls(answered_ms)

    assert member.take_event() == RevokePartitions((TopicPartition("flights", 0),), is_lost=is_lost)
