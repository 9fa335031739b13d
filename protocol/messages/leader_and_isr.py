"""LeaderAndIsr: the controller tells a broker which replicas to hold, and who leads them."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire


@struct
class LeaderAndIsrPartitionError:
    partition_index: Int32
    error_code: Int16


@struct
class LeaderAndIsrTopicError:
    topic_id: UUID
    partition_errors: list[LeaderAndIsrPartitionError]


@struct
class LeaderAndIsrResponse(Response):
    error_code: Int16
    topics: list[LeaderAndIsrTopicError]


@struct
class LeaderAndIsrPartitionState:
    """The partition's state in ZooKeeper; `partition_epoch` is the version of its znode. `leader` is -1 for
    none, -2 while the topic is being deleted. `is_new`: no replica of the partition has existed before.

    `eligible_leader_replicas`, Holdfast's own field: replicas out of sync that have every committed record
    (KIP-966). While there are any, the leader does not raise its high watermark.
    """

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]
    is_new: bool = False
    leader_recovery_state: Int8 = wire("6+")
    eligible_leader_replicas: list[Int32] = wire(tag=FIRST_OWN_TAG, ignorable=True)


@struct
class LeaderAndIsrTopicState:
    topic_name: str
    topic_id: UUID
    partition_states: list[LeaderAndIsrPartitionState]


@struct
class LeaderAndIsrLiveLeader:
    broker_id: Int32
    host_name: str
    port: Int32


@request(key=4, versions="5-7", flexible="4+", internal=True)
class LeaderAndIsrRequest(Request[LeaderAndIsrResponse]):
    """`type` is 0 if unknown, 1 for some of the broker's partitions, 2 for all (KIP-516)."""

    controller_id: Int32
    is_kraft_controller: bool = wire("7+")
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    type: Int8
    topic_states: list[LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrLiveLeader]
