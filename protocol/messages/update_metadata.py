"""UpdateMetadata: the controller tells a broker which brokers are alive and which lead partitions."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, struct, wire


@struct
class UpdateMetadataResponse(Response):
    error_code: Int16


@struct
class UpdateMetadataPartitionState:
    """`leader` is -1 for none, -2 while the topic is being deleted."""

    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32]


@struct
class UpdateMetadataTopicState:
    topic_name: str
    topic_id: UUID
    partition_states: list[UpdateMetadataPartitionState]


@struct
class UpdateMetadataEndpoint:
    port: Int32
    host: str
    listener: str
    security_protocol: Int16


@struct
class UpdateMetadataBroker:
    id: Int32
    endpoints: list[UpdateMetadataEndpoint]
    rack: str | None


@request(key=6, versions="7-8", flexible="6+", internal=True)
class UpdateMetadataRequest(Request[UpdateMetadataResponse]):
    """`finalized_features_epoch` and `transaction_version`, Holdfast's own fields: what the cluster has
    decided on about features; an epoch of -1 says nothing of it."""

    controller_id: Int32
    is_kraft_controller: bool = wire("8+")
    type: Int8 = wire("8+", tag=0)
    controller_epoch: Int32
    broker_epoch: Int64 = -1
    topic_states: list[UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataBroker]
    finalized_features_epoch: Int64 = wire(tag=FIRST_OWN_TAG, default=-1, ignorable=True)
    transaction_version: Int16 = wire(tag=FIRST_OWN_TAG + 1, ignorable=True)
