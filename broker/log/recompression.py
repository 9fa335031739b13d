"""A producer's batch stored in the topic's codec (`compression.type`) instead of the producer's.

Only the payload is decompressed and compressed again: no record is decoded, and the header keeps its offsets,
sequences and timestamps.
"""

from __future__ import annotations

from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    check,
    corrupt,
    read_header,
    write_header,
)
from holdfast_log.protocol.compression import DecompressionError, compress, decompress

DECOMPRESSED_BYTES_MAX = 32 * 1024 * 1024
"""Maximum decompressed size of a batch in bytes, unless 8 times `max.message.bytes` is more."""

_COMPRESSION_MASK = 0x07


def recompressed(
    records: memoryview, header: BatchHeader, settings: LogSettings
) -> tuple[memoryview, BatchHeader]:
    """The batch that `header` describes, in the topic's codec, with its new header; unchanged if it has that
    codec already.

    Raises BrokerError: CORRUPT_MESSAGE if the records cannot be decompressed or exceed the maximum size,
    MESSAGE_TOO_LARGE if the batch becomes larger than `max.message.bytes`.
    """
    target = settings.codec
    if target is None or header.compression == target:
        return records, header
    limit = max(DECOMPRESSED_BYTES_MAX, 8 * settings.max_message_bytes)
    try:
        payload = decompress(
            Compression(header.compression), records[header.position + HEADER_SIZE : header.end], limit
        )
    except DecompressionError as error:
        raise corrupt(str(error)) from None
    batch = bytearray().join((bytes(HEADER_SIZE), compress(target, payload)))
    write_header(
        batch,
        attributes=header.attributes & ~_COMPRESSION_MASK | target,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    header = read_header(batch)
    check(batch, header, settings.max_message_bytes)
    return memoryview(batch), header
