"""Rows of a long answer, encoded while it is being made.

A row as an object needs ten times the memory of its bytes, and the encoding of a long answer takes as long as
making it. So a long answer is encoded a few rows at a time, and only the bytes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from holdfast_log.protocol.frames import FileSlice, Part
from holdfast_log.protocol.generated_encoders import (
    INLINE_RECORDS_BYTES,
    EncodedArray,
    Encoder,
    generate_encoder,
)
from holdfast_log.protocol.schema import InvalidMessage
from holdfast_log.protocol.wire import ENCODE_ERRORS


class EncodedRows(EncodedArray):
    """The elements of one array of structs, encoded. It stands in the field of a response in place of the
    list; an encoder of the same version writes it as it is. It cannot be read."""

    __slots__ = ()

    def add(self, rows: Sequence[Any], version: int, *, flexible: bool) -> int:
        """Encode `rows`, which are structs of one class. Returns the number of bytes that this takes; what is
        in a file stays there. Raises InvalidMessage."""
        if not rows:
            return 0
        row_class: Any = type(rows[0])
        encode = _encoder(row_class, version, flexible)
        out: list[Part] = []
        try:
            for row in rows:
                encode(row, out, [])
            pieces = _joined(out)
        except ENCODE_ERRORS as error:
            raise InvalidMessage(f"{type(rows[0]).__name__} v{version}: {error}") from error
        self.pieces += pieces
        self.count += len(rows)
        return sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice))


def _joined(out: list[Part]) -> list[Part]:
    """What was encoded, in few pieces: slices of files, what is too large to copy, and the bytes between
    them. Rows in these rows may have been encoded before: of megabytes, in pieces of kilobytes."""
    pieces: list[Part] = []
    between: list[Part] = []
    for part in out:
        if isinstance(part, FileSlice) or len(part) > INLINE_RECORDS_BYTES:
            if between:
                pieces.append(b"".join(between))  # type: ignore[arg-type]
                between = []
            pieces.append(part)
        else:
            between.append(part)
    if between:
        pieces.append(b"".join(between))  # type: ignore[arg-type]
    return pieces


@cache
def _encoder(cls: type, version: int, flexible: bool) -> Encoder:
    return generate_encoder(cls, version, flexible)
