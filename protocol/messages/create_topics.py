"""CreateTopics: new topics, by number of partitions or by assignment (KIP-4, KIP-525)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.produce import FIRST_OWN_TAG
from holdfast_log.protocol.schema import Int8, Int16, Int32, struct, wire


@struct
class CreatableTopicConfigs:
    name: str
    value: str | None
    read_only: bool
    config_source: Int8 = -1
    is_sensitive: bool


@struct
class CreatableTopicResult:
    """Configurations and numbers of the new topic (KIP-525). On error the numbers are -1, the
    configurations null."""

    name: str
    topic_id: UUID = wire("7+", ignorable=True)
    error_code: Int16
    error_message: str | None = None
    topic_config_error_code: Int16 = wire("5+", tag=0, ignorable=True)
    num_partitions: Int32 = wire("5+", default=-1, ignorable=True)
    replication_factor: Int16 = wire("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire("5+", ignorable=True)


@struct
class CreateTopicsResponse(Response):
    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    name: str
    value: str | None


@struct
class CreatableTopic:
    """`num_partitions` and `replication_factor` are -1 for the broker's defaults, or if `assignments` are
    given."""

    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@request(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """With `validate_only` nothing is created. A broker that creates topics for its client says
    `on_behalf_of` whom, as the audit log is to name that client."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: bool = False
    on_behalf_of: str | None = wire("5+", default=None, tag=FIRST_OWN_TAG, ignorable=True)
