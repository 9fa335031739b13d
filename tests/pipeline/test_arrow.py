"""Fetched batches become record batches of exactly the schema declared to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.pipeline.arrow import (
    BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    BatchCollector,
    arrow_schema,
    spark_schema,
)
from holdfast_log.protocol import arrow_columns, arrow_columns_loop
from holdfast_log.protocol.batches import Compression, TimestampType
from holdfast_log.protocol.errors import CorruptMessageError
from holdfast_log.protocol.records import decode_columns
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import Row, compacted_batch, encoded, fetched

PARTITION = TopicPartition("flights", 3)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["fastest", "python"], autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each test run with the loop that is installed, and with the one in Python."""
    if request.param == "python":
        monkeypatch.setattr(arrow_columns, "_loop", arrow_columns_loop)


def batch(rows: Mapping[int, Row], start: int = 0) -> EncodedBatch:
    """A batch of rows by their offsets, as the consumer returns it."""
    return fetched(compacted_batch(rows, min(rows), max(rows)), start)


def collected(collector: BatchCollector, *batches: EncodedBatch, end: int = 1 << 60) -> list[pa.RecordBatch]:
    """The record batches of fetched batches. All are valid, and none but the last could take another row."""
    found = [made for each in batches for made in collector.add(each, 0, end)]
    if len(collector):
        found.append(collector.take())
    for made in found:
        made.validate(full=True)
    return found


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_and_spark_schemas_are_equal(include_headers: bool) -> None:
    announced = to_arrow_schema(spark_schema(include_headers), timezone="UTC")

    assert announced.equals(arrow_schema(include_headers))


def test_a_record_becomes_a_row() -> None:
    collector = BatchCollector(PARTITION, include_headers=False)
    given = compacted_batch({7: (5, b"UA", b"{}")}, 7, 7, append_time=1_700_000_000_123)

    (made,) = collected(collector, fetched(given))

    assert made.schema.equals(arrow_schema(False))
    assert made.to_pylist() == [
        {
            "key": b"UA",
            "value": b"{}",
            "topic": "flights",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000),
            "timestampType": 1,
        }
    ]


def test_null_and_empty_values_stay_distinct() -> None:
    (made,) = collected(
        BatchCollector(PARTITION, include_headers=False), batch({0: (0, None, b""), 1: (0, b"", None)})
    )

    assert made.column("key").to_pylist() == [None, b""]
    assert made.column("value").to_pylist() == [b"", None]


def test_only_the_offsets_asked_for_are_taken_from_a_batch() -> None:
    collector = BatchCollector(PARTITION, include_headers=False)
    sparse = batch({offset: (0, None, b"%d" % offset) for offset in (10, 12, 13, 17, 20)})
    dense = batch(dict.fromkeys(range(20, 24), (0, None, b"x")))

    assert [*collector.add(sparse, 11, 20), *collector.add(dense, 11, 20)] == []
    assert collector.take().column("offset").to_pylist() == [12, 13, 17]
    assert len(collector) == 0


def test_records_before_the_consumers_position_are_left_out() -> None:
    """The consumer may have been moved past deleted records, into the middle of a batch."""
    found = batch(dict.fromkeys(range(10), (0, None, b"x")), start=7)

    (made,) = collected(BatchCollector(PARTITION, include_headers=False), found)

    assert made.column("offset").to_pylist() == [7, 8, 9]


ITEMS = st.none() | st.binary(max_size=20)
ROWS = st.tuples(
    st.integers(-1, 2**43),
    ITEMS,
    ITEMS,
    st.lists(st.tuples(st.text(max_size=4), ITEMS), max_size=2),
)


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """The batches of a log, of any codec, as compaction leaves them."""
    base, log = draw(st.integers(0, 2**40)), []
    for _ in range(draw(st.integers(1, 6))):
        offsets = draw(st.lists(st.integers(0, 12), unique=True, max_size=12).map(sorted))
        rows = {base + offset: draw(ROWS) for offset in offsets}
        last = base + max(offsets, default=0) + draw(st.integers(0, 2))
        codec = draw(st.sampled_from(Compression))
        log.append(compacted_batch(rows, base, last, codec, draw(st.none() | st.integers(0, 2**43))))
        base = last + 1 + draw(st.integers(0, 2))
    return log


@given(log=logs(), include_headers=st.booleans(), cuts=st.tuples(st.integers(-1, 30), st.integers(-1, 60)))
@settings(max_examples=60, deadline=None)
def test_the_rows_are_the_records_that_clients_decode(
    log: list[bytes], include_headers: bool, cuts: tuple[int, int]
) -> None:
    first = fetched(log[0]).header.base_offset
    start, end = first + cuts[0], first + cuts[1]
    collector = BatchCollector(PARTITION, include_headers)
    expected: list[dict[str, Any]] = []
    for each in log:
        header, columns = fetched(each).header, decode_columns(each)
        for index, offset in enumerate(columns.offsets):
            if start <= offset < end:
                row = {
                    "key": columns.keys[index],
                    "value": columns.values[index],
                    "topic": "flights",
                    "partition": 3,
                    "offset": offset,
                    "timestamp": EPOCH + timedelta(milliseconds=columns.timestamps[index]),
                    "timestampType": int(header.timestamp_type),
                }
                headers = columns.headers[index] if columns.headers else ()
                if include_headers:
                    row["headers"] = [{"key": name, "value": value} for name, value in headers] or None
                expected.append(row)

    for each in log:
        assert list(collector.add(fetched(each), start, end)) == []
    made = collector.take()

    made.validate(full=True)
    assert made.to_pylist() == expected


def test_batches_that_brokers_and_producers_stamped_may_follow_each_other() -> None:
    batches = [
        fetched(compacted_batch({0: (1, None, b"a")}, 0, 0)),
        fetched(compacted_batch({1: (1, None, b"b")}, 1, 1, append_time=2)),
    ]

    (made,) = collected(BatchCollector(PARTITION, include_headers=False), *batches)

    assert made.column("timestamp").cast(pa.int64()).to_pylist() == [1000, 2000]
    assert made.column("timestampType").to_pylist() == list(TimestampType)


def test_headers_are_lists_and_null_where_there_are_none() -> None:
    pairs: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None)]
    collector = BatchCollector(PARTITION, include_headers=True)
    batches = [
        batch({0: (0, None, b"x", pairs), 1: (0, None, b"x"), 2: (0, None, b"x", [("a", b"")])}, start=1),
        batch({3: (0, None, b"x")}),
        batch({4: (0, None, b"x", pairs)}),
    ]

    (made,) = collected(collector, *batches)

    assert made.column("headers").to_pylist() == [
        None,
        [{"key": "a", "value": b""}],
        None,
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    ]


def test_no_batch_has_more_rows_than_the_limit() -> None:
    count = 2 * ROWS_PER_BATCH + 5
    large = encoded([(0, None, b"")] * count)

    made = collected(BatchCollector(PARTITION, include_headers=False), fetched(large))

    assert [each.num_rows for each in made] == [ROWS_PER_BATCH, ROWS_PER_BATCH, 5]
    assert [each.column("offset")[0].as_py() for each in made] == [0, ROWS_PER_BATCH, 2 * ROWS_PER_BATCH]


def test_no_batch_has_more_bytes_than_the_limit_but_of_one_larger_record() -> None:
    half = bytes(BYTES_PER_BATCH // 2)
    values = [half, half, b"x", bytes(BYTES_PER_BATCH + 1), b"y", b"z"]
    batches = [batch({offset: (0, None, value)}) for offset, value in enumerate(values)]

    made = collected(BatchCollector(PARTITION, include_headers=False), *batches)

    assert [each.column("offset").to_pylist() for each in made] == [[0, 1], [2], [3], [4, 5]]


def test_a_damaged_batch_is_named() -> None:
    sound = batch({5: (0, None, b"x"), 6: (0, None, b"y")})
    damaged = EncodedBatch("flights", 3, sound.header, bytes(sound.records)[:-1], 0)

    with pytest.raises(CorruptMessageError, match="flights-3, batch at offset 5: the records of a batch end"):
        list(BatchCollector(PARTITION, include_headers=False).add(damaged, 0, 10))


def test_a_time_that_spark_cannot_hold_is_named() -> None:
    late = batch({5: (0, None, b"x"), 6: (2**62, None, b"y")})

    with pytest.raises(OverflowError, match="flights-3, batch at offset 5: the timestamp at offset 6"):
        list(BatchCollector(PARTITION, include_headers=False).add(late, 0, 10))
