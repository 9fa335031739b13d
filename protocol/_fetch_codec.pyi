from collections.abc import Callable
from uuid import UUID

from holdfast_log.protocol.frames import FileSlice, Part
from holdfast_log.protocol.messages.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch

def bind(
    request: type[FetchRequest],
    topic: type[FetchTopic],
    partition: type[FetchPartition],
    slice_: type[FileSlice],
    response: type[FetchResponse],
    topic_response: type[FetchableTopicResponse],
    data: type[PartitionData],
    uuid_of: Callable[[bytes], UUID],
    no_id: UUID,
    replica_state: ReplicaState,
    no_divergence: DivergingEpoch,
    no_leader: LeaderIdAndEpoch,
    no_snapshot: SnapshotId,
    /,
) -> None: ...
def decode(frame: memoryview, version: int, position: int, /) -> FetchRequest | None: ...
def encode(response: FetchResponse, version: int, correlation_id: int, /) -> list[Part] | None: ...
def encode_records(
    version: int,
    correlation_id: int,
    topic: str,
    topic_id: UUID,
    index: int,
    high_watermark: int,
    log_start_offset: int,
    records: FileSlice | None,
    /,
) -> list[Part] | None: ...
def encode_reads(
    version: int,
    correlation_id: int,
    session_id: int,
    reads: list[tuple[str, UUID, int, int, int, FileSlice | None]],
    /,
) -> list[Part] | None: ...
