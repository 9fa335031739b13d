"""From the records of batches to the buffers of Arrow columns, without a Python object for each record.

The keys of many records become one buffer of bytes, with another that says where each key ends; so do the
values and the headers. The loop is in the compiled `protocol._arrow_columns` if it is installed, else in
`protocol.arrow_columns_loop`; the environment variable HOLDFAST_PURE_PYTHON selects the latter. This package
does not need pyarrow: `pipeline.arrow` makes arrays of the buffers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from holdfast_log.protocol.arrow_columns_loop import BinaryParts, ColumnParts, HeaderParts, Rest
from holdfast_log.protocol.batches import BatchHeader, corrupt
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE
from holdfast_log.protocol.wire import Buffer

__all__ = ["ArrowColumns", "BinaryParts", "HeaderParts", "ColumnParts"]


def _fastest_loop() -> ModuleType:
    if not os.environ.get(PURE_PYTHON_VARIABLE):
        try:
            from holdfast_log.protocol import _arrow_columns
        except ImportError:
            pass
        else:
            return _arrow_columns
    from holdfast_log.protocol import arrow_columns_loop

    return arrow_columns_loop


_loop = _fastest_loop()


class ArrowColumns:
    """Columns of records, of at most `row_limit` rows and `byte_limit` bytes of keys, values and headers.

    A larger record is the only row of its columns. Both limits are below 2^31, because Arrow says with 32
    bits where a key, value or header ends.
    """

    def __init__(self, *, has_headers: bool, row_limit: int, byte_limit: int) -> None:
        self._buffers = _loop.ColumnBuffers(has_headers, row_limit, byte_limit)

    def __len__(self) -> int:
        return len(self._buffers)

    def add(self, records: Buffer, header: BatchHeader, start: int, end: int) -> Iterator[ColumnParts]:
        """Add the records of one batch with offsets in [start, end); yield the columns when they are full.

        `records` is what `protocol.records.records_of` returns. They are added while the iterator is read, so
        it must be read to its end. All records are checked before the first is added, wanted or not. Raises
        BrokerError (CORRUPT_MESSAGE) for records that are not well-formed, and OverflowError for a timestamp
        of more than 64 bits in microseconds, or a record of 2^31 bytes or more.
        """
        batch = (
            records,
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            int(header.timestamp_type),
            header.max_timestamp,
            start,
            end,
        )
        rest = self._add(*batch)
        while rest is not None:
            yield self.take()
            rest = self._add(*batch, rest)

    def take(self) -> ColumnParts:
        """Return the columns, and begin new ones without rows."""
        parts: ColumnParts = self._buffers.take()
        return parts

    def _add(self, *arguments: Any) -> Rest:
        try:
            rest: Rest = self._buffers.add(*arguments)
        except IndexError:
            raise corrupt("the records of a batch end early") from None
        except UnicodeDecodeError:
            raise corrupt("the key of a record's header is not UTF-8") from None
        except ValueError as error:
            raise corrupt(str(error)) from None
        return rest
