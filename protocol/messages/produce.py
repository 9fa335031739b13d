"""Produce: append record batches to partitions (KIP-98, KIP-467, KIP-951)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from holdfast_log.protocol.schema import Int16, Int32, Int64, Records, struct, wire

FIRST_OWN_TAG = 10_000
"""Holdfast's own tags start here, so that no later version of Kafka's messages collides with them."""


@struct
class BatchIndexAndErrorMessage:
    """A refused record, by its index in the batch."""

    batch_index: Int32
    batch_index_error_message: str | None = None


@struct
class KeyVersion:
    """The version of a record's key: the offset of the last record with that key; -1 for none.

    `record` is the record's index in the batch. Holdfast's own.
    """

    record: Int32
    version: Int64


@struct
class PartitionProduceResponse:
    """`base_offset` is that of the first record, -1 on error; `log_append_time_ms` is -1 for CreateTime.

    In answer to a condition, Holdfast's own fields say where the log ends, and everything before is
    committed: `next_offset` is the offset of the next record, `last_leader_epoch` the leader epoch of the
    last record (-1: none). `key_versions` has the present versions of the keys whose expectation failed.
    `is_repeat`: nothing was appended, because the log already had an append with this
    id, at `base_offset`. `append_ids_from`, in the refusal of an append with an id: the broker remembers the
    ids of all appends from this offset on, so the log has no append with this id from there to `next_offset`.
    """

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = wire("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = wire("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire("8+", ignorable=True)
    error_message: str | None = wire("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire("10+", tag=0, ignorable=True)
    next_offset: Int64 = wire("9+", default=-1, tag=FIRST_OWN_TAG, ignorable=True)
    last_leader_epoch: Int32 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 1, ignorable=True)
    key_versions: list[KeyVersion] = wire("9+", tag=FIRST_OWN_TAG + 2, ignorable=True)
    is_repeat: bool = wire("9+", default=False, tag=FIRST_OWN_TAG + 3, ignorable=True)
    append_ids_from: Int64 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 4, ignorable=True)


@struct
class TopicProduceResponse:
    name: str
    partition_responses: list[PartitionProduceResponse]


@struct
class ProduceResponse(Response):
    """The result of each partition. With `acks` 0 there is no response."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = wire("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire("10+", tag=0, ignorable=True)


@struct
class PartitionProduceData:
    """Record batches of one partition, one after the other.

    Holdfast's own fields make the append conditional (KIP-27). They are sent only to brokers with the
    feature `holdfast.expected.offset`. The log must end at `expected_offset`, and the record before it must
    have `expected_leader_epoch`; -1: any. It must be the log of the topic with `expected_topic_id`, not of
    another one of that name; zero: of any. Without records the partition is a guard for the others of the
    request. A client raises `attempt` after a refusal: requests of the refused attempt are refused as well;
    -1: the client has one request in flight.

    `expected_versions` is a condition for brokers with the feature `holdfast.key.versions`, and topics with
    key.versions: each of these records' keys must have the given version before the batch is appended.

    `append_id` (16 bytes, empty: none; feature `holdfast.append.ids`) names the append of a condition. The
    batch must have it too, in a header of its first record, and be marked (`protocol.records.append_id_of`).
    `id_unused_before` (version 2 of the feature): the client knows that no append with this id is in the log
    before this offset. A broker that does not remember all ids from there on refuses with APPEND_ID_UNKNOWN.
    -1: the client decides by itself, from the answer's `append_ids_from`.

    `owner_token` and `owner_secret` are a fence, for brokers with the feature `holdfast.fences`: the batch is
    appended only while the grant with this incarnation is in force, whichever connection the request uses.
    The secret is that of the grant's claim. -1: no fence.
    """

    index: Int32
    records: Records | None
    expected_offset: Int64 = wire("9+", default=-1, tag=FIRST_OWN_TAG)
    expected_leader_epoch: Int32 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 1)
    attempt: Int32 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 2)
    expected_topic_id: UUID = wire("9+", tag=FIRST_OWN_TAG + 3)
    expected_versions: list[KeyVersion] = wire("9+", tag=FIRST_OWN_TAG + 4)
    append_id: bytes = wire("9+", tag=FIRST_OWN_TAG + 5)
    owner_token: Int64 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 6)
    owner_secret: bytes = wire("9+", tag=FIRST_OWN_TAG + 7)
    id_unused_before: Int64 = wire("9+", default=-1, tag=FIRST_OWN_TAG + 8)


@struct
class TopicProduceData:
    name: str
    partition_data: list[PartitionProduceData]


@request(key=0, versions="0-12", flexible="9+", transactions_2="12+")
class ProduceRequest(Request[ProduceResponse]):
    """Batches for any number of partitions.

    `acks` is 0 (no response), 1 (the leader has the batches) or -1 (the whole ISR has them). From version 12
    on the leader adds the partitions to the transaction (KIP-890).
    """

    transactional_id: str | None = wire("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]
