"""Metadata: the brokers, and the leaders and replicas of partitions (KIP-4, KIP-516)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct, wire


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: str
    port: Int32
    rack: str | None = wire("1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """`leader_id` is -1 if there is currently no leader."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = wire("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = wire("5+", ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: str | None = wire(nullable="12+")
    topic_id: UUID = wire("10+", ignorable=True)
    is_internal: bool = wire("1+", ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = wire("8+", default=-2147483648)


@struct
class MetadataResponse(Response):
    """The authorized operations are a bit set; -2147483648 if not requested."""

    throttle_time_ms: Int32 = wire("3+", ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = wire("2+", default=None, ignorable=True)
    controller_id: Int32 = wire("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = wire("8-10", default=-2147483648)


@struct
class MetadataRequestTopic:
    """By name, or from version 12 on by id, the name then being null."""

    topic_id: UUID = wire("10+", ignorable=True)
    name: str | None = wire(nullable="10+")


@request(key=3, versions="0-12", flexible="9+")
class MetadataRequest(Request[MetadataResponse]):
    """If `topics` is null, all topics are returned; in version 0, which has no null, if it is empty."""

    topics: list[MetadataRequestTopic] | None = wire(nullable="1+")
    allow_auto_topic_creation: bool = wire("4+", default=True)
    include_cluster_authorized_operations: bool = wire("8-10")
    include_topic_authorized_operations: bool = wire("8+")
