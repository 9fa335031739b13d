"""The check of a batch's records, in Python and compiled: the same verdict for any bytes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import record_codec, record_validation
from holdfast_log.protocol.alike_records import ALIKE_MIN
from holdfast_log.protocol.record_codec import encode_headers, zigzag_varint
from holdfast_log.protocol.record_validation import (
    RecordsVerdict,
    find_batch_in_python,
    find_time_in_python,
    validate_in_python,
)
from holdfast_log.protocol.records import BatchBuilder

BASE = 10**12


@pytest.fixture(scope="module", params=[False, True], ids=["this CPython", "limited API"])
def compiled(request: pytest.FixtureRequest, extension: Callable[..., ModuleType]) -> ModuleType:
    return extension("_record_validation", is_limited=request.param)


def both(compiled: ModuleType, data: bytes, count: int, base: int = BASE) -> RecordsVerdict:
    """The verdict, on which Python and C must agree."""
    verdict = validate_in_python(data, count, base)
    assert RecordsVerdict._make(compiled.validate(data, count, base)) == verdict
    return verdict


def record(
    delta: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: bytes = b"\0",
    timestamp: int = 0,
    longer: int = 0,
) -> bytes:
    """One encoded record. Its length says `longer` bytes more than it has."""
    body = b"\0" + zigzag_varint(timestamp) + zigzag_varint(delta)
    for each in (key, value):
        body += zigzag_varint(-1) if each is None else zigzag_varint(len(each)) + each
    body += headers
    return zigzag_varint(len(body) + longer) + body


TEXT_KEY = encode_headers([("key", b"value"), ("other", None)])
CUT_HEADERS = "the number of its headers is cut off or has more than 32 bits"
CUT_LENGTH = "its length is cut off or has more than 32 bits"
CUT_TIMESTAMP = "its timestamp is cut off or has more than 64 bits"
CODING = "a header's key is not UTF-8"
SHORT_HEADER = "the length of a header's value is below -1"
UNSOUND = {
    "garbage": (b"\xff" * 40, 1, 0, CUT_LENGTH),
    "nothing": (b"", 1, 0, "the batch ends before this record"),
    "fewer than claimed": (record(0), 2**31 - 1, 1, "the batch ends before this record"),
    "more than claimed": (record(0) + record(1), 1, -1, "bytes follow the last record"),
    "left over": (record(0) + b"\0", 1, -1, "bytes follow the last record"),
    "negative delta": (record(-1), 1, 0, "its offset delta is not its place in the batch"),
    "gap": (record(0) + record(2), 2, 1, "its offset delta is not its place in the batch"),
    "twice": (record(0) + record(0), 2, 1, "its offset delta is not its place in the batch"),
    "too long": (record(0, longer=1), 1, 0, "it ends beyond the batch"),
    "longer than its fields": (record(0, longer=2) + b"\0\0", 1, 0, "bytes follow its last header"),
    "shorter than its fields": (record(0, longer=-1), 1, 0, CUT_HEADERS),
    "negative length": (zigzag_varint(-5) + bytes(8), 1, 0, "its length is negative"),
    "empty": (zigzag_varint(0), 1, 0, "it is empty"),
    "timestamp of 65 bits": (b"\x22\0" + b"\x80" * 9 + b"\2\0\2k\2v\0", 1, 0, CUT_TIMESTAMP),
    "varint without end": (b"\x14\0" + b"\xff" * 9, 1, 0, CUT_TIMESTAMP),
    "key of -2": (b"\x0e\0\0\0\3\2v\0", 1, 0, "the length of its key is below -1"),
    "key beyond the record": (b"\x0e\0\0\0\x7e\2v\0", 1, 0, "its key ends beyond the record"),
    "value of -2": (b"\x0e\0\0\0\2k\3\0", 1, 0, "the length of its value is below -1"),
    "value beyond the record": (b"\x0e\0\0\0\2k\x7e\0", 1, 0, "its value ends beyond the record"),
    "negative number of headers": (record(0, headers=b"\1"), 1, 0, "the number of its headers is negative"),
    "headers that are missing": (record(0, headers=b"\x7e"), 1, 0, "a header's key ends beyond the record"),
    "header without key": (record(0, headers=b"\2\1\1"), 1, 0, "a header has no key"),
    "header not in UTF-8": (record(0, headers=b"\2\2\xff\1"), 1, 0, CODING),
    "a surrogate": (record(0, headers=b"\2\6\xed\xa0\x80\1"), 1, 0, CODING),
    "header's value of -2": (record(0, headers=b"\2\2h\3"), 1, 0, SHORT_HEADER),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_record_is_named_with_the_reason(compiled: ModuleType, name: str) -> None:
    data, count, index, reason = UNSOUND[name]

    verdict = both(compiled, data, count)

    assert (verdict.record, verdict.reason) == (index, reason)


def test_sound_records_are_summed_up(compiled: ModuleType) -> None:
    data = (
        record(0, timestamp=5)
        + record(1, key=None, headers=TEXT_KEY, timestamp=-3)
        + record(2, value=None, timestamp=2)
        + record(3, key=None, timestamp=5)
    )

    assert both(compiled, data, 4) == RecordsVerdict(-1, None, BASE + 5, 0, BASE - 3, 1, 2, (1, 3))


def test_timestamps_do_not_wrap_around(compiled: ModuleType) -> None:
    verdict = both(compiled, record(0, timestamp=1), 1, 2**63 - 1)

    assert verdict.reason == "its timestamp has more than 64 bits"


def test_records_without_timestamps_have_no_largest_one(compiled: ModuleType) -> None:
    assert both(compiled, record(0), 1, -1)[2:6] == (-1, -1, -1, -1)


def test_a_limited_number_of_records_without_key_is_named(compiled: ModuleType) -> None:
    data = b"".join(record(delta, key=None) for delta in range(1500))

    verdict = both(compiled, data, 1500)

    assert (verdict.missing_keys, verdict.missing) == (1500, tuple(range(1000)))


HEADERS = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2)
RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=90),
        st.none() | st.binary(max_size=90),
        HEADERS,
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip
CHANGES = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "remove"]), st.integers(0, 10**6), st.integers(0, 255)),
    max_size=3,
)  # fmt: skip


def encoded(records: Any) -> bytes:
    return bytes(
        record_codec.encode(
            0,
            [BASE + time for time, *_ in records],
            [key for _, key, _, _ in records],
            [value for _, _, value, _ in records],
            [encode_headers(headers) for *_, headers in records],
        )
    )


def changed(data: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    result = bytearray(data)
    for what, place, byte in changes:
        at = place % (len(result) + 1)
        if what == "insert":
            result.insert(at, byte)
        elif at < len(result):
            result[at : at + 1] = bytes([byte]) if what == "set" else b""
    return bytes(result)


@given(records=RECORDS, changes=CHANGES, cut=st.integers(0, 3), more=st.sampled_from([0, 0, 0, 1, -1, 2**31]))
@settings(max_examples=120, deadline=None)
def test_both_agree_on_damaged_batches_and_what_is_sound_can_be_decoded(
    compiled: ModuleType, records: Any, changes: list[tuple[str, int, int]], cut: int, more: int
) -> None:
    data = changed(encoded(records), changes)
    data = data[: len(data) - cut]
    count = len(records) + more
    base = BASE + records[0][0]

    verdict = both(compiled, data, count, base)

    if verdict.reason is None:
        _, timestamps, keys, _, _ = record_codec.decode(data, count, count - 1, 0, base)
        assert verdict.most == max([-1, *timestamps])
        assert verdict.missing_keys == keys.count(None)


@given(data=st.binary(max_size=60), count=st.integers(-1, 9), base=st.integers(-(2**63), 2**63 - 1))
@example(data=b"\x0c\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", count=1, base=-(2**63))
@settings(max_examples=120, deadline=None)
def test_both_agree_on_random_bytes(compiled: ModuleType, data: bytes, count: int, base: int) -> None:
    both(compiled, data, count, base)


def _none_is_usual(
    data: Any,
    position: int,
    index: int,
    count: int,
    base: int,
    extremes: Any,
    missing_keys: int,
    missing: Any,
) -> tuple[int, int, int, Any]:
    return position, index, missing_keys, extremes


def assert_judged_as_one_by_one(data: bytes, count: int, base: int) -> RecordsVerdict:
    """The verdict, which must be the same where no record takes the short way."""
    verdict = validate_in_python(data, count, base)
    with (
        mock.patch.object(record_validation, "_pass_usual", _none_is_usual),
        mock.patch.object(record_validation, "pass_alike", lambda *_: None),
    ):
        assert validate_in_python(data, count, base) == verdict
    return verdict


@given(
    records=st.lists(
        st.tuples(
            st.integers(0, 200) | st.integers(-9000, 9000) | st.integers(-(2**40), 2**40),
            st.none() | st.binary(max_size=90) | st.just(b"k" * 9000),
            st.none() | st.binary(max_size=90) | st.just(b"v" * 9000),
            st.just([]) | HEADERS,
        ),
        min_size=1,
        max_size=80,
    ),
    changes=CHANGES,
    base=st.sampled_from([0, BASE, -(2**63) + 100, 2**63 - 100]),
)
@settings(max_examples=150, deadline=None)
def test_usual_records_are_judged_as_all_others(
    records: Any, changes: list[tuple[str, int, int]], base: int
) -> None:
    data = encoded(records)
    assert_judged_as_one_by_one(data, len(records), base)
    assert_judged_as_one_by_one(changed(data, changes), len(records), base)


@pytest.mark.parametrize("place", [0, 63, 64, 8190, 8191, 8192, 8193, 8299])
def test_a_usual_record_out_of_place_is_found(place: int) -> None:
    """Numbers have one byte up to 63, two bytes up to 8191, and three after that."""
    data = [record(delta, key=None, timestamp=delta % 9000) for delta in range(8300)]
    assert_judged_as_one_by_one(b"".join(data), 8300, BASE)
    assert validate_in_python(b"".join(data), 8300, BASE).reason is None

    data[place] = record(place + 1, key=None)
    verdict = assert_judged_as_one_by_one(b"".join(data), 8300, BASE)

    assert (verdict.record, verdict.missing_keys) == (place, place)
    assert verdict.reason == "its offset delta is not its place in the batch"


SHAPES = {
    "small": {},
    "without keys": {"key": None},
    "tombstones": {"value": None},
    "with nothing": {"key": None, "value": None},
    "long": {"key": b"k" * 70, "value": b"v" * 200},
    "long values": {"key": b"", "value": b"v" * 8000},
}
"""Fields of records that are all alike."""


@pytest.mark.parametrize("count", [ALIKE_MIN, 64, 64 + ALIKE_MIN, 8192])
@pytest.mark.parametrize("shape", SHAPES)
def test_records_of_one_shape_are_passed_together(shape: str, count: int) -> None:
    fields: Any = SHAPES[shape]
    count = count if shape != "long values" else min(count, 100)
    for times in ([7], [63, 0, 5, 0, 63], [8191, 64, 8191, 64, 300]):
        data = b"".join(
            record(delta, timestamp=times[delta % len(times)], **fields) for delta in range(count)
        )
        verdict = assert_judged_as_one_by_one(data, count, BASE)
        assert verdict.reason is None
        with mock.patch.object(record_validation, "_pass_usual", side_effect=AssertionError):
            assert validate_in_python(memoryview(data), count, BASE) == verdict


@pytest.mark.parametrize("base", [BASE, -1, 2**63 - 100])
@pytest.mark.parametrize(
    "fields",
    [{}, {"key": None, "timestamp": 64}, {"value": b"v" * 70, "timestamp": -1}, {"headers": b"\2\2h\1"}],
)
def test_a_byte_that_differs_in_one_of_many_alike_records_is_judged(
    compiled: ModuleType, fields: Any, base: int
) -> None:
    count = ALIKE_MIN + 1
    data = b"".join(record(delta, **fields) for delta in range(count))
    both(compiled, data, count, base)
    for place, byte in enumerate(data):
        for other in {0, 1, 2, 3, 0x7F, 0x80, 0xFF, byte ^ 1, byte ^ 2, byte ^ 0x80} - {byte}:
            changed_data = data[:place] + bytes((other,)) + data[place + 1 :]
            assert_judged_as_one_by_one(changed_data, count, base)
            both(compiled, changed_data, count, base)
    for cut in range(1, 20):
        both(compiled, data[:-cut], count, base)


@given(
    shape=st.sampled_from(sorted(SHAPES)), count=st.integers(1, 150), times=st.lists(st.integers(0, 90)),
    changes=CHANGES,
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_damage_among_alike_records_is_found(
    compiled: ModuleType, shape: str, count: int, times: list[int], changes: list[tuple[str, int, int]]
) -> None:
    fields: Any = SHAPES[shape]
    times = times or [0]
    data = b"".join(record(delta, timestamp=times[delta % len(times)], **fields) for delta in range(count))
    data = changed(data, changes)
    assert both(compiled, data, count) == assert_judged_as_one_by_one(data, count, BASE)


@given(records=RECORDS, changes=CHANGES, wanted=st.integers(-(2**40), 2**40), least=st.integers(-1, 9))
@settings(max_examples=100, deadline=None)
def test_both_find_the_same_record_by_time(
    compiled: ModuleType, records: Any, changes: list[tuple[str, int, int]], wanted: int, least: int
) -> None:
    base = BASE + records[0][0]
    most = max(BASE + time for time, *_ in records)

    def outcome(find: Callable[..., Any], data: bytes) -> Any:
        try:
            return find(data, len(records), base, BASE + wanted, most, least)
        except ValueError as error:
            return str(error)

    sound = encoded(records)
    matching = [
        (delta, BASE + time) for delta, (time, *_) in enumerate(records) if time >= wanted and delta >= least
    ]
    assert outcome(compiled.find_time, sound) == (matching[0] if matching else None)
    data = changed(sound, changes)
    assert outcome(compiled.find_time, data) == outcome(find_time_in_python, data)


@given(
    batches=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=6),
    changes=CHANGES,
    timestamp=st.integers(0, 10),
    least=st.integers(0, 20),
)
@settings(max_examples=100, deadline=None)
def test_both_find_the_same_batch_by_time(
    compiled: ModuleType,
    batches: list[tuple[int, int]],
    changes: list[tuple[str, int, int]],
    timestamp: int,
    least: int,
) -> None:
    data, expected, offset = b"", None, 0
    for time, count in batches:
        builder = BatchBuilder()
        for _ in range(count):
            builder.append(time, None, b"value")
        offset += count
        if expected is None and time >= timestamp and offset - 1 >= least:
            expected = len(data)
        data += builder.build(base_offset=offset - count)

    found = compiled.find_batch(data, timestamp, least)

    assert found == find_batch_in_python(data, timestamp, least)
    assert found == (len(data) if expected is None else expected)
    data = changed(data, changes)
    assert compiled.find_batch(data, timestamp, least) == find_batch_in_python(data, timestamp, least)
