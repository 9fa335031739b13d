"""Decoded columns become record batches of exactly the schema declared to Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.arrow import BYTES_PER_BATCH, ROWS_PER_BATCH, BatchCollector, arrow_schema, spark_schema
from protocol.records import Columns
from protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("flights", 3)


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_arrow_and_spark_schemas_are_equal(include_headers: bool) -> None:
    announced = to_arrow_schema(spark_schema(include_headers), timezone="UTC")

    assert announced.equals(arrow_schema(include_headers))


def test_a_record_becomes_a_row() -> None:
    collector = BatchCollector(PARTITION, include_headers=False)
    collector.add(Columns([7], [1_700_000_000_123], [b"UA"], [b"{}"], None), 1, 0, 100)

    batch = collector.take()

    batch.validate(full=True)
    assert batch.schema.equals(arrow_schema(False))
    assert batch.to_pylist() == [
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
    collector = BatchCollector(PARTITION, include_headers=False)
    collector.add(Columns(range(2), [0, 0], [None, b""], [b"", None], None), 0, 0, 2)

    batch = collector.take()

    assert batch.column("key").to_pylist() == [None, b""]
    assert batch.column("value").to_pylist() == [b"", None]


def test_only_the_offsets_asked_for_are_taken_from_a_batch() -> None:
    collector = BatchCollector(PARTITION, include_headers=False)
    sparse = [10, 12, 13, 17, 20]
    collector.add(Columns(sparse, [0] * 5, [None] * 5, [str(o).encode() for o in sparse], None), 0, 11, 20)
    collector.add(Columns(range(20, 24), [0] * 4, [None] * 4, [b"x"] * 4, None), 0, 11, 20)

    assert collector.take().column("offset").to_pylist() == [12, 13, 17]
    assert len(collector) == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 120), st.integers(0, 2)), min_size=1, max_size=12), st.booleans())
def test_batches_of_any_size_keep_every_record_in_order(sizes: list[tuple[int, int]], is_large: bool) -> None:
    collector = BatchCollector(PARTITION, include_headers=False)
    expected: list[tuple[int, bytes | None, bytes | None]] = []
    offset = 5
    for size, gap in sizes:
        size = size * 400 if is_large and size > 100 else size
        offsets = range(offset, offset + size)
        keys = [None if number % 3 else b"k%d" % number for number in offsets]
        values = [b"v%d" % number if number % 5 else None for number in offsets]
        # Offsets with gaps come as lists, without as ranges.
        collector.add(
            Columns(list(offsets) if gap else offsets, [0] * size, keys, values, None), 0, 0, 1 << 60
        )
        expected += zip(offsets, keys, values, strict=True)
        offset += size + gap

    count = len(collector)
    batch = collector.take()

    batch.validate(full=True)
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    assert list(zip(*columns, strict=True)) == expected
    assert count == len(expected)


def test_headers_are_lists_and_null_where_there_are_none() -> None:
    collector = BatchCollector(PARTITION, include_headers=True)
    headers = [(("a", b"1"), ("b", None)), (), (("a", b""),)]
    collector.add(Columns(range(3), [0] * 3, [None] * 3, [b"x"] * 3, headers), 0, 1, 3)
    collector.add(Columns(range(3, 4), [0], [None], [b"x"], None), 0, 1, 4)
    collector.add(Columns(range(4, 5), [0], [None], [b"x"], [headers[0]]), 0, 1, 5)

    batch = collector.take()

    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [
        None,
        [{"key": "a", "value": b""}],
        None,
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    ]


def test_a_collector_is_full_by_rows_or_bytes() -> None:
    rows = BatchCollector(PARTITION, include_headers=False)
    rows.add(
        Columns(
            range(ROWS_PER_BATCH), [0] * ROWS_PER_BATCH, [None] * ROWS_PER_BATCH, [b""] * ROWS_PER_BATCH, None
        ),
        0,
        0,
        ROWS_PER_BATCH,
    )
    large = BatchCollector(PARTITION, include_headers=False)
    large.add(Columns(range(1), [0], [b"k"], [bytes(BYTES_PER_BATCH - 1)], None), 0, 0, 1)
    small = BatchCollector(PARTITION, include_headers=False)
    small.add(Columns(range(1), [0], [None], [bytes(BYTES_PER_BATCH - 1)], None), 0, 0, 1)

    assert (rows.is_full, large.is_full, small.is_full) == (True, True, False)
