"""The membership protocol of the client rewrite: groups whose partitions the server assigns.

Six APIs that belong together, announced as the feature `holdfast.groups` and never among the API keys.
Fields have the names of the client rewrite. Its Version, CorrelationId and ClientId are those of the header.
Two of its types are wider here, because the values do not fit: partitions and ports are 32 bits. What it
leaves out and a server needs is marked "not in the client rewrite".

Two APIs are named otherwise than there, since Kafka has APIs of those names: its ListGroups is
`ListConsumerGroups`, its Heartbeat `ConsumerHeartbeat`.
"""

from __future__ import annotations

from protocol.api import Request, Response, request
from protocol.schema import Int16, Int32, Int64, struct, wire

NOT_ADVERTISED = "none"
FEATURE = "holdfast.groups"
"""What a broker announces that has these APIs."""


@struct
class CreateGroupResponse(Response):
    consumer_group: str
    error_code: Int16


@request(key=30010, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class CreateGroupRequest(Request[CreateGroupResponse]):
    """To any server. `session_timeout` is in ms.

    An `ephemeral` group (named in the client rewrite's table, not in its message) goes when its last member
    does. `assignment_strategy` is not in the client rewrite: "range", "roundrobin", "sticky", or empty for
    the default.

    `forwarded`, in this request and others to any server, is set by a broker that asks the group's controller
    for a client: the request is not passed on again. Not in the client rewrite.

    `single_reader`: the leaders of partitions let nobody of the group read but the member that has them (see
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
    """To any server: the groups named, or all active ones where none is named."""

    consumer_groups: list[str]
    forwarded: bool = wire("0+", tag=0, default=False)


@struct
class PartitionToOwn:
    """`offset` is where to start; -1 where the group has none, and the consumer's configuration decides."""

    topic: str
    partition: Int32
    offset: Int64


@struct
class RegisterConsumerResponse(Response):
    """`controller_generation`, to be named in heartbeats and commits, is not in the client rewrite, nor is
    `single_reader`: before it fetches a partition the member has to attach itself at its leader."""

    consumer_group: str
    partitions_to_own: list[PartitionToOwn]
    error_code: Int16
    controller_generation: Int64 = wire(default=-1)
    single_reader: bool = wire("0+", tag=0, default=False)


@request(key=30013, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RegisterConsumerRequest(Request[RegisterConsumerResponse]):
    """To the controller of the group, which answers when all whom the change concerns have registered."""

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

    `session_timeout`, in ms, asks for a shorter session than the group's; -1 takes the group's. Not in the
    client rewrite, where the connection says who is speaking: the group, the consumer, and the generation
    that it has.
    """

    session_timeout: Int64
    consumer_group: str
    consumer_id: str
    controller_generation: Int64


@struct
class NewOffset:
    topic: str
    partition: Int32
    offset: Int64


@struct
class ActualOffset:
    """Where a partition stands now; -1 with an error."""

    topic: str
    partition: Int32
    offset: Int64
    error_code: Int16


@struct
class RewindConsumerResponse(Response):
    """`controller_generation` is not in the client rewrite: a member that asked goes on under it."""

    consumer_group: str
    actual_offsets: list[ActualOffset]
    controller_generation: Int64 = wire(default=-1)


@request(key=30015, versions="0", flexible="0+", advertised=NOT_ADVERTISED, feature=FEATURE)
class RewindConsumerRequest(Request[RewindConsumerResponse]):
    """To the controller of the group.

    Not in the client rewrite: `consumer_id` and `controller_generation`, which a member of the group gives,
    so that it is not asked to stop what it has stopped already. Tools leave them out.
    """

    consumer_group: str
    new_offsets: list[NewOffset]
    consumer_id: str = wire(default="")
    controller_generation: Int64 = wire(default=-1)
