"""The compiled decoder of Fetch requests and encoder of Fetch responses give what the generated ones give.

They return None for whatever is unusual or malformed. So the tests compare where they return something, and
check that they do for what ordinary consumers send and receive.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import fetch_codec
from holdfast_log.protocol.fields import ZERO_UUID, Field
from holdfast_log.protocol.frames import FileSlice, Part, join_parts
from holdfast_log.protocol.headers import encode_response
from holdfast_log.protocol.messages.fetch import (
    NO_DIVERGENCE,
    NO_LEADER,
    NO_SNAPSHOT,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch
from holdfast_log.protocol.schema import (
    InvalidMessage,
    MalformedMessage,
    ProtocolMessage,
    decode_from,
    encode,
)
from tests.protocol.fuzz import Frames
from tests.protocol.strategies import messages

VERSIONS = tuple(FetchRequest.api.versions)
TOPIC_ID = UUID(int=1 << 64 | 7)
PREFIX = b"header"


class Content:
    """A file, as slices of it need it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        raise OSError("it has no descriptor")

    def pread(self, length: int, offset: int) -> bytes:
        return self._data[offset : offset + length]


FILE = Content(bytes(range(256)) * 64)


@pytest.fixture(scope="session")
def codec(extension: Callable[[str], ModuleType]) -> ModuleType:
    found = extension("_fetch_codec")
    fetch_codec.bind(found)
    return found


def decoded(version: int, body: bytes) -> FetchRequest | None:
    """What the generated decoder gives; None if it refuses the bytes."""
    try:
        return decode_from(FetchRequest, version, body)[0]
    except MalformedMessage:
        return None


def encoded(response: FetchResponse, version: int) -> list[Part] | None:
    """What the generated encoder gives; None if it refuses the response."""
    try:
        return encode_response(response, version, 7)
    except InvalidMessage:
        return None


# -- requests ------------------------------------------------------------------------------------------------


def plain_request(version: int, topic_count: int = 2, **changed: Any) -> FetchRequest:
    """What a consumer sends."""
    by_id, has_sessions = version >= 13, version >= 7
    partitions = [
        FetchPartition(
            partition=number,
            fetch_offset=1 << 40 | number,
            partition_max_bytes=1 << 20,
            current_leader_epoch=5 if version >= 9 else -1,
        )
        for number in range(3)
    ]
    values: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 1,
        "session_id": 9 if has_sessions else 0,
        "session_epoch": 3 if has_sessions else -1,
        "topics": [
            FetchTopic(
                topic="" if by_id else f"größe-{number}",
                topic_id=TOPIC_ID if by_id else UUID(int=0),
                partitions=partitions,
            )
            for number in range(topic_count)
        ],
        "forgotten_topics_data": [],
        "rack_id": "rack" if version >= 11 else "",
    }
    return FetchRequest(**(values | changed))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_requests_of_consumers_are_decoded(codec: ModuleType, version: int) -> None:
    request = plain_request(version)
    frame = PREFIX + encode(request, version)
    assert codec.decode(memoryview(frame), version, len(PREFIX)) == request
    assert codec.decode(memoryview(frame + b"more"), version, len(PREFIX)) == request


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_end_early_are_left_to_the_generated_decoder(codec: ModuleType, version: int) -> None:
    body = encode(plain_request(version, topic_count=1), version)
    for size in range(len(body)):
        assert codec.decode(memoryview(body[:size]), version, 0) is None
        assert decoded(version, body[:size]) is None
    assert codec.decode(memoryview(body), version, len(body) + 1) is None
    assert codec.decode(memoryview(body), version, -1) is None
    for other in (*range(-2, VERSIONS[0]), VERSIONS[-1] + 1, 1 << 15):
        assert codec.decode(memoryview(body), other, 0) is None


@pytest.mark.parametrize(
    "unusual",
    [
        {"cluster_id": "x"},
        {"replica_state": ReplicaState(replica_id=2)},
        {"forgotten_topics_data": [ForgottenTopic(topic="", topic_id=TOPIC_ID, partitions=[1])]},
        {
            "topics": [
                FetchTopic(
                    topic="",
                    topic_id=TOPIC_ID,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            fetch_offset=0,
                            partition_max_bytes=1,
                            owner_token=3,
                            owner_secret=b"s",
                        )
                    ],
                )
            ]
        },
        {"topics": [FetchTopic(topic="", topic_id=TOPIC_ID, partitions=[])] * 600},
    ],
    ids=["cluster", "follower", "forgotten", "fence", "many"],
)
def test_unusual_requests_are_left_to_the_generated_decoder(codec: ModuleType, unusual: Any) -> None:
    request = plain_request(16, **unusual)
    body = encode(request, 16)
    assert codec.decode(memoryview(body), 16, 0) is None
    assert decoded(16, body) == request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_random_requests_are_decoded_as_by_the_generated_decoder(
    codec: ModuleType, version: int, data: st.DataObject
) -> None:
    body = encode(data.draw(messages(FetchRequest, version)), version)
    found = codec.decode(memoryview(body), version, 0)
    assert found is None or found == decoded(version, body)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_decoded_as_by_the_generated_decoder_or_left_to_it(
    codec: ModuleType, version: int
) -> None:
    chance = random.Random(version)
    whole = encode(plain_request(version), version)
    frames = Frames(version)
    known = 0
    for _ in range(400):
        body = frames._damaged(whole)
        if chance.randrange(3) == 0:
            body = chance.randbytes(chance.randrange(60))
        found = codec.decode(memoryview(body), version, 0)
        if found is not None:
            known += 1
            assert found == decoded(version, body)
    assert known > 10, "most damage makes a request that nobody can decode: no comparison was made"


# -- responses -----------------------------------------------------------------------------------------------


def answered(version: int, *records: Any, **changed: Any) -> FetchResponse:
    """A response with one partition for each of `records`."""
    by_id, has_sessions = version >= 13, version >= 7
    partitions = [
        PartitionData(
            partition_index=number,
            error_code=0 if each else 3,
            high_watermark=1 << 41,
            last_stable_offset=1 << 41,
            log_start_offset=12,
            diverging_epoch=NO_DIVERGENCE,
            current_leader=NO_LEADER,
            snapshot_id=NO_SNAPSHOT,
            records=each,
        )
        for number, each in enumerate(records)
    ]
    topic = FetchableTopicResponse(
        topic="" if by_id else "größe", topic_id=TOPIC_ID if by_id else UUID(int=0), partitions=partitions
    )
    values = {"throttle_time_ms": 3, "session_id": 5 if has_sessions else 0, "responses": [topic]}
    return FetchResponse(**(values | changed))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "records",
    [
        (),
        (b"",),
        (FileSlice(FILE, 3, 5000),),
        (FileSlice(FILE, 3, 100),),
        (b"read already", FileSlice(FILE, 0, 70), b"", FileSlice(FILE, 1, 9), b"x" * 2048, b"y" * 2049),
        (FileSlice(FILE, 0, 300, FILE.pread(300, 0)), FileSlice(FILE, 0, 5000, FILE.pread(5000, 0))),
    ],
    ids=["none", "empty", "large", "small", "several", "read"],
)
def test_responses_are_encoded_in_the_same_parts(
    codec: ModuleType, version: int, records: tuple[Any, ...]
) -> None:
    response = answered(version, *records)
    found = codec.encode(response, version, 7)
    assert found == encoded(response, version)
    slices = [part for part in found if isinstance(part, FileSlice)]
    assert [id(part) for part in slices] == [
        id(each) for each in records if isinstance(each, FileSlice) and each.data is None
    ]


@pytest.mark.parametrize(
    "unusual",
    [
        {"error_message": "why"},
        {"current_leader": LeaderIdAndEpoch(leader_id=2, leader_epoch=3)},
        {"aborted_transactions": []},
        {"records": None},
        {"records": memoryview(b"abc")},
        {"high_watermark": 1 << 63},
        {"high_watermark": None},
        {"partition_index": "0"},
    ],
    ids=["message", "leader", "aborted", "null", "view", "too large", "none", "text"],
)
def test_unusual_responses_are_left_to_the_generated_encoder(codec: ModuleType, unusual: Any) -> None:
    response = answered(16, b"abc")
    for name, value in unusual.items():
        setattr(response.responses[0].partitions[0], name, value)
    assert codec.encode(response, 16, 7) is None


def test_fields_that_a_version_lacks_are_left_to_the_generated_encoder(codec: ModuleType) -> None:
    assert codec.encode(answered(6, b"abc", session_id=5), 6, 7) is None
    response = answered(10, b"abc")
    response.responses[0].partitions[0].preferred_read_replica = 1
    assert codec.encode(response, 10, 7) is None
    assert codec.encode(answered(4, b"abc"), 3, 7) is None
    assert codec.encode(plain_request(4), 4, 7) is None


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_random_responses_are_encoded_as_by_the_generated_encoder(
    codec: ModuleType, version: int, data: st.DataObject
) -> None:
    shared = {
        "diverging_epoch": NO_DIVERGENCE,
        "current_leader": NO_LEADER,
        "snapshot_id": NO_SNAPSHOT,
        "error_message": None,
        "aborted_transactions": None,
    }

    def override(field: Field) -> st.SearchStrategy[Any] | None:
        return st.just(shared[field.name]) if field.name in shared else None

    response = data.draw(messages(FetchResponse, version, override))
    found = codec.encode(response, version, 7)
    expected = encoded(response, version)
    assert found is None or (expected is not None and join_parts(found) == join_parts(expected))


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_reads_are_encoded_as_the_response_that_has_them(
    codec: ModuleType, version: int, data: st.DataObject
) -> None:
    rows = data.draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1)))
    )
    sizes = data.draw(
        st.lists(st.sampled_from((-1, 1, 2048, 2049, 9000)), min_size=len(rows), max_size=len(rows))
    )
    session_id = data.draw(st.integers(0, 2**31 - 1)) if version >= 7 else 0
    response = FetchResponse(throttle_time_ms=0, session_id=session_id, responses=[])
    reads = []
    for (number, index, offset), size in zip(rows, sizes, strict=True):
        records = None if size < 0 else FileSlice(Content(b"r" * size), 0, size)
        if records is not None and index % 2:
            records.data = b"r" * size
        topic, topic_id = f"topic-{number}", UUID(int=number + 1) if version >= 13 else ZERO_UUID
        reads.append((topic, topic_id, index, offset, 5, records))
        known = response.responses
        if not known or (known[-1].topic, known[-1].topic_id) != (topic, topic_id):
            known.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[]))
        known[-1].partitions.append(
            PartitionData(
                partition_index=index,
                error_code=0,
                high_watermark=offset,
                last_stable_offset=offset,
                log_start_offset=5,
                diverging_epoch=NO_DIVERGENCE,
                current_leader=NO_LEADER,
                snapshot_id=NO_SNAPSHOT,
                records=b"" if records is None else records,
            )
        )
    parts = codec.encode_reads(version, 7, session_id, reads)
    assert join_parts(parts) == join_parts(encode_response(response, version, 7))


def test_reads_of_another_shape_are_refused(codec: ModuleType) -> None:
    reads: list[Any] = [[("t",)], [["t", TOPIC_ID, 0, 1, 0, None]], (), [("t", TOPIC_ID, 0, None, 0, None)]]
    for each in reads:
        with pytest.raises(TypeError):
            codec.encode_reads(16, 7, 0, each)
    assert codec.encode_reads(16, 7, 0, [("t", TOPIC_ID, 0, 1, 0, object())]) is None
    assert codec.encode_reads(17, 7, 0, []) is None


def test_nothing_is_leaked(codec: ModuleType) -> None:
    """References to shared objects come and go with the messages."""
    request = memoryview(encode(plain_request(16), 16))
    unusual = memoryview(encode(plain_request(16, cluster_id="x"), 16))
    large = FileSlice(FILE, 0, 5000)
    responses: list[ProtocolMessage] = [answered(16, large), answered(16, large, memoryview(b"x"))]

    def act() -> None:
        for body in (request, request[:-1], unusual):
            codec.decode(body, 16, 0)
        for response in responses:
            codec.encode(response, 16, 7)

    act()
    held = [large, NO_DIVERGENCE, TOPIC_ID, FetchPartition, FetchRequest, request]
    before = [sys.getrefcount(each) for each in held]
    blocks = sys.getallocatedblocks()
    for _ in range(200):
        act()
    assert [sys.getrefcount(each) for each in held] == before
    assert sys.getallocatedblocks() - blocks < 100
