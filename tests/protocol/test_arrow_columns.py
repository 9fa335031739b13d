"""The loop that fills Arrow columns, in Python and compiled: the same buffers and errors for any input."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import arrow_columns, arrow_columns_loop, record_codec
from holdfast_log.protocol.arrow_columns import ArrowColumns, BinaryParts, ColumnParts
from holdfast_log.protocol.batches import read_header
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.record_codec import encode_headers, zigzag_varint
from holdfast_log.protocol.records import records_of
from tests.models.batches import compacted_batch, encoded, encoded_record

INT64 = st.integers(-(2**63), 2**63 - 1)
MANY = 2**31 - 1
EVERY = (-(2**63), 2**63 - 1)
CREATE_TIME = (0, 0)
ITEMS = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.text(max_size=5), ITEMS), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-(2**40), 2**40), ITEMS, ITEMS, HEADERS), max_size=20
)
"""Distance from the offset before, timestamp delta, key, value and headers of each record."""

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module")
def compiled(extension: Callable[[str], ModuleType]) -> ModuleType:
    return extension("_arrow_columns")


def sparse(records: Any) -> tuple[bytes, int, int]:
    """The records encoded, their number, and the last offset delta."""
    delta, parts = -1, []
    for distance, time, key, value, headers in records:
        delta += distance
        parts.append(encoded_record(delta, time, key, value, headers))
    return b"".join(parts), len(records), delta


def results(
    module: ModuleType, limits: tuple[bool, int, int], *batch: Any
) -> tuple[list[Any], type[Exception] | None, str]:
    """The columns of a batch, each time that they were full and at the end; the error's kind and text."""
    buffers = module.ColumnBuffers(*limits)
    taken = []
    try:
        rest = buffers.add(*batch)
        while rest is not None:
            taken.append(copied(buffers.take()))
            rest = buffers.add(*batch, rest)
    except UnicodeDecodeError as error:
        return [*taken, copied(buffers.take())], UnicodeDecodeError, str(error)
    except IndexError:
        return [*taken, copied(buffers.take())], IndexError, ""
    except (ValueError, OverflowError) as error:
        return [*taken, copied(buffers.take())], type(error), str(error)
    count, last = len(buffers), copied(buffers.take())
    assert count == last[0]
    return [*taken, last], None, ""


def copied(parts: Any) -> Any:
    """Columns with the contents of their buffers."""
    if isinstance(parts, tuple):
        return tuple(copied(part) for part in parts)
    return parts if parts is None or isinstance(parts, int) else bytes(parts)


def agree(
    compiled: ModuleType, limits: tuple[bool, int, int], *batch: Any
) -> tuple[list[Any], type[Exception] | None, str]:
    """What both make of a batch, which must be the same."""
    expected = results(arrow_columns_loop, limits, *batch)
    assert results(compiled, limits, *batch) == expected
    return expected


# A reader of the columns that shares nothing with the loops -------------------------------------------------


def rows_in(parts: ColumnParts) -> list[Row]:
    count, keys, values, offsets, timestamps, kinds, headers = parts
    lists: list[list[tuple[str, bytes | None]]] = [[]] * count
    if headers is not None:
        nulls, validity, ends, header_count, name_ends, names, contents = headers
        pairs = list(
            zip(
                [bytes(name).decode() for name in cut(names, name_ends)],
                items_in(contents, header_count),
                strict=True,
            )
        )
        borders = struct.unpack(f"={count + 1}i", ends)
        lists = [pairs[low:high] for low, high in pairwise(borders)]
        assert [bool(each) for each in lists] == list(bits(validity, count))
        assert nulls == sum(not each for each in lists)
    return list(
        zip(
            struct.unpack(f"={count}q", offsets),
            struct.unpack(f"={count}q", timestamps),
            struct.unpack(f"={count}i", kinds),
            items_in(keys, count),
            items_in(values, count),
            lists,
            strict=True,
        )
    )


def items_in(parts: BinaryParts, count: int) -> list[bytes | None]:
    nulls, validity, ends, data = parts
    pieces = cut(data, ends)
    assert len(pieces) == count
    items = [piece if valid else None for piece, valid in zip(pieces, bits(validity, count), strict=True)]
    assert nulls == items.count(None)
    return items


def cut(data: Any, ends: Any) -> list[bytes]:
    borders = struct.unpack(f"={len(ends) // 4}i", ends)
    assert borders[0] == 0 and borders[-1] == len(data)
    return [bytes(data[low:high]) for low, high in pairwise(borders)]


def bits(validity: Any, count: int) -> Iterator[bool]:
    assert len(validity) == (count + 7) // 8
    assert int.from_bytes(validity, "little") >> count == 0
    return (bool(validity[index // 8] >> index % 8 & 1) for index in range(count))


# Sound batches ----------------------------------------------------------------------------------------------


@given(
    records=RECORDS,
    base=st.integers(0, 2**62),
    gap=st.integers(0, 2),
    cuts=st.tuples(st.integers(-2, 70), st.integers(-2, 70)),
    has_headers=st.booleans(),
    append_time=st.none() | st.integers(0, 2**50),
)
@settings(max_examples=300, deadline=None)
def test_both_give_every_wanted_record_once(
    compiled: ModuleType,
    records: Any,
    base: int,
    gap: int,
    cuts: tuple[int, int],
    has_headers: bool,
    append_time: int | None,
) -> None:
    data, count, last = sparse(records)
    start, end = base + cuts[0], base + cuts[1]
    kind = (0, -7) if append_time is None else (1, append_time)
    limits = (has_headers, MANY, MANY)

    taken, error, _ = agree(compiled, limits, data, count, last + gap, base, 1000, *kind, start, end)

    assert error is None
    expected, offset = [], base - 1
    for distance, delta, key, value, headers in records:
        offset += distance
        time = 1000 + delta if append_time is None else append_time
        if start <= offset < end:
            expected.append((offset, 1000 * time, kind[0], key, value, headers if has_headers else []))
    assert [row for parts in taken for row in rows_in(parts)] == expected


def weight(row: Row) -> int:
    _, _, _, key, value, headers = row
    pairs = sum(len(name.encode()) + len(content or b"") + 8 for name, content in headers)
    return len(key or b"") + len(value or b"") + pairs


@given(
    batches=st.lists(RECORDS, min_size=1, max_size=3),
    row_limit=st.integers(1, 8),
    byte_limit=st.integers(1, 500),
    has_headers=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_both_hold_the_limits_and_fill_them(
    compiled: ModuleType, batches: Any, row_limit: int, byte_limit: int, has_headers: bool
) -> None:
    limits = (has_headers, row_limit, byte_limit)
    of_both: list[list[Any]] = []
    for module in (arrow_columns_loop, compiled):
        buffers, taken, base = module.ColumnBuffers(*limits), [], 0
        for records in batches:
            data, count, last = sparse(records)
            batch = (data, count, last, base, 0, *CREATE_TIME, *EVERY)
            rest = buffers.add(*batch)
            while rest is not None:
                taken.append(copied(buffers.take()))
                rest = buffers.add(*batch, rest)
            base += last + 1
        of_both.append([*taken, copied(buffers.take())])

    assert of_both[0] == of_both[1]
    pieces = [rows_in(parts) for parts in of_both[1]]
    for piece, following in pairwise(pieces):
        room = byte_limit - sum(map(weight, piece))
        assert len(piece) == 1 or (len(piece) <= row_limit and room >= 0)
        assert len(piece) == row_limit or weight(following[0]) > room
    expected = [record[2:] for records in batches for record in records]
    found = [(key, value, headers) for piece in pieces for *_, key, value, headers in piece]
    assert found == [(key, value, headers if has_headers else []) for key, value, headers in expected]


# Damaged batches --------------------------------------------------------------------------------------------


def agree_with_the_codec(
    compiled: ModuleType, data: bytes, count: int, last: int, base: int, time: int
) -> Any:
    """What all make of the bytes. A batch is damaged for the loops exactly if it is for the codec."""
    batch = (data, count, last, base, time, *CREATE_TIME)
    taken, kind, text = agree(compiled, (True, MANY, MANY), *batch, *EVERY)
    if base + last >= 2**63:
        assert "impossible" in text
        return kind, text
    try:
        decoded = record_codec.decode(data, count, last, base, time)
    except IndexError:
        assert kind is IndexError
    except ValueError as error:
        assert (kind, text) == (type(error), str(error))
    else:
        assert kind in (None, OverflowError)
        if kind is None:
            rows = [row for parts in taken for row in rows_in(parts)]
            assert [row[1] for row in rows] == [1000 * timestamp for timestamp in decoded[1]]
            assert [row[3] for row in rows] == decoded[2]
            assert [row[4] for row in rows] == decoded[3]
    if kind is not None:
        assert [parts[0] for parts in taken] == [0]
    return kind, text


@given(
    data=st.binary(max_size=60), count=st.integers(-1, 9), last=st.integers(-1, 9), time=INT64, offset=INT64
)
@example(data=b"\x0c\0" + zigzag_varint(2**62) + b"\0\x01\x01\0", count=1, last=0, time=2**63 - 1, offset=0)
@settings(max_examples=300, deadline=None)
def test_both_take_any_bytes_alike(
    compiled: ModuleType, data: bytes, count: int, last: int, time: int, offset: int
) -> None:
    agree_with_the_codec(compiled, data, count, last, offset, time)


def test_both_take_damaged_records_alike(compiled: ModuleType) -> None:
    """Bytes that are nearly right get further into the loops than bytes made of nothing."""
    rng = random.Random(20)
    seen = set()
    for _ in range(1500):
        count = rng.randrange(1, 5)
        records = [
            (1, rng.choice([0, 1, 2**40]), rng.choice([None, b"", b"key"]), bytes(rng.choice([0, 3, 70])),
             rng.choice([[], [], [("name", b"v")], [("n", None), ("é", b"")]]))
            for _ in range(count)
        ]  # fmt: skip
        data = bytearray(sparse(records)[0])
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        if rng.random() < 0.1:
            data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
        last = rng.choice([count - 1, count - 1, count + 3])
        kind, text = agree_with_the_codec(compiled, bytes(data), count, last, 7, 10**12)
        seen.add((kind, "".join(letter for letter in text if not letter.isdigit() and letter != "-")))

    assert len({kind for kind, _ in seen}) == 4 and len(seen) >= 12, seen


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 2**64, 2**70, 2**200])
def test_numbers_that_no_record_has_end_in_an_error(compiled: ModuleType, number: int) -> None:
    varint = bytearray()
    while number > 0x7F:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    record = [b"\x12", b"\0", b"\0", b"\0", b"\x02k", b"\x02v", b"\x02", b"\x02n", b"\x02c"]
    for place in (0, 2, 3, 4, 5, 6, 7, 8):
        damaged = b"".join([*record[:place], bytes(varint), *record[place + 1 :]]) + bytes(20)
        for last in (0, 2**31 - 1):
            kind, _ = agree_with_the_codec(compiled, damaged, 1, last, 0, 0)
            assert kind is not None


def test_more_records_than_there_are_bytes_cost_nothing(compiled: ModuleType) -> None:
    assert agree_with_the_codec(compiled, bytes(70), 2**31 - 1, 2**31 - 2, 0, 0)[0] is IndexError


def test_both_take_the_keys_of_headers_as_utf8_that_python_does(compiled: ModuleType) -> None:
    """Every pair of bytes whose first one begins a sequence, and every border of the longer sequences."""
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    names = [bytes((one, other)) for one in range(0x7F, 0x100) for other in range(0x100)]
    names += [bytes((one, second, third)) for one in range(0xE0, 0xF8) for second in edges for third in edges]
    names += [
        bytes((one, second, third, 0xBF, last))
        for one in range(0xEF, 0xF8) for second in edges for third in edges for last in (0x41, 0xBF)
    ]  # fmt: skip
    names += [bytes((one, second, 0x80, 0x80)) for one in range(0xF0, 0xF8) for second in edges]
    buffers = compiled.ColumnBuffers(False, MANY, MANY)

    def takes(name: bytes) -> bool:
        headers = b"\x02" + zigzag_varint(len(name)) + name + b"\x01"
        body = b"\0\0\0\x01\x01" + headers
        try:
            buffers.add(zigzag_varint(len(body)) + body, 1, 0, 0, 0, *CREATE_TIME, *EVERY)
        except UnicodeDecodeError:
            return False
        return True

    def is_utf8(name: bytes) -> bool:
        try:
            name.decode()
        except UnicodeDecodeError:
            return False
        return True

    assert [name for name in names if takes(name) != is_utf8(name)] == []
    right = sum(map(is_utf8, names))
    assert 30 * 64 < right < len(names) and len(buffers) == right


# What Arrow cannot hold -------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [2**63 // 1000 + 1, -(2**63) // 1000 - 1, 2**63 - 1, -(2**63)])
def test_a_timestamp_beyond_64_bits_of_microseconds_is_refused_where_it_is_wanted(
    compiled: ModuleType, time: int
) -> None:
    data, count, last = sparse([(1, 0, None, b"a", []), (1, time, None, b"b", []), (1, 0, None, b"c", [])])
    batch = (data, count, last, 5, 0, *CREATE_TIME)
    limits = (False, MANY, MANY)

    taken, kind, text = agree(compiled, limits, *batch, *EVERY)
    assert (kind, taken[0][0]) == (OverflowError, 0) and "offset 6" in text
    assert agree(compiled, limits, *batch, 7, 9)[1] is None

    late = (data, count, last, 5, 0, 1, time)
    assert agree(compiled, limits, *late, *EVERY)[1:] == (OverflowError, text.replace("offset 6", "offset 5"))


@pytest.mark.parametrize("time", [2**63 // 1000, -(2**63) // 1000 + 1])
def test_the_largest_timestamps_are_kept(compiled: ModuleType, time: int) -> None:
    data, count, last = sparse([(1, time, None, None, [])])

    (parts,), kind, _ = agree(compiled, (False, 1, 1), data, count, last, 0, 0, *CREATE_TIME, *EVERY)

    assert kind is None and rows_in(parts)[0][1] == 1000 * time


@pytest.mark.parametrize(("base", "last"), [(2**63 - 1, 1), (2**63 - 2**31, 2**31 - 1), (0, 2**31)])
def test_offsets_beyond_64_bits_are_refused(compiled: ModuleType, base: int, last: int) -> None:
    data, count, _ = sparse([(1, 0, None, None, [])])

    _, kind, text = agree(compiled, (False, 1, 1), data, count, last, base, 0, *CREATE_TIME, *EVERY)

    assert kind is (None if base == 2**63 - 2**31 else ValueError), text


@pytest.mark.parametrize("limits", [(0, 1), (1, 0), (2**31, 1), (1, 2**31), (-1, 1)])
def test_limits_that_arrow_cannot_hold_are_refused(compiled: ModuleType, limits: tuple[int, int]) -> None:
    for module in (arrow_columns_loop, compiled):
        with pytest.raises(ValueError, match="from 1 to 2147483647"):
            module.ColumnBuffers(False, *limits)


# Memory -----------------------------------------------------------------------------------------------------


def test_columns_keep_their_contents_while_others_are_filled(compiled: ModuleType) -> None:
    buffers = compiled.ColumnBuffers(True, MANY, MANY)
    first = sparse([(1, 0, b"k" * 300, b"first" * 100, [("n", b"v" * 300)])] * 50)
    buffers.add(*first, 0, 0, *CREATE_TIME, *EVERY)
    taken = buffers.take()
    before = copied(taken)
    for _ in range(20):
        buffers.add(*sparse([(1, 1, b"x" * 300, b"y" * 600, [])] * 50), 0, 0, *CREATE_TIME, *EVERY)
        buffers.take()
    del buffers

    assert copied(taken) == before and len(rows_in(taken)) == 50


def test_nothing_is_held_after_a_call(compiled: ModuleType) -> None:
    data = bytearray(sparse([(1, 0, b"key", b"value", [("h", b"v")])])[0])
    buffers = compiled.ColumnBuffers(True, 1, MANY)
    references = sys.getrefcount(data)
    for size in range(len(data)):
        with pytest.raises((IndexError, ValueError)):
            buffers.add(memoryview(data)[:size], 1, 0, 0, 0, *CREATE_TIME, *EVERY)
    buffers.add(data, 1, 0, 0, 0, *CREATE_TIME, *EVERY)
    assert buffers.add(data, 1, 0, 0, 0, *CREATE_TIME, *EVERY) == (0, 0)
    with pytest.raises(ValueError, match="impossible"):
        buffers.add(data, 1, 0, 0, 0, *CREATE_TIME, *EVERY, (len(data) + 1, 0))
    with pytest.raises(ValueError, match="impossible"):
        buffers.add(data, 1, 0, 0, 0, *CREATE_TIME, *EVERY, (0, -1))

    assert sys.getrefcount(data) == references
    data.clear()  # raises BufferError while a buffer of it is held


def test_a_second_thread_is_refused_while_one_adds(compiled: ModuleType) -> None:
    """The threads run by chance one after the other or at once: either way no row is lost or torn."""
    count = 20_000
    batch = (*sparse([(1, 0, b"key", b"v" * 20, [])] * count), 0, 0, *CREATE_TIME, *EVERY)
    buffers = compiled.ColumnBuffers(False, MANY, MANY)
    done: list[str] = []

    def add() -> None:
        for _ in range(10):
            try:
                buffers.add(*batch)
            except RuntimeError as error:
                done.append(str(error))
            else:
                done.append("added")

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(done) == 30 and set(done) <= {
        "added",
        "another thread is adding records to these columns",
    }
    assert len(buffers) == count * done.count("added")
    parts = buffers.take()
    assert bytes(parts[2][3]) == b"v" * 20 * parts[0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process")
def test_columns_are_usable_after_memory_ran_out(compiled: ModuleType) -> None:
    """The limit is set in a process of its own, 64 MiB above what that has, and one batch takes 4 MiB."""
    program = f"""if True:
        import resource
        from importlib.util import module_from_spec, spec_from_file_location
        from tests.models.batches import encoded_record

        spec = spec_from_file_location("holdfast_log.protocol._arrow_columns", {compiled.__file__!r})
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        large = encoded_record(0, 0, None, bytes(4 << 20), [("name", b"content")])
        small = encoded_record(0, 0, b"key", b"value", [("name", b"content")])
        rest = (1, 0, 0, 0, 0, 0, 0, 1)
        with open("/proc/self/statm") as sizes:
            taken = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + (64 << 20),) * 2)
        buffers = module.ColumnBuffers(True, 1000, 2**31 - 1)
        for cycle in range(3):
            rows = 0
            try:
                while rows < 100:
                    buffers.add(large, *rest)
                    rows += 1
            except MemoryError:
                print(len(buffers), end=" ")
            buffers.add(small, *rest)
            count, keys, values, *_ = buffers.take()
            print(count, bytes(keys[2]), bytes(keys[3]), bytes(values[3]))
    """

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    ends = struct.pack("=2i", 0, 3)
    assert done.stdout.splitlines() == [f"0 1 {ends!r} b'key' b'value'"] * 3, done.stderr


def test_memory_is_made_only_by_the_columns(compiled: ModuleType) -> None:
    memory = type(compiled.ColumnBuffers(False, 1, 1).take()[3].obj)
    with pytest.raises(TypeError):
        memory()


# The front --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["compiled", "python"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the front use one loop, then the other."""
    chosen = arrow_columns_loop
    if request.param == "compiled":
        chosen = request.getfixturevalue("compiled")
    monkeypatch.setattr(arrow_columns, "_loop", chosen)


@pytest.mark.usefixtures("loop")
class TestFront:
    def test_columns_come_whenever_they_are_full(self) -> None:
        batch = encoded([(number, b"k", b"%d" % number) for number in range(10)], base_offset=100)
        header = read_header(batch)
        columns = ArrowColumns(has_headers=False, row_limit=4, byte_limit=1000)

        taken = [rows_in(parts) for parts in columns.add(records_of(batch, header), header, 101, 108)]

        assert [[row[0] for row in rows] for rows in taken] == [[101, 102, 103, 104]]
        assert len(columns) == 3
        assert [row[:5] for row in rows_in(columns.take())] == [
            (100 + number, 1000 * number, 0, b"k", b"%d" % number) for number in (5, 6, 7)
        ]
        assert len(columns) == 0 and rows_in(columns.take()) == []

    def test_a_broker_may_have_set_the_timestamps(self) -> None:
        batch = compacted_batch({7: (5, None, b"v")}, 4, 9, append_time=1234)
        header = read_header(batch)
        columns = ArrowColumns(has_headers=True, row_limit=4, byte_limit=1000)

        assert list(columns.add(records_of(batch, header), header, 0, 10)) == []
        assert rows_in(columns.take()) == [(7, 1_234_000, 1, None, b"v", [])]

    @pytest.mark.parametrize(
        ("records", "text"),
        [
            (b"\x0e\0\0\0\x01\x01", "end early"),
            (b"\x0c\0\0\0\x01\x01\0\0", "1 bytes after the last record"),
            (b"\x14\0\0\0\x01\x01\x02\x02\xff\x01", "not UTF-8"),
            (b"\x0b\0\0\0\x01\x01\0", "length of a record is negative"),
        ],
    )
    def test_damage_is_a_broker_error(self, records: bytes, text: str) -> None:
        header = read_header(compacted_batch({0: (0, None, None)}, 0, 0))
        columns = ArrowColumns(has_headers=False, row_limit=4, byte_limit=1000)

        with pytest.raises(BrokerError, match=text) as caught:
            list(columns.add(records, header, 0, 10))

        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert len(columns) == 0


def test_the_records_of_the_tests_are_those_of_the_codec() -> None:
    tails = [encode_headers([("h", None)])]

    assert encoded_record(0, 0, b"k", None, [("h", None)]) == record_codec.encode(
        0, [9], [b"k"], [None], tails
    )
