"""StopReplica: the controller tells a broker to stop using replicas, or to delete them."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class StopReplicaPartitionError:
    topic_name: str
    partition_index: Int32
    error_code: Int16


@struct
class StopReplicaResponse(Response):
    error_code: Int16
    partition_errors: list[StopReplicaPartitionError]


@struct
class StopReplicaPartitionState:
    """`leader_epoch` is -1 if it must not be checked, -2 while the topic is being deleted (KIP-570)."""

    partition_index: Int32
    leader_epoch: Int32 = -1
    delete_partition: bool


@struct
class StopReplicaTopicState:
    """`topic_id` is Holdfast's own: a copy of the request that arrives after the topic was deleted and
    created again must not delete the new topic's replicas."""

    topic_name: str
    topic_id: UUID = wire(tag=FIRST_OWN_TAG, ignorable=True)
    partition_states: list[StopReplicaPartitionState]


@request(key=5, versions="3-4", flexible="2+", internal=True)
class StopReplicaRequest(Request[StopReplicaResponse]):
    controller_id: Int32
    is_kraft_controller: bool = wire("4+")
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    topic_states: list[StopReplicaTopicState]
