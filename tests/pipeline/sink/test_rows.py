"""Rows go to the partitions that Kafka's producer would choose, or that they name, and keep their order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.clients.sending.partitioner import by_key
from holdfast_log.pipeline.sink.chunks import NO_HEADERS, RowColumns, SinkRow
from holdfast_log.pipeline.sink.rows import RowError, RowSplitter
from holdfast_log.protocol.topic_partition import TopicPartition

COUNT, EXISTING, TURN = 5, 7, 13
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

text = st.none() | st.text(max_size=6)
header = st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)})
row = st.fixed_dictionaries(
    {
        "key": text,
        "value": text,
        "headers": st.none() | st.lists(header, max_size=2),
        "partition": st.none() | st.integers(0, EXISTING - 1),
        "topic": st.sampled_from(["first", "second"]),
    }
)


def splitter(topic: str | None = "flights") -> RowSplitter:
    return RowSplitter(topic, lambda _: (COUNT, EXISTING), TURN)


def batch(rows: list[dict[str, Any]], names: list[str], kind: pa.DataType) -> pa.RecordBatch:
    types = {"headers": HEADERS, "partition": pa.int32(), "topic": pa.string()}
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        column = pa.array(values, pa.string() if name in ("key", "value") else types[name])
        columns.append(column.cast(kind) if name in ("key", "value") else column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def wanted(rows: list[dict[str, Any]], names: list[str], topic: str | None) -> dict[TopicPartition, Any]:
    """The rows of each partition, found one by one."""
    found: dict[TopicPartition, list[SinkRow]] = {}
    for row in rows:
        key = row["key"].encode() if "key" in names and row["key"] is not None else None
        value = None if row["value"] is None else row["value"].encode()
        place = by_key("", key, COUNT)
        if place is None:
            place = TURN % COUNT
        if "partition" in names and row["partition"] is not None:
            place = row["partition"]
        headers = [(each["key"], each["value"]) for each in (row["headers"] or [])]
        at = TopicPartition(topic or row["topic"], place)
        found.setdefault(at, []).append((key, value, tuple(headers) if "headers" in names else NO_HEADERS))
    return found


def listed(found: dict[TopicPartition, RowColumns]) -> dict[TopicPartition, list[SinkRow]]:
    return {
        place: [(key, value, tuple(headers)) for key, value, headers in rows] for place, rows in found.items()
    }


@given(
    st.lists(row, max_size=30),
    st.sets(st.sampled_from(["key", "headers", "partition"])),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.sampled_from(["flights", None]),
    st.integers(0, 3),
)
def test_each_row_goes_to_the_partition_of_its_key_or_the_one_that_it_names(
    rows: list[dict[str, Any]], optional: set[str], kind: pa.DataType, topic: str | None, skipped: int
) -> None:
    names = ["value", "topic", *sorted(optional)]
    # A slice, because its columns begin in the middle of their buffers.
    sliced = batch(rows, names, kind).slice(skipped)

    found = splitter(topic).split(sliced)

    assert listed(found) == wanted(rows[skipped:], names, topic)


@pytest.mark.parametrize("wrong", [-1, EXISTING])
def test_a_row_that_names_a_partition_that_does_not_exist_is_refused(wrong: int) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b", b"c"], "partition": pa.array([None, wrong, 1], pa.int32())}
    )

    with pytest.raises(RowError, match=f"names partition {wrong} of flights, which has {EXISTING}"):
        splitter().split(rows)


def test_rows_without_keys_go_to_one_partition_which_the_turn_chooses() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"a", b"b"], "key": pa.array([None, None], pa.binary())})

    (place,) = splitter().split(rows)

    assert place == TopicPartition("flights", TURN % COUNT)


def test_a_row_without_a_topic_is_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"value": [b"a"], "topic": pa.array([None], pa.string())})

    with pytest.raises(RowError, match="topic is null"):
        splitter(None).split(rows)
