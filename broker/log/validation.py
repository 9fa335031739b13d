"""Examines the records of a producer's batch before it is appended: `protocol.record_validation` has the
checks.

Any thread may examine a batch: that reads the batch and the settings of its log, and nothing else.

Followers and the cleaner do not examine batches: what a leader has appended is sound, and its checksum says
whether it still is.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast_log.broker.log.decompression import DECOMPRESSED_BYTES_MAX
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import HEADER_SIZE, BatchHeader, Compression, check
from holdfast_log.protocol.compression import DecompressionError, compress, decompress
from holdfast_log.protocol.errors import BrokerError, ErrorCode, InvalidRecordError
from holdfast_log.protocol.record_validation import RecordsVerdict, validate
from holdfast_log.protocol.wire import Buffer


class Examined(NamedTuple):
    """What the examination of one sound batch has found, with the settings of the log at that time.

    `packed` are its records in the topic's codec, None if the batch has that codec already. `size` is that of
    its records, decompressed, in bytes.
    """

    settings: LogSettings
    verdict: RecordsVerdict
    packed: bytes | None
    size: int


class ExcessiveRecordsError(InvalidRecordError):
    """Records that cannot be decompressed to as many bytes as are allowed. They are damaged, or too many."""


def examine(
    records: memoryview,
    header: BatchHeader,
    settings: LogSettings,
    bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Examined:
    """Examine a whole batch. At most `bytes_max` bytes are decompressed.

    Raises BrokerError: INVALID_RECORD, with the record and the reason, and as `protocol.batches.check` does.
    """
    check(records, header, settings.max_message_bytes)
    codec = Compression(header.compression)
    stored = records[header.position + HEADER_SIZE : header.end]
    data = stored if codec is Compression.NONE else _decompressed(stored, codec, bytes_max)
    verdict = validate(data, header.record_count, header.base_timestamp)
    if verdict.reason is not None:
        raise _refusal(verdict, header)
    target = settings.codec
    packed = None if target is None or target == codec else compress(target, data)
    return Examined(settings, verdict, packed, len(data))


def _decompressed(data: memoryview, codec: Compression, bytes_max: int) -> Buffer:
    try:
        return decompress(codec, data, bytes_max)
    except DecompressionError as error:
        reason = str(error)
    # Outside of the handler: the first error's traceback would keep the decompressed bytes.
    raise ExcessiveRecordsError(
        message=f"the {len(data)} bytes of its records cannot be decompressed by {codec.name.lower()}: "
        f"{reason}. A batch may have at most {bytes_max} bytes of records, decompressed. "
        "Nothing of it was written"
    )


def _refusal(verdict: RecordsVerdict, header: BatchHeader) -> BrokerError:
    count = header.record_count
    if verdict.record < 0:
        return InvalidRecordError(
            message=f"the batch claims {count} records, but {verdict.reason}. Nothing of it was written"
        )
    return InvalidRecordError(
        message=f"record {verdict.record} of the {count} that the batch claims is invalid: {verdict.reason}. "
        "Nothing of the batch was written",
        records=[(verdict.record, verdict.reason)],
    )


def check_times(verdict: RecordsVerdict, settings: LogSettings, now_ms: int) -> None:
    """Raise BrokerError with INVALID_TIMESTAMP, and the record, for records too far from the time of day."""
    after_ms, before_ms = settings.message_timestamp_after_max_ms, settings.message_timestamp_before_max_ms
    if verdict.most - now_ms > after_ms:
        raise _untimely(
            verdict.most_at,
            f"timestamp {verdict.most} is more than {after_ms} ms ahead of the broker's clock "
            "(message.timestamp.after.max.ms)",
        )
    if verdict.least >= 0 and now_ms - verdict.least > before_ms:
        raise _untimely(
            verdict.least_at,
            f"timestamp {verdict.least} is more than {before_ms} ms behind the broker's clock "
            "(message.timestamp.before.max.ms)",
        )


def _untimely(index: int, why: str) -> BrokerError:
    return InvalidRecordError(
        ErrorCode.INVALID_TIMESTAMP, f"record {index} of the batch: {why}", [(index, why)]
    )
