"""The loops of compaction, in Python and compiled: the same table and the same bytes for any batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.protocol import compaction, compaction_loops
from holdfast_log.protocol.batches import HEADER_SIZE, read_header, split, write_header
from holdfast_log.protocol.compaction import ENDED, FULL, SLOT_BYTES, Rules
from holdfast_log.protocol.compression import Compression
from holdfast_log.protocol.records import BatchBuilder, iterate

KEYS = st.one_of(
    st.none(), st.sampled_from([b"", b"a", b"b", b"c" * 127, b"d" * 128, b"e" * 129, b"f" * 300])
)
VALUES = st.one_of(st.none(), st.binary(max_size=20))
TIMES = st.one_of(st.integers(-1, 300), st.integers(-(2**63), 2**63 - 1))
HEADERS = st.lists(st.tuples(st.text(max_size=2), VALUES), max_size=2).map(tuple)
MARKS = st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x40, 0x50, 0x4000])
NOTHING = memoryview(b"")


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Some batches of a log, and the offset after the last one."""
    offset, data = draw(st.integers(0, 5)), bytearray()
    for _ in range(draw(st.integers(0, 6))):
        builder = BatchBuilder(draw(st.sampled_from([Compression.NONE] * 9 + [Compression.GZIP])))
        base = draw(TIMES)
        for _ in range(draw(st.integers(1, 5))):
            near = st.integers(max(-(2**63), base - 10), min(2**63 - 1, base + 10))
            builder.append(draw(near), draw(KEYS), draw(VALUES), draw(HEADERS))
        producer = draw(st.integers(-1, 2))
        batch = builder.build(producer_id=producer, producer_epoch=0, base_sequence=0)
        header = read_header(batch)
        write_header(
            batch,
            attributes=header.attributes | draw(MARKS),
            record_count=header.record_count,
            last_offset_delta=header.last_offset_delta + draw(st.integers(0, 2)) * (len(builder) == 1),
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            base_offset=offset,
            leader_epoch=draw(st.integers(0, 1)),
            producer_id=producer,
        )
        data += batch
        offset = (
            read_header(batch).next_offset + offset - header.base_offset - offset + draw(st.integers(0, 2))
        )
    return bytes(data), offset


@st.composite
def damaged_logs(draw: st.DrawFn) -> tuple[bytes, int]:
    data, end = draw(logs())
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 2)) if changed else 0):
        changed[draw(st.integers(0, len(changed) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(changed[: draw(st.integers(0, len(changed)))]), end


def offsets(values: Sequence[int]) -> memoryview:
    return memoryview(array("q", sorted(values)))


@pytest.fixture(scope="module")
def compiled(extension: Callable[[str], ModuleType]) -> ModuleType:
    return extension("_compaction")


def agree(compiled: ModuleType, name: str, *arguments: Any) -> Any:
    """What both return, which must be the same, and so must be what they do to the table."""
    copies = [bytearray(each) if isinstance(each, bytearray) else each for each in arguments]
    expected = getattr(compaction_loops, name)(*arguments)
    assert getattr(compiled, name)(*copies) == expected
    assert copies == list(arguments)
    return expected


@given(log=st.one_of(logs(), damaged_logs()), slots=st.integers(2, 12), first=st.integers(0, 9))
@settings(max_examples=300, deadline=None)
def test_both_enter_the_same_keys(
    compiled: ModuleType, log: tuple[bytes, int], slots: int, first: int
) -> None:
    data, end = log
    table = bytearray(slots * SLOT_BYTES)

    agree(compiled, "add_keys", data, 0, 0, end, table, 0, slots - 1, first)


@given(
    log=st.one_of(logs(), damaged_logs()),
    map_end=st.integers(0, 40),
    kept=st.lists(st.integers(0, 30)),
    firsts=st.lists(st.integers(0, 30)),
    now_ms=st.integers(0, 300),
    horizon_ms=st.one_of(st.integers(0, 600), st.integers(0, 2**63 - 1)),
    keys=st.dictionaries(KEYS.filter(lambda key: key is not None), st.integers(0, 30), max_size=6),
)
@settings(max_examples=500, deadline=None)
def test_both_leave_the_same_bytes(
    compiled: ModuleType,
    log: tuple[bytes, int],
    map_end: int,
    kept: list[int],
    firsts: list[int],
    now_ms: int,
    horizon_ms: int,
    keys: dict[bytes, int],
) -> None:
    data, end = log
    table = table_of(keys)

    agree(
        compiled, "filter_batches", data, 0, 0, end, table, map_end, offsets(kept), offsets(firsts), -2,
        now_ms, horizon_ms,
    )  # fmt: skip


@given(
    payload=st.binary(max_size=60),
    count=st.integers(-1, 4),
    last=st.integers(0, 5),
    attributes=MARKS,
    keeps_first=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_both_refuse_the_same_records(
    compiled: ModuleType, payload: bytes, count: int, last: int, attributes: int, keeps_first: bool
) -> None:
    table = table_of({b"": 3, b"\0": 4})

    agree(compiled, "filter_records", payload, count, last, 0, 0, attributes, keeps_first, table, 9, 0, 0)
    agree(compiled, "add_batch_keys", payload, count, last, 0, table, 2, 3, 0)


def table_of(keys: dict[bytes, int]) -> bytearray:
    """A table with these last offsets."""
    table = bytearray((len(keys) + 2) * SLOT_BYTES)
    count = 0
    for key, offset in keys.items():
        batch = BatchBuilder()
        batch.append(0, key, b"")
        data = batch.build(base_offset=offset)
        mapped = compaction.add_keys(data, 0, 0, offset + 1, table, count, len(keys) + 1, 0)
        count = mapped.key_count
    return table


def rows(batches: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for header in split(batches)
        for record in iterate(batches, header)
    ]


def batch(base_offset: int, *records: tuple[bytes | None, bytes | None], **values: int) -> bytes:
    builder = BatchBuilder()
    for key, value in records:
        builder.append(100, key, value)
    return bytes(builder.build(base_offset=base_offset, **values))


def test_a_digest_is_the_beginning_of_the_slot_of_its_key() -> None:
    table = bytearray(2 * SLOT_BYTES)

    compaction.add_keys(batch(5, (b"k" * 500, b"")), 0, 0, 6, table, 0, 1, 0)

    digest = blake2b(b"k" * 500, digest_size=16).digest()
    assert digest + (6).to_bytes(8, "little") in bytes(table)


def test_a_full_table_names_the_first_record_that_it_lacks() -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))

    mapped = compaction.add_keys(data, 0, 0, 4, bytearray(3 * SLOT_BYTES), 0, 2, 0)

    assert (mapped.status, mapped.full_at, mapped.key_count, mapped.position) == (FULL, 3, 2, 0)


def test_the_last_record_of_a_key_stays_at_its_offset() -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"2"), (None, b"3")) + batch(3, (b"a", b"4"))
    table = bytearray(9 * SLOT_BYTES)
    compaction.add_keys(data, 0, 0, 4, table, 0, 8, 0)

    result = compaction.filter_batches(data, 0, 0, 4, Rules(table, 4, 0, 0), 0)

    assert result.status == ENDED and result.is_changed
    assert rows(result.output) == [(1, b"b", b"2"), (2, None, b"3"), (3, b"a", b"4")]


def test_a_tombstone_gets_its_horizon_in_the_first_pass_and_goes_in_a_pass_after_it() -> None:
    data = batch(0, (b"a", b"1"), (b"b", b"2")) + batch(2, (b"a", None))
    table = bytearray(9 * SLOT_BYTES)
    compaction.add_keys(data, 0, 0, 3, table, 0, 8, 0)

    first = compaction.filter_batches(data, 0, 0, 3, Rules(table, 3, 50, 60), 0).output
    early = compaction.filter_batches(first, 0, 0, 3, Rules(table, 3, 59, 99), 0).output
    late = compaction.filter_batches(first, 0, 0, 3, Rules(table, 3, 60, 99), 0).output

    assert rows(first) == [(1, b"b", b"2"), (2, b"a", None)]
    assert [(each.has_delete_horizon, each.base_timestamp) for each in split(first)] == [
        (False, 100),
        (True, 60),
    ]
    assert [record.timestamp for record in iterate(first, split(first)[1])] == [100]
    assert early == first
    assert rows(late) == [(1, b"b", b"2")]


def test_a_tombstone_beyond_the_table_gets_no_horizon_and_stays() -> None:
    data = batch(0, (b"a", None))
    table = bytearray(2 * SLOT_BYTES)

    result = compaction.filter_batches(data, 0, 0, 1, Rules(table, 0, 50, 0), 0)

    assert (result.output, result.is_changed) == (data, False)


def test_a_batch_may_become_larger(compiled: ModuleType) -> None:
    """The distance of each record's timestamp from the delete horizon takes more bytes."""
    data = batch(0, *((b"%d" % number, None) for number in range(200)))
    table = table_of({})

    output, *_, is_changed = agree(
        compiled, "filter_batches", data, 0, 0, 200, table, 200, NOTHING, NOTHING, 0, 50, 2**60
    )

    assert is_changed and len(output) > len(data) + 1000


@pytest.mark.parametrize("named", [True, False])
def test_an_emptied_batch_keeps_its_header_only_if_it_is_named(named: bool) -> None:
    data = batch(0, (b"a", b"1"), (b"a", b"2"), producer_id=7, producer_epoch=3, base_sequence=40)
    table = table_of({b"a": 9})
    kept = bytes(offsets([0] if named else []))

    output = compaction.filter_batches(data, 0, 0, 2, Rules(table, 10, 0, 0, kept), -1).output

    if not named:
        assert output == b""
        return
    (header,) = split(output)
    assert len(output) == HEADER_SIZE
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 3, 41)


def test_the_first_batch_of_a_leader_epoch_keeps_its_header() -> None:
    data = bytearray(batch(0, (b"a", b"1")) + batch(1, (b"a", b"2")) + batch(2, (b"a", b"3")))
    for header, epoch in zip(split(data), (4, 5, 5), strict=True):
        data[header.position + 12 : header.position + 16] = epoch.to_bytes(4, "big")

    output = compaction.filter_batches(data, 0, 0, 3, Rules(table_of({b"a": 9}), 10, 0, 0), 4).output

    assert [(each.leader_epoch, each.base_offset) for each in split(output)] == [(5, 1)]


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_compressed_batch_keeps_its_codec(codec: Compression) -> None:
    builder = BatchBuilder(codec)
    for number in range(50):
        builder.append(100 + number, b"key%d" % (number % 10), b"value%d" % number)
    data = bytes(builder.build(base_offset=20))
    header = read_header(data)
    table = bytearray(20 * SLOT_BYTES)

    count, status, _ = compaction.add_compressed_keys(data, header, table, 0, 19, 0, 1 << 20)
    output = compaction.filter_compressed(data, header, Rules(table, 70, 0, 0), -1, 1 << 20)

    assert (count, status) == (10, ENDED)
    assert read_header(output).compression == codec
    assert read_header(output).max_timestamp == 149
    assert rows(output) == [(60 + n, b"key%d" % n, b"value%d" % (40 + n)) for n in range(10)]


def test_a_batch_that_decompresses_to_too_much_stays_as_it_is() -> None:
    builder = BatchBuilder(Compression.GZIP)
    builder.append(0, b"a", bytes(10_000))
    data = bytes(builder.build())

    output = compaction.filter_compressed(
        data, read_header(data), Rules(table_of({b"a": 9}), 10, 0, 0), -1, 99
    )

    assert output == data


def test_the_first_record_of_a_remembered_append_id_stays() -> None:
    data = bytes(batch(0, (b"a", b"1"), (b"a", b"2"), has_append_id=True))
    table = table_of({b"a": 9})

    remembered = Rules(table, 10, 0, 0, b"", bytes(offsets([0])))
    kept = compaction.filter_batches(data, 0, 0, 2, remembered, 0).output
    rest = compaction.filter_batches(data, 0, 0, 2, Rules(table, 10, 0, 0, bytes(offsets([0]))), 0).output

    assert rows(kept) == [(0, b"a", b"1")]
    assert [each.has_append_id for each in split(kept)] == [True]
    assert [each.has_append_id for each in split(rest)] == [False]
