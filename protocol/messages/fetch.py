"""Fetch: read record batches, as a consumer or as a follower (KIP-98, KIP-227, KIP-320, KIP-392, KIP-516)."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch, NodeEndpoint
from holdfast_log.protocol.schema import Int8, Int16, Int32, Int64, Records, struct, wire


@struct
class DivergingEpoch:
    """Where the follower's log diverges from the leader's: it must truncate to here (KIP-595)."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class SnapshotId:
    """A snapshot to fetch first: KRaft only."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


NO_DIVERGENCE, NO_SNAPSHOT, NO_LEADER = DivergingEpoch(), SnapshotId(), LeaderIdAndEpoch()
"""Defaults that nearly all answers share. They are replaced, never changed."""


@struct
class AbortedTransaction:
    """A transaction whose records a read_committed consumer must drop."""

    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    """The result for one partition. `records` are whole batches; the first may begin before the fetch offset.

    `error_message` is Holdfast's own: why a consumer may not read, and what to do about it.
    """

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = wire("5+", default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch = wire("12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire("12+", tag=1, ignorable=True)
    snapshot_id: SnapshotId = wire("12+", tag=2)
    error_message: str | None = wire("12+", tag=10000, default=None, ignorable=True)
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: Int32 = wire("11+", default=-1)
    records: Records | None


@struct
class FetchableTopicResponse:
    """By name before version 13, by id since."""

    topic: str = wire("4-12", ignorable=True)
    topic_id: UUID = wire("13+", ignorable=True)
    partitions: list[PartitionData]


@struct
class FetchResponse(Response):
    """Results of all partitions. With session id 0 the broker keeps no session."""

    throttle_time_ms: Int32
    error_code: Int16 = wire("7+", ignorable=True)
    session_id: Int32 = wire("7+")
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = wire("16+", tag=0, ignorable=True)


@struct
class ReplicaState:
    """The follower that fetches, and the epoch of its registration (KIP-903)."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@struct
class FetchPartition:
    """Where to read. `current_leader_epoch` fences (KIP-320), `last_fetched_epoch` finds divergence
    (KIP-595); -1 omits either check. `log_start_offset` is that of a follower's log.

    `owner_token` and `owner_secret` are Holdfast's own: a fence, as in `PartitionProduceData`. A fetch
    session keeps it until the partition leaves the session. `has_refused` is Holdfast's own too: the follower
    has refused the batch at `fetch_offset`, because it is damaged, and the leader shall examine it.
    """

    partition: Int32
    current_leader_epoch: Int32 = wire("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = wire("12+", default=-1)
    log_start_offset: Int64 = wire("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    owner_token: Int64 = wire("12+", default=-1, tag=10000)
    owner_secret: bytes = wire("12+", tag=10001)
    has_refused: bool = wire("12+", tag=10002, default=False, ignorable=True)


@struct
class FetchTopic:
    """By name before version 13, by id since (KIP-516)."""

    topic: str = wire("4-12", ignorable=True)
    topic_id: UUID = wire("13+", ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions that leave the fetch session (KIP-227)."""

    topic: str = wire("7-12", ignorable=True)
    topic_id: UUID = wire("13+", ignorable=True)
    partitions: list[Int32]


@request(key=1, versions="4-16", flexible="12+")
class FetchRequest(Request[FetchResponse]):
    """A consumer has `replica_id` -1 (KIP-903 moves it to `replica_state` from version 15 on);
    `isolation_level` 1 is read_committed. Session id 0 with epoch -1 or 0 asks for a full answer (KIP-227).
    """

    cluster_id: str | None = wire("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = wire("4-14", default=-1)
    replica_state: ReplicaState = wire("15+", tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Int32 = wire("7+", ignorable=True)
    session_epoch: Int32 = wire("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = wire("7+")
    rack_id: str = wire("11+", ignorable=True)
