"""The loops over records, in Python and compiled: the same values and the same errors for any input."""

from __future__ import annotations

import gc
import random
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import record_codec as pure
from holdfast_log.protocol.record_codec import encode_headers, zigzag_varint

ROOT = Path(__file__).resolve().parents[2]
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module", params=[False, True], ids=["one-cpython", "limited-api"])
def compiled(request: pytest.FixtureRequest, extension: Callable[..., ModuleType]) -> ModuleType:
    return extension("_record_codec", is_limited=request.param)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the kind and text of the error. Of a UnicodeDecodeError the kind is enough."""
    try:
        return function(*arguments)
    except UnicodeDecodeError:
        return UnicodeDecodeError
    except (ValueError, IndexError) as error:
        text = "" if isinstance(error, IndexError) else str(error)
        return IndexError if isinstance(error, IndexError) else ValueError, text


def agree(
    compiled: ModuleType, data: bytes, count: int, last: int, offset: int = 7, time: int = 10**12
) -> Any:
    """What both make of the bytes, which must be the same."""
    expected = outcome(pure.decode, data, count, last, offset, time)
    assert outcome(compiled.decode, data, count, last, offset, time) == expected
    return expected


HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=9000),
        HEADERS,
    ),
    max_size=20,
)


def columns(records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> Any:
    tails = [encode_headers(headers) for *_, headers in records]
    return (
        [timestamp for timestamp, *_ in records],
        [key for _, key, _, _ in records],
        [value for _, _, value, _ in records],
        tails if any(headers for *_, headers in records) else None,
    )


@given(records=RECORDS, prefix_size=st.sampled_from([0, 61]))
@settings(max_examples=150, deadline=None)
def test_both_encode_alike_and_decode_what_was_encoded(
    compiled: ModuleType, records: Any, prefix_size: int
) -> None:
    encoded = pure.encode(prefix_size, *columns(records))
    assert compiled.encode(prefix_size, *columns(records)) == encoded
    assert encoded[:prefix_size] == bytes(prefix_size)

    base = records[0][0] if records else 0
    decoded = agree(compiled, bytes(encoded[prefix_size:]), len(records), len(records) - 1, 5, base)

    offsets, timestamps, keys, values, headers = decoded
    assert offsets is None and timestamps == [record[0] for record in records]
    assert list(zip(keys, values, strict=True)) == [record[1:3] for record in records]
    assert headers == ([tuple(record[3]) for record in records] if any(r[3] for r in records) else None)


@given(
    data=st.binary(max_size=60), count=st.integers(-1, 9), last=st.integers(-1, 9), time=INT64, offset=INT64
)
@example(data=b"\x0c\0" + zigzag_varint(2**62) + b"\0\x01\x01\0", count=1, last=0, time=2**63 - 1, offset=0)
@settings(max_examples=400, deadline=None)
def test_both_take_any_bytes_alike(
    compiled: ModuleType, data: bytes, count: int, last: int, time: int, offset: int
) -> None:
    agree(compiled, data, count, last, offset, time)


def test_both_take_damaged_records_alike(compiled: ModuleType) -> None:
    """Bytes that are nearly right get further into the loops than bytes made of nothing."""
    rng = random.Random(20)
    seen = set()
    for _ in range(6000):
        count = rng.randrange(1, 5)
        records = [
            (rng.choice([0, 1, 2**40]), rng.choice([None, b"", b"key"]), bytes(rng.choice([0, 3, 70])),
             rng.choice([[], [], [("name", b"v")], [("n", None), ("é", b"")]]))
            for _ in range(count)
        ]  # fmt: skip
        data = pure.encode(0, *columns(records))
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.1:
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        result = agree(compiled, bytes(data), count, rng.choice([count - 1, count - 1, count + 3]))
        if isinstance(result, tuple) and len(result) == 2:
            seen.add("".join(letter for letter in result[1] if not letter.isdigit() and letter != "-"))
        else:
            seen.add(str(result) if result is UnicodeDecodeError else "fine")

    assert len(seen) >= 10, seen


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 2**64, 2**70, 2**200])
def test_numbers_that_no_record_has_end_in_an_error(compiled: ModuleType, number: int) -> None:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    record = [b"\x0e", b"\0", b"\0", b"\0", b"\x02k", b"\x02v", b"\x02", b"\x02n", b"\x02c"]
    for place in (0, 2, 3, 4, 5, 6, 7, 8):
        damaged = b"".join([*record[:place], bytes(encoded), *record[place + 1 :]]) + bytes(20)
        assert agree(compiled, damaged, 1, 0)[0] in (IndexError, ValueError)
        agree(compiled, damaged, 1, 2**31 - 1)


def test_more_records_than_there_are_bytes_cost_nothing(compiled: ModuleType) -> None:
    assert agree(compiled, bytes(70), 2**31 - 1, 2**31 - 2)[0] is IndexError


@pytest.mark.parametrize(
    "arguments",
    [
        (0, [1], [None], ["text"], None),
        (0, [1], [7], [b""], None),
        (0, ["1"], [None], [b""], None),
        (0, [1], [None], [b""], [None]),
    ],
)
def test_what_is_no_record_is_refused_by_the_compiled_one(compiled: ModuleType, arguments: Any) -> None:
    with pytest.raises(TypeError):
        compiled.encode(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (0, [1, 2], [None], [b""], None),
        (0, [1], [], [b""], None),
        (0, [1], [None], [b""], []),
        (-1, [1], [None], [b""], None),
        (0, [2**63], [None], [b""], None),
        (0, [-(2**63), 2**63 - 1], [None, None], [b"", b""], None),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_the_compiled_one(
    compiled: ModuleType, arguments: Any
) -> None:
    with pytest.raises((ValueError, OverflowError)):
        compiled.encode(*arguments)


def test_nothing_is_leaked(compiled: ModuleType) -> None:
    """References that errors and results leave behind would show as values that outlive everything."""
    value = bytes(range(100))
    data = bytes(pure.encode(0, [2**40], [value], [value], [encode_headers([("h", value)])]))
    base = sys.getrefcount(value)
    for size in range(len(data)):
        outcome(compiled.decode, data[:size], 1, 0, 0, 0)
        compiled.encode(0, [1], [value], [value], None)
    assert sys.getrefcount(value) == base


def test_no_timestamp_is_kept_of_a_batch_or_of_a_damaged_one(compiled: ModuleType) -> None:
    """Each batch makes new numbers of its timestamps, so only memory that is not given back shows that one of
    them is kept."""
    times = [2**40, 2**40 + 1, 2**40 + 1]
    data = bytes(pure.encode(0, times, [b"key"] * 3, [b"value"] * 3, None))
    pieces = [data[:size] for size in range(len(data) + 1)]

    def blocks_after(rounds: int) -> int:
        for piece in pieces * rounds:
            outcome(compiled.decode, piece, 3, 2, 0, 2**40)
        gc.collect()
        return sys.getallocatedblocks()

    assert compiled.decode(data, 3, 2, 0, 2**40)[1] == times
    before = blocks_after(10)
    assert blocks_after(200) - before < 100


Nine = namedtuple("Nine", "topic partition offset timestamp key value headers timestamp_type leader_epoch")


@given(records=RECORDS, has_headers=st.booleans(), first=st.integers(0, 2**63 - 1), is_sparse=st.booleans())
def test_both_make_the_same_rows(
    compiled: ModuleType, records: Any, has_headers: bool, first: int, is_sparse: bool
) -> None:
    timestamps, keys, values, headers = (
        (list(column) for column in zip(*records, strict=True)) if records else ([], [], [], [])
    )
    offsets = [first + 2 * index for index in range(len(records))] if is_sparse else first
    arguments = (Nine, "topic", 3, offsets, timestamps, keys, values, headers if has_headers else None, 1, 7)
    made = compiled.rows(*arguments)
    assert made == pure.rows(*arguments)
    assert all(type(each) is Nine for each in made)
    if made:
        assert made[-1].offset == first + (len(made) - 1) * (2 if is_sparse else 1)
        assert made[-1][3:] == (
            timestamps[-1],
            keys[-1],
            values[-1],
            headers[-1] if has_headers else (),
            1,
            7,
        )


@pytest.mark.parametrize(
    "columns",
    [
        ([1], [1, 2], [b"", b""], [b"", b""], None),
        (1, [1], [b"", b""], [b"", b""], None),
        (1, [1, 2], [b""], [b"", b""], None),
        (1, [1, 2], [b"", b""], [b"", b""], [()]),
    ],
)
def test_rows_need_columns_of_one_length(compiled: ModuleType, columns: Any) -> None:
    for codec in (compiled, pure):
        with pytest.raises(ValueError, match="columns of different lengths"):
            codec.rows(Nine, "topic", 0, *columns, 0, -1)


def test_rows_leave_nothing(compiled: ModuleType) -> None:
    values: list[Any] = [bytes(300) for _ in range(50)]
    before = sys.getrefcount(values[0])
    for _ in range(20):
        compiled.rows(Nine, "topic", 0, 1 << 40, [0] * 50, values, values, None, 0, -1)
    after = sys.getrefcount(values[0])
    assert after == before
