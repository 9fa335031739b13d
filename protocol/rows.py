"""Rows of a long answer, encoded while it is being made.

A row as an object needs ten times the memory of its bytes, and the encoding of a long answer takes as long as
making it. So a long answer is encoded a few rows at a time, and only the bytes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.generated_encoders import EncodedArray, Encoder, generate_encoder
from holdfast_log.protocol.schema import InvalidMessage
from holdfast_log.protocol.wire import ENCODE_ERRORS


class EncodedRows(EncodedArray):
    """The elements of one array of structs, encoded. It stands in the field of a response in place of the
    list; an encoder of the same version writes it as it is. It cannot be read."""

    __slots__ = ()

    def add(self, rows: Sequence[Any], version: int, *, flexible: bool) -> None:
        """Encode `rows`, which are structs of one class. Raises InvalidMessage."""
        if not rows:
            return
        row_class: Any = type(rows[0])
        encode = _encoder(row_class, version, flexible)
        out: list[Part] = []
        try:
            for row in rows:
                encode(row, out, [])
            self.pieces.append(b"".join(out))  # type: ignore[arg-type]
        except ENCODE_ERRORS as error:
            raise InvalidMessage(f"{type(rows[0]).__name__} v{version}: {error}") from error
        self.count += len(rows)


@cache
def _encoder(cls: type, version: int, flexible: bool) -> Encoder:
    return generate_encoder(cls, version, flexible)
