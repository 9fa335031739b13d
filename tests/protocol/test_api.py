"""Frames: headers around requests and responses, their sizes, and what strangers send."""

from __future__ import annotations

import struct

import pytest

from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import (
    RequestHeader,
    decode_correlation_id,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from holdfast_log.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.schema import MalformedMessage, decode_from

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def frame_of(parts: list) -> bytes:  # type: ignore[type-arg]
    """The frame without its size, which must be right."""
    whole = join_parts(parts)
    (size,) = struct.unpack_from(">i", whole)
    assert size == len(whole) - 4
    return whole[4:]


def test_a_request_with_a_version_1_header() -> None:
    frame = frame_of(encode_request(HEARTBEAT, 3, 99, "me"))
    assert frame.startswith(b"\x00\x0c\x00\x03\x00\x00\x00\x63\x00\x02me\x00\x01g")
    header, body = decode_request_header(frame)
    assert header == RequestHeader(api_key=12, api_version=3, correlation_id=99, client_id="me")
    assert decode_from(HeartbeatRequest, 3, frame, body) == (HEARTBEAT, len(frame))


def test_a_request_with_a_flexible_header_keeps_the_old_form_of_the_client_id() -> None:
    frame = frame_of(encode_request(HEARTBEAT, 4, 99, "me"))
    assert frame.startswith(b"\x00\x0c\x00\x04\x00\x00\x00\x63\x00\x02me\x00\x02g")
    header, body = decode_request_header(frame)
    assert header.client_id == "me"
    assert decode_from(HeartbeatRequest, 4, frame, body) == (HEARTBEAT, len(frame))


def test_a_client_may_have_no_id() -> None:
    for version in (3, 4):
        header, _body = decode_request_header(frame_of(encode_request(HEARTBEAT, version, 1)))
        assert header.client_id is None


def test_tagged_fields_in_the_request_header_are_skipped() -> None:
    tagged = b"\x00\x0c\x00\x04\x00\x00\x00\x63\xff\xff\x02\x00\x01x\x63\x02yzbody"
    header, body = decode_request_header(tagged)
    assert header.correlation_id == 99
    assert tagged[body:] == b"body"


def test_the_header_of_an_unknown_api_or_version_can_still_be_read() -> None:
    for key, version in ((9999, 0), (18, 77), (12, -1)):
        header, _body = decode_request_header(struct.pack(">hhih", key, version, 5, -1) + b"whatever")
        assert (header.api_key, header.api_version, header.correlation_id) == (key, version, 5)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\x0c\x00\x04\x00", id="no correlation id"),
        pytest.param(b"\x00\x0c\x00\x04\x00\x00\x00\x63\x00\x05me", id="client id cut short"),
        pytest.param(b"\x00\x0c\x00\x04\x00\x00\x00\x63\x00\x01m", id="no tagged fields"),
        pytest.param(b"\x00\x0c\x00\x03\x00\x00\x00\x63\x00\x01\xff", id="no utf-8"),
    ],
)
def test_a_broken_request_header_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request_header(frame)


@pytest.mark.parametrize(("version", "header_size"), [(3, 4), (4, 5)])
def test_a_response_comes_back_as_the_class_that_the_request_names(version: int, header_size: int) -> None:
    response = HeartbeatResponse(error_code=27, throttle_time_ms=5)
    frame = frame_of(encode_response(response, version, 1234))
    assert decode_correlation_id(frame) == 1234
    assert decode_response(HeartbeatRequest, version, frame) == response
    assert frame[header_size:] == b"\x00\x00\x00\x05\x00\x1b" + b"\x00" * (version == 4)


def test_tagged_fields_in_the_response_header_are_skipped() -> None:
    frame = b"\x00\x00\x00\x01\x01\x05\x02ab\x00\x00\x00\x05\x00\x1b\x00"
    assert decode_response(HeartbeatRequest, 4, frame).error_code == 27


def test_a_broken_response_is_malformed() -> None:
    for frame in (b"", b"\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x01"):
        with pytest.raises(MalformedMessage):
            decode_response(HeartbeatRequest, 4, frame)
    with pytest.raises(MalformedMessage):
        decode_correlation_id(b"\x00")


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    response = ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    frame = frame_of(encode_response(response, 3, 7))
    assert frame[:7] == b"\x00\x00\x00\x07\x00\x00\x02"
    assert decode_response(ApiVersionsRequest, 3, frame) == response


def test_large_records_leave_in_a_part_of_their_own() -> None:
    records = memoryview(bytes(100_000))
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
        ],
    )
    parts = encode_request(request, 9, 1, "me")
    assert any(part is records for part in parts)
    assert len(frame_of(parts)) > 100_000


def test_advertised_versions_can_differ_from_those_that_are_spoken() -> None:
    assert (APIS[0].advertised.first, APIS[0].max_version) == (0, 12)
    assert (APIS[24].advertised.last, APIS[24].max_version) == (3, 5)
    assert (APIS[26].sent.last, APIS[26].last_without_transactions_2(5)) == (5, 4)
    internal = [key for key, api in APIS.items() if api.internal]
    assert internal == [4, 5, 6, 7, 56, 67, 93, 30027, 30030, 30031]
