"""A producer's batch stored in the topic's codec (`compression.type`) instead of the producer's.

`broker.log.validation` has compressed the records again; the header keeps its offsets, sequences and
timestamps.
"""

from __future__ import annotations

from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    BatchHeader,
    check,
    read_header,
    write_header,
)

_COMPRESSION_MASK = 0x07


def recompressed(packed: bytes, header: BatchHeader, settings: LogSettings) -> tuple[memoryview, BatchHeader]:
    """The batch that `header` describes, with its new header; `packed` are its records in the topic's codec.

    Raises BrokerError: MESSAGE_TOO_LARGE if the batch becomes larger than `max.message.bytes`.
    """
    assert settings.codec is not None
    batch = bytearray().join((bytes(HEADER_SIZE), packed))
    write_header(
        batch,
        attributes=header.attributes & ~_COMPRESSION_MASK | settings.codec,
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
