"""Rows that were encoded while an answer was made are not copied again when it is finished."""

from __future__ import annotations

import pytest

from holdfast_log.protocol import rows as encoded_rows
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.generated_encoders import INLINE_RECORDS_BYTES
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast_log.protocol.rows import EncodedRows
from holdfast_log.protocol.schema import encode, encode_parts

VERSION = 7
PARTITIONS = 5_000
AT_ONCE = 250
"""Partitions that are encoded together: far more than `INLINE_RECORDS_BYTES`."""


def partitions() -> list[ListOffsetsPartitionResponse]:
    return [
        ListOffsetsPartitionResponse(partition_index=number, error_code=0, offset=number)
        for number in range(PARTITIONS)
    ]


def encoded_in_turns() -> tuple[EncodedRows, EncodedRows]:
    """The rows of topics, of which one has many partitions, and the rows of these partitions."""
    inner, made = EncodedRows(), partitions()
    for start in range(0, PARTITIONS, AT_ONCE):
        inner.add(made[start : start + AT_ONCE], VERSION, flexible=True)
    outer = EncodedRows()
    outer.add([ListOffsetsTopicResponse(name="t", partitions=inner)], VERSION, flexible=True)  # type: ignore[arg-type]
    return outer, inner


def test_no_piece_of_rows_is_copied_when_the_rows_around_them_and_the_answer_are_encoded() -> None:
    outer, inner = encoded_in_turns()
    assert len(inner.pieces) == PARTITIONS // AT_ONCE
    parts = encode_parts(ListOffsetsResponse(topics=outer), VERSION, b"prefix")  # type: ignore[arg-type]
    kept = {id(part) for part in parts}
    assert all(id(piece) in kept for piece in inner.pieces)
    copied = [part for part in parts if id(part) not in set(map(id, inner.pieces))]
    assert sum(map(len, copied)) < INLINE_RECORDS_BYTES


def test_rows_that_were_encoded_in_turns_have_the_bytes_of_the_rows() -> None:
    outer, _ = encoded_in_turns()
    parts = encode_parts(ListOffsetsResponse(topics=outer), VERSION, b"prefix")  # type: ignore[arg-type]
    whole = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions())])
    assert type(parts[0]) is bytes
    assert join_parts(parts) == b"prefix" + encode(whole, VERSION)


def test_pieces_that_are_copied_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_rows, "_joined", lambda out: [b"".join(out)])
    with pytest.raises(AssertionError):
        test_no_piece_of_rows_is_copied_when_the_rows_around_them_and_the_answer_are_encoded()
