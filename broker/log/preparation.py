"""Prepares appends of a leader: checks the batches, and finds the earlier ones that they repeat."""

from __future__ import annotations

from holdfast_log.broker.log.append import AppendOrigin, PreparedAppend, check_batches, check_keys
from holdfast_log.broker.log.append_ids import NO_DIGEST, NamedAppend
from holdfast_log.broker.log.key_versions import keys_of
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_state import AppendedBatch
from holdfast_log.broker.log.recompression import recompressed
from holdfast_log.broker.log.settings import KEEP_PRODUCERS_CODEC
from holdfast_log.protocol.batches import NO_SEQUENCE, BatchHeader
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.plain_produce import plain_header
from holdfast_log.protocol.records import content_digest

# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__


def prepare_append(
    log: Log,
    records: memoryview,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    append_id: bytes | None = None,
) -> PreparedAppend:
    """Check whether batches may be appended or repeat earlier ones. Changes nothing.

    `records` is writable: offsets will be assigned in it. Raises BrokerError as `check_batches` and
    `ProducerStates.check` do, and NOT_LEADER_OR_FOLLOWER after a truncation until its checkpoint is durable;
    RECORD_LIST_TOO_LARGE if a client's batch is larger than segment.bytes;
    INVALID_RECORD for a record without a key if the topic is compacted; INVALID_REQUEST if the append with
    this `append_id` has other records.
    """
    if log.failure is not None or log.settling:
        log.check_may_grow()
    settings = log.settings
    if settings.stores_as_sent and log.keys is None and append_id is None and origin is AppendOrigin.CLIENT:
        plain = plain_header(
            records,
            settings.batch_bytes_max,
            now_ms,
            settings.message_timestamp_before_max_ms,
            settings.message_timestamp_after_max_ms,
        )
        if plain is not None:
            # Most batches. The others, and all that is wrong, are for the checks below.
            headers = [plain]
            duplicate = None if plain.producer_id < 0 else log.producers.check(headers)
            return _new_tuple(PreparedAppend, (records, headers, log.log_end_offset, duplicate, None, False))
    headers = check_batches(records, log.settings, origin, now_ms, append_id)
    if log.settings.is_compacted and origin is AppendOrigin.CLIENT:
        check_keys(records, headers[0], log.topic_partition)
    if append_id is not None and (append := log.producers.append_ids.find(append_id)) is not None:
        return _prepare_repeat(log, records, headers, append)
    duplicate = log.producers.check(headers)
    if (
        log.settings.compression_type != KEEP_PRODUCERS_CODEC
        and origin is AppendOrigin.CLIENT
        and duplicate is None
    ):
        # A client's records are one batch.
        records, header = recompressed(records, headers[0], log.settings)
        headers = [header]
    if len(records) > log.settings.segment_bytes and origin is AppendOrigin.CLIENT and duplicate is None:
        raise _too_large(log, len(records))
    keys = None
    if log.keys is not None and duplicate is None:
        keys = [keys_of(records, header) for header in headers]
    return PreparedAppend(records, headers, log.log_end_offset, duplicate, keys)


def _too_large(log: Log, size: int) -> BrokerError:
    topic, segment_bytes = log.topic_partition.topic, log.settings.segment_bytes
    return error_for(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"a batch of {size} bytes does not fit in a segment of {topic}: send smaller batches, or raise "
        f"segment.bytes, which is {segment_bytes}",
    )


def _prepare_repeat(
    log: Log, records: memoryview, headers: list[BatchHeader], append: NamedAppend
) -> PreparedAppend:
    """The answer to a batch whose append id the log has."""
    (header,) = headers
    if append.last_offset_delta != header.last_offset_delta:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"the append with this id wrote {append.last_offset_delta + 1} records at offset "
            f"{append.first_offset}, and this batch has {header.record_count}: give it an id of its own",
        )
    if append.digest not in (NO_DIGEST, content_digest(records, header)):
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"the append with this id, at offset {append.first_offset}, wrote records with other keys, "
            "values or headers: give this append an id of its own",
        )
    retried = log.producers.find(header)
    if retried is not None:
        return PreparedAppend(records, headers, log.log_end_offset, retried)
    last_offset = append.first_offset + append.last_offset_delta
    batch = AppendedBatch(NO_SEQUENCE, last_offset, append.last_offset_delta, append.timestamp)
    return PreparedAppend(records, headers, log.log_end_offset, batch, is_repeat=True)
