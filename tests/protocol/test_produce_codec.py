"""The usual produce request, compiled and in Python: equal messages, headers and bytes for any input.

Compiled functions may always say None, which leaves a request to Python. So there are two kinds of tests:
whatever they do not leave is as Python has it, and they do not leave the usual request.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import batches, compiled, plain_produce
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.frames import join_parts, parts_size
from holdfast_log.protocol.headers import with_size
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from holdfast_log.protocol.record_codec import encode as encode_records
from holdfast_log.protocol.record_codec import zigzag_varint
from holdfast_log.protocol.schema import InvalidMessage, MalformedMessage, decode_from, encode, encode_parts
from tests.models.batches import batch
from tests.protocol.strategies import messages

VERSIONS = range(3, 12)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=12) | st.sampled_from(["x" * 126, "x" * 127, "é" * 9000])
NOW_MS = 1_700_000_000_000
FLEXIBLE_FROM = 9


@pytest.fixture(scope="module")
def codec(extension: Callable[[str], ModuleType]) -> ModuleType:
    return extension("_produce_codec")


def test_the_tables_have_the_compiled_functions_unless_python_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_PURE_PYTHON", "1")
    assert compiled.extension("_produce_codec") is None

    installed = pytest.importorskip("holdfast_log.protocol._produce_codec")
    monkeypatch.delenv("HOLDFAST_PURE_PYTHON")
    assert compiled.extension("_produce_codec") is installed


# Requests ---------------------------------------------------------------------------------------------


def usual_requests() -> st.SearchStrategy[ProduceRequest]:
    records = st.none() | st.binary(max_size=200) | st.just(b"r" * 20_000)
    data = st.builds(PartitionProduceData, index=INT32, records=records)
    topic = st.builds(TopicProduceData, name=NAMES, partition_data=st.lists(data, max_size=4))
    return st.builds(
        ProduceRequest,
        transactional_id=st.none(),
        acks=st.integers(-(2**15), 2**15 - 1),
        timeout_ms=INT32,
        topic_data=st.lists(topic, max_size=3),
    )


def decoded(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    try:
        return decode_from(ProduceRequest, version, frame, position)[0]
    except MalformedMessage:
        return None


@given(st.sampled_from(VERSIONS), usual_requests(), st.binary(max_size=9), st.binary(max_size=5))
@settings(deadline=None)
def test_the_usual_request_is_decoded_as_in_python(
    codec: ModuleType, version: int, request: ProduceRequest, before: bytes, after: bytes
) -> None:
    try:
        body = encode(request, version)
    except InvalidMessage:
        return  # A name that is too long.
    frame = memoryview(bytearray(before + body + after))

    found = codec.decode(frame, version, len(before))

    assert found == decoded(version, frame, len(before)) == request


@given(st.data(), st.sampled_from(range(12)))
@settings(deadline=None)
def test_any_other_request_is_decoded_as_in_python_or_left_to_it(
    codec: ModuleType, data: st.DataObject, version: int
) -> None:
    frame = memoryview(bytearray(encode(data.draw(messages(ProduceRequest, version)), version)))

    found = codec.decode(frame, version, 0)

    assert found is None or found == decoded(version, frame, 0)


def test_damaged_requests_are_decoded_as_in_python_or_left_to_it(codec: ModuleType) -> None:
    rng = random.Random(1)
    outcomes = {True: 0, False: 0}
    for version in VERSIONS:
        usual = request_of(2, topics=2)
        body = encode(usual, version)
        for _ in range(400):
            frame = memoryview(damaged(rng, body))
            found = codec.decode(frame, version, 0)
            assert found is None or found == decoded(version, frame, 0)
            outcomes[found is None] += 1
        for size in range(len(body)):
            assert codec.decode(memoryview(body[:size]), version, 0) is None
    assert min(outcomes.values()) > 200


def request_of(partitions: int, topics: int = 1) -> ProduceRequest:
    rows = [PartitionProduceData(index=index, records=batch(b"value")) for index in range(partitions)]
    return ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=f"topic-{each}", partition_data=rows) for each in range(topics)],
    )


def damaged(rng: random.Random, sample: bytes) -> bytearray:
    found = bytearray(sample)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[position] ^= 1 << rng.randrange(8)
            case 1:
                found[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del found[position]
            case _:
                found.insert(position, rng.randrange(256))
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_views_of_the_frame(codec: ModuleType, version: int) -> None:
    frame = bytearray(encode(request_of(1), version))

    records = codec.decode(memoryview(frame), version, 0).topic_data[0].partition_data[0].records

    records[0] ^= 0xFF
    assert bytes(records) in bytes(frame)


def test_what_is_unusual_is_left_to_python(codec: ModuleType) -> None:
    def left(request: ProduceRequest, version: int = 11) -> bool:
        return codec.decode(memoryview(encode(request, version)), version, 0) is None

    condition = request_of(1)
    condition.topic_data[0].partition_data[0].expected_offset = 7
    fence = request_of(1)
    fence.topic_data[0].partition_data[0].owner_token = 7
    transaction = request_of(1)
    transaction.transactional_id = "t"

    assert left(condition) and left(fence) and left(transaction)
    assert left(request_of(1), 2), "message formats before batches"
    assert left(request_of(64)) and not left(request_of(63)), "65 elements"
    usual = memoryview(encode(request_of(1), 11))
    assert codec.decode(usual, 11, len(usual) + 1) is codec.decode(usual, 11, -1) is None
    assert codec.decode(usual, 13, 0) is codec.decode(usual, -1, 0) is None


# Responses --------------------------------------------------------------------------------------------


def usual_responses() -> st.SearchStrategy[ProduceResponse]:
    partition = st.builds(
        PartitionProduceResponse,
        index=INT32,
        error_code=st.just(0),
        base_offset=INT64,
        log_append_time_ms=INT64,
        log_start_offset=INT64,
    )
    topic = st.builds(
        TopicProduceResponse,
        name=st.text(max_size=20) | st.just("x" * 127),
        partition_responses=st.lists(partition, max_size=4),
    )
    return st.builds(ProduceResponse, responses=st.lists(topic, max_size=3), throttle_time_ms=INT32)


def generic_frame(response: ProduceResponse, version: int, correlation_id: int) -> bytes | None:
    header = struct.pack(">i", correlation_id) + (b"\0" if version >= FLEXIBLE_FROM else b"")
    try:
        return join_parts(with_size(encode_parts(response, version, header)))
    except InvalidMessage:
        return None


@given(st.sampled_from(VERSIONS), usual_responses(), INT32)
@settings(deadline=None)
def test_the_usual_response_is_encoded_as_in_python(
    codec: ModuleType, version: int, response: ProduceResponse, correlation_id: int
) -> None:
    (frame,) = codec.encode(response, version, correlation_id)

    assert frame == generic_frame(response, version, correlation_id)


@given(st.data(), st.sampled_from(range(12)), INT32)
@settings(deadline=None)
def test_any_other_response_is_encoded_as_in_python_or_left_to_it(
    codec: ModuleType, data: st.DataObject, version: int, correlation_id: int
) -> None:
    response = data.draw(messages(ProduceResponse, version))

    parts = codec.encode(response, version, correlation_id)

    assert parts is None or join_parts(parts) == generic_frame(response, version, correlation_id)


def response_of(partitions: int = 1, name: str = "t") -> ProduceResponse:
    return plain_produce.acknowledgement_in_python([(name, each, 7, -1, 0) for each in range(partitions)])


def test_a_large_response_is_one_part(codec: ModuleType) -> None:
    response = response_of(5000)

    parts = codec.encode(response, 11, 1)

    assert len(parts) == 1 and parts_size(parts) > 100_000
    assert parts[0] == generic_frame(response, 11, 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("error_code", 3, id="an error"),
        pytest.param("error_message", "why", id="a message"),
        pytest.param("record_errors", [None], id="errors of records"),
        pytest.param("current_leader", LeaderIdAndEpoch(leader_id=1, leader_epoch=2), id="a leader"),
        pytest.param("next_offset", 7, id="the end of the log"),
        pytest.param("index", 2**31, id="a partition beyond 32 bits"),
        pytest.param("index", "0", id="a partition that is no number"),
        pytest.param("base_offset", 2**63, id="an offset beyond 64 bits"),
        pytest.param("base_offset", None, id="no offset"),
    ],
)
def test_an_unusual_response_is_left_to_python(codec: ModuleType, field: str, value: Any) -> None:
    response = response_of()
    setattr(response.responses[0].partition_responses[0], field, value)

    assert codec.encode(response, 11, 1) is None


def test_a_response_that_is_no_produce_response_is_left_to_python(codec: ModuleType) -> None:
    unset = ProduceResponse(responses=[TopicProduceResponse.__new__(TopicProduceResponse)])

    assert codec.encode(object(), 11, 1) is codec.encode(unset, 11, 1) is None
    assert codec.encode(response_of(), 2, 1) is codec.encode(response_of(), 13, 1) is None
    assert codec.encode(response_of(), 11, 2**31) is None
    assert codec.encode(response_of(name="é" * 20_000), 11, 1) is None
    assert codec.encode(response_of(name="\ud800"), 11, 1) is None


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), INT32, INT64, INT64, INT64), max_size=6))
def test_an_acknowledgement_is_the_same_as_in_python(
    codec: ModuleType, rows: list[plain_produce.SuccessfulAppend]
) -> None:
    assert codec.acknowledgement(rows) == plain_produce.acknowledgement_in_python(rows)


# Batches ----------------------------------------------------------------------------------------------

_FIELDS = struct.Struct(">hiqqqhii")
_FIELDS_AT = 21


SMALLEST = b"".join(b"\x0c\0\0" + zigzag_varint(delta) + b"\1\1\0" for delta in range(3))
"""Three records without key, value and headers."""
RECORDS = bytes(encode_records(0, [NOW_MS] * 3, [None, b"k", b""], [b"value", None, b"other"], None))


def plain_batch(payload: bytes = RECORDS, **fields: int) -> bytearray:
    values = {
        "attributes": 0,
        "record_count": 3,
        "last_offset_delta": 2,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS,
    }
    found = bytearray(HEADER_SIZE) + payload
    batches.write_header(found, **(values | fields))
    return found


def checked(
    codec: ModuleType,
    records: bytes | bytearray,
    size_max: int = 1 << 20,
    limits_ms: tuple[int, int] = (1, 1),
) -> BatchHeader | None:
    """The header, or None, as compiled and in Python, which must be the same."""
    view = memoryview(records)
    found: BatchHeader | None = codec.plain_header(view, size_max, NOW_MS, *limits_ms)
    assert found == plain_produce.plain_header_in_python(view, size_max, NOW_MS, *limits_ms)
    assert found is None or type(found) is BatchHeader
    return found


_NUMBERS_NEAR = st.sampled_from([-(2**15), -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 0x4000, 2**15 - 1])
_TIMES = INT64 | st.integers(NOW_MS - 3, NOW_MS + 3) | st.sampled_from([-1, 0, -(2**63), 2**63 - 1])
_LIMITS_MS = st.sampled_from([0, 1, 2, 2**63 - 1])


@given(
    _NUMBERS_NEAR,
    _NUMBERS_NEAR | INT32,
    _NUMBERS_NEAR | INT32,
    _TIMES,
    _TIMES,
    _NUMBERS_NEAR | INT64,
    _NUMBERS_NEAR,
    _NUMBERS_NEAR | INT32,
    st.tuples(_LIMITS_MS, _LIMITS_MS),
)
@settings(max_examples=400, deadline=None)
def test_every_header_is_judged_as_in_python(
    codec: ModuleType,
    attributes: int,
    last_offset_delta: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    limits_ms: tuple[int, int],
) -> None:
    records = plain_batch(
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        record_count=record_count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )

    checked(codec, records, limits_ms=limits_ms)


@given(INT32 | st.integers(0, 8), st.integers(0, 4), _TIMES, _TIMES, st.tuples(_LIMITS_MS, _LIMITS_MS))
@settings(deadline=None)
def test_a_fitting_header_is_judged_by_its_times_as_in_python(
    codec: ModuleType,
    count: int,
    compression: int,
    base_timestamp: int,
    max_timestamp: int,
    limits_ms: tuple[int, int],
) -> None:
    count = max(min(count, 2**31 - 1), -(2**31) + 1)
    records = plain_batch(
        attributes=compression,
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )

    checked(codec, records, limits_ms=limits_ms)


def test_damaged_batches_are_judged_as_in_python(codec: ModuleType) -> None:
    rng = random.Random(2)
    sound = plain_batch()
    outcomes = {True: 0, False: 0}
    for _ in range(3000):
        records = damaged(rng, bytes(sound))
        if rng.random() < 0.7 and len(records) > HEADER_SIZE:
            struct.pack_into(">I", records, 17, crc32c(memoryview(records)[_FIELDS_AT:]))
        outcomes[checked(codec, records) is None] += 1
    assert min(outcomes.values()) > 100
    for size in range(len(sound)):
        assert checked(codec, sound[:size]) is None


def test_a_plain_batch_is_accepted_and_its_neighbours_are_not(codec: ModuleType) -> None:
    records = plain_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert checked(codec, records, size_max=len(records)) == batches.read_header(records)
    assert checked(codec, records, size_max=len(records) - 1) is None
    assert checked(codec, records + records) is None
    assert checked(codec, records + b"\0") is None
    assert checked(codec, plain_batch(producer_id=7, producer_epoch=0, base_sequence=-1)) is None
    for mark in (0x08, 0x10, 0x20, 0x40, 0x4000):
        assert checked(codec, plain_batch(attributes=mark)) is None
    assert checked(codec, plain_batch(SMALLEST)) is not None
    assert checked(codec, plain_batch(SMALLEST[:-1])) is None
    assert checked(codec, plain_batch(SMALLEST[:-1], attributes=4)) is not None
    for payload in (SMALLEST + b"\0", RECORDS[:-1], RECORDS[:3] + b"\x02" + RECORDS[4:], b"r" * 40):
        assert checked(codec, plain_batch(payload)) is None
    for time in (NOW_MS - 1, NOW_MS + 1):
        assert checked(codec, plain_batch(max_timestamp=time)) is None, "not the largest of its records"


@given(st.integers(0, 20), INT64, INT32)
def test_an_offset_is_assigned_as_in_python(
    codec: ModuleType, position: int, base_offset: int, leader_epoch: int
) -> None:
    one, other = bytearray(range(80)), bytearray(range(80))

    codec.assign(memoryview(one), position, base_offset, leader_epoch)
    batches.assign(other, position, base_offset, leader_epoch)

    assert one == other


def test_nothing_is_written_outside_a_buffer(codec: ModuleType) -> None:
    for position in (-1, 5, 2**62):
        with pytest.raises(ValueError):
            codec.assign(bytearray(20), position, 1, 1)
    with pytest.raises(ValueError):
        codec.assign(bytearray(20), 0, 1, 2**31)
    with pytest.raises(OverflowError):
        codec.assign(bytearray(20), 0, 2**63, 1)
    with pytest.raises(BufferError):
        codec.assign(b"0" * 20, 0, 1, 1)
    codec.assign(bytearray(20), 4, 1, 1)


# Memory -----------------------------------------------------------------------------------------------


def test_nothing_is_kept_of_requests_that_are_done_or_left(codec: ModuleType) -> None:
    request = request_of(3)
    frames = [memoryview(bytearray(encode(request, version))) for version in (8, 11, 12)]
    sound, damaged_batch = memoryview(plain_batch()), memoryview(plain_batch()[:-1] + b"x")
    response, refused = response_of(), response_of()
    refused.responses[0].partition_responses[0].error_code = 3

    def act() -> None:
        for frame, version in zip(frames, (8, 11, 12), strict=True):
            codec.decode(frame, version, 0)
            for size in range(0, len(frame), 7):
                codec.decode(frame[:size], version, 0)
        for records in (sound, damaged_batch):
            codec.plain_header(records, 1 << 20, NOW_MS, 1, 1)
        for each in (response, refused):
            codec.encode(each, 11, 1)
        codec.acknowledgement([("a", 1, 10**12, -1, 0), ("b", 1, 10**12, -1, 0)])

    act()
    tracemalloc.start()
    try:
        act()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            act()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 2000
