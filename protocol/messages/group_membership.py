"""The membership protocol of the client rewrite: groups whose partitions the server assigns.

Six APIs that belong together, announced as the feature `holdfast.groups` and never among the API keys.
Fields have the names of the client rewrite. Its Version, CorrelationId and ClientId are those of the header.
Two of its types are wider here, because the values do not fit: partitions and ports are 32 bits. Fields that
it lacks and a server needs are marked "not in the client rewrite".

Two of its APIs have other names here, since Kafka has APIs with those names: its ListGroups is
`ListConsumerGroups`, its Heartbeat `ConsumerHeartbeat`.
"""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire

NOT_ADVERTISED = "none"
FEATURE = "holdfast.groups"
"""The feature that a broker with these APIs announces."""


@struct
class CreateGroupResponse(Response):
    consumer_group: str
    error_code: Int16


@request(key=30010, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class CreateGroupRequest(Request[CreateGroupResponse]):
    """To any server. `session_timeout` is in ms.

    An `ephemeral` group (named in the client rewrite's table, not in its message) is deleted when its last
    member leaves. `assignment_strategy` is one of `AssignmentStrategy`, or empty for the default. Not in
    the client rewrite.

    A broker sets `forwarded`, in this request and others to any server, when it forwards a client's request
    to the group's controller, so that it is not forwarded again. Not in the client rewrite.

    `single_reader`: within the group, the leader of a partition lets only its assigned member read (see
    `group_readers`). Not in the client rewrite.
    """

    consumer_group: str
    session_timeout: Int64
    topics: list[str]
    ephemeral: bool = wire(default=False)
    assignment_strategy: str = wire(default="")
    forwarded: bool = wire("0+", tag=0, default=False)
    single_reader: bool = wire("0+", tag=1, default=False)


@struct
class DeleteGroupResponse(Response):
    """`error_code` is that of the first group that could not be deleted."""

    deleted_consumer_groups: list[str]
    error_code: Int16


@request(key=30011, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class DeleteGroupRequest(Request[DeleteGroupResponse]):
    """To the controller of the groups: deletes those that have no members and are not ephemeral."""

    consumer_group: list[str]


@struct
class ControllerBroker:
    broker_id: Int32
    host: str
    port: Int32


@struct
class GroupInfo:
    group_name: str
    group_members: list[str]
    topics: list[str]
    controller_broker: ControllerBroker
    session_timeout: Int64
    single_reader: bool = wire("0+", tag=0, default=False)


@struct
class ListConsumerGroupsResponse(Response):
    groups_info: list[GroupInfo]
    error_code: Int16


@request(key=30012, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ListConsumerGroupsRequest(Request[ListConsumerGroupsResponse]):
    """To any server: the named groups, or all active groups if none is named."""

    consumer_groups: list[str]
    forwarded: bool = wire("0+", tag=0, default=False)


@struct
class PartitionToOwn:
    """`offset` is where to start; -1 if the group has none, and the consumer's configuration decides."""

    topic: str
    partition: Int32
    offset: Int64


@struct
class RegisterConsumerResponse(Response):
    """Heartbeats and commits must name `controller_generation`. With `single_reader` the member must attach
    itself at a partition's leader before it fetches. Neither field is in the client rewrite."""

    consumer_group: str
    partitions_to_own: list[PartitionToOwn]
    error_code: Int16
    controller_generation: Int64 = wire(default=-1)
    single_reader: bool = wire("0+", tag=0, default=False)


@request(key=30013, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RegisterConsumerRequest(Request[RegisterConsumerResponse]):
    """To the group's controller, which answers when all members that the change concerns have registered."""

    consumer_group: str
    consumer_id: str


@struct
class ConsumerHeartbeatResponse(Response):
    """Any error code asks the consumer to stop fetching, commit and register."""

    controller_generation: Int64
    error_code: Int16


@request(key=30014, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class ConsumerHeartbeatRequest(Request[ConsumerHeartbeatResponse]):
    """To the controller of the group.

    `session_timeout`, in ms, requests a shorter session than the group's; -1 takes the group's. The group,
    the consumer and its generation are not in the client rewrite, where the connection identifies the
    member.

    `rebalance_timeout`, in ms, is how long the member may take to stop fetching and register after an error
    code, if its heartbeats continue; with -1 it has one session timeout. Not in the client rewrite.
    """

    session_timeout: Int64
    consumer_group: str
    consumer_id: str
    controller_generation: Int64
    rebalance_timeout: Int64 = wire("0+", tag=0, default=-1)


@struct
class NewOffset:
    topic: str
    partition: Int32
    offset: Int64


@struct
class ActualOffset:
    """The partition's offset after the rewind; -1 with an error."""

    topic: str
    partition: Int32
    offset: Int64
    error_code: Int16


@struct
class RewindConsumerResponse(Response):
    """The requesting member continues in `controller_generation`, which is not in the client rewrite."""

    consumer_group: str
    actual_offsets: list[ActualOffset]
    controller_generation: Int64 = wire(default=-1)


@request(key=30015, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RewindConsumerRequest(Request[RewindConsumerResponse]):
    """To the controller of the group.

    A member of the group sets `consumer_id` and `controller_generation`, so that the controller does not
    ask it to stop fetching: it has stopped already. Tools leave them out. Neither field is in the client
    rewrite.
    """

    consumer_group: str
    new_offsets: list[NewOffset]
    consumer_id: str = wire(default="")
    controller_generation: Int64 = wire(default=-1)
