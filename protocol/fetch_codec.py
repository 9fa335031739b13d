"""What the compiled decoder of Fetch requests and encoder of Fetch responses (`_fetch_codec.c`) know of
Python.

The generated decoders and encoders are the reference, and handle everything unusual: requests with a fence,
that forget partitions of a session or have tagged fields, responses that name another leader or have an
error message, and whatever is malformed.
"""

from __future__ import annotations

from types import ModuleType
from uuid import UUID

from holdfast_log.protocol.fields import ZERO_UUID
from holdfast_log.protocol.frames import FileSlice
from holdfast_log.protocol.generated_decoders import uuid_of
from holdfast_log.protocol.messages.fetch import (
    NO_DIVERGENCE,
    NO_LEADER,
    NO_SNAPSHOT,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

KEY = FetchRequest.api.key


def bind(codec: ModuleType) -> None:
    """Hand the classes of the messages, and the values that messages share, to the compiled codec."""
    codec.bind(
        FetchRequest, FetchTopic, FetchPartition, FileSlice, FetchResponse, FetchableTopicResponse,
        PartitionData, uuid_of, ZERO_UUID, ReplicaState(), NO_DIVERGENCE, NO_LEADER, NO_SNAPSHOT,
    )  # fmt: skip


def records_response(
    topic: str,
    topic_id: UUID,
    index: int,
    high_watermark: int,
    log_start_offset: int,
    records: FileSlice | None,
) -> FetchResponse:
    """The response to a fetch of one partition that was read."""
    data = PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start_offset,
        diverging_epoch=NO_DIVERGENCE,
        current_leader=NO_LEADER,
        snapshot_id=NO_SNAPSHOT,
        records=b"" if records is None else records,
    )
    answer = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[data])
    return FetchResponse(throttle_time_ms=0, session_id=0, responses=[answer])
