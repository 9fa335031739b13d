"""The compiled loops over keys and those in Python give equal hashes, partitions and errors."""

from __future__ import annotations

import sys
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.protocol import key_hash_loop

compiled = pytest.importorskip(
    "holdfast_log.protocol._key_hash", reason="protocol/_key_hash.c was not compiled"
)
LOOPS = [pytest.param(key_hash_loop, id="python"), pytest.param(compiled, id="compiled")]


def column(keys: list[bytes | None]) -> tuple[bytes, bytes, bytes]:
    """The buffers of an Arrow column of keys: ends, data and valid bits."""
    ends = array("i", [0])
    valid = bytearray(len(keys) // 8 + 1)
    for number, key in enumerate(keys):
        ends.append(ends[-1] + len(key or b""))
        valid[number >> 3] |= (key is not None) << (number & 7)
    return ends.tobytes(), b"".join(key or b"" for key in keys), bytes(valid)


@given(st.binary(max_size=70))
def test_the_compiled_hash_equals_the_one_in_python(key: bytes) -> None:
    assert compiled.murmur2(key) == key_hash_loop.murmur2(key)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_name_has_the_hash_that_java_gives_it(loop: ModuleType) -> None:
    known = {"": 0, "a": 97, "hello": 99_162_322, "\U0001f600": 1_772_899, "polygenelubricants": 0x80000000}
    assert {text: loop.java_hash(text) for text in known} == known


@given(st.text(max_size=70) | st.text("\ud800\udfffa\U0001f600", max_size=9), st.integers(1, 900))
def test_the_compiled_hash_of_a_name_equals_the_one_in_python(text: str, times: int) -> None:
    for each in (text, text * times):
        assert compiled.java_hash(each) == key_hash_loop.java_hash(each)


@given(
    st.lists(st.none() | st.binary(max_size=20), max_size=40),
    st.integers(0, 40),
    st.integers(1, 500),
)
def test_a_slice_of_a_column_gets_the_partition_of_each_key(
    keys: list[bytes | None], start: int, partitions: int
) -> None:
    start = min(start, len(keys))
    wanted = [
        7 if key is None else (key_hash_loop.murmur2(key) & 0x7FFFFFFF) % partitions for key in keys[start:]
    ]
    arguments = *column(keys), start, len(keys) - start, partitions, 7

    for loop in (key_hash_loop, compiled):
        assert list(array("i", loop.places(*arguments))) == wanted


@pytest.mark.parametrize("loop", LOOPS)
def test_without_valid_bits_every_row_has_a_key(loop: ModuleType) -> None:
    ends, data, _ = column([b"a", b"", b"abc"])

    found = array("i", loop.places(ends, data, None, 0, 3, 1_000_000, -1))

    assert list(found) == [
        (key_hash_loop.murmur2(key) & 0x7FFFFFFF) % 1_000_000 for key in (b"a", b"", b"abc")
    ]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("ends", "valid", "start", "rows", "partitions"),
    [
        pytest.param([0, 1], None, 0, 2, 3, id="too few ends"),
        pytest.param([0, 1, 2], None, 1, 2, 3, id="too few ends behind the start"),
        pytest.param([0, 1, 2], b"", 0, 2, 3, id="too few valid bits"),
        pytest.param([0, 9], None, 0, 1, 3, id="a key beyond the data"),
        pytest.param([2, 1], None, 0, 1, 3, id="a key that ends before it begins"),
        pytest.param([-1, 1], None, 0, 1, 3, id="a key before the data"),
        pytest.param([0, 1], None, -1, 1, 3, id="a negative start"),
        pytest.param([0, 1], None, 0, -1, 3, id="a negative number of rows"),
        pytest.param([0, 1], None, sys.maxsize, 1, 3, id="a start that overflows"),
        pytest.param([0, 1], None, 0, 1, 0, id="no partition"),
    ],
)
def test_buffers_that_are_too_short_are_refused(
    loop: ModuleType, ends: list[int], valid: bytes | None, start: int, rows: int, partitions: int
) -> None:
    with pytest.raises(ValueError, match="column"):
        loop.places(array("i", ends).tobytes(), b"abc", valid, start, rows, partitions, 0)
