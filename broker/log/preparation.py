"""Prepares appends of a leader: checks the batches, and finds the earlier ones that they repeat."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.log.append import (
    AppendOrigin,
    PreparedAppend,
    check_append_id,
    check_batches,
    check_keys,
)
from holdfast_log.broker.log.append_ids import NO_DIGEST, NamedAppend
from holdfast_log.broker.log.decompression import INLINE_BYTES_MAX, INLINE_DECOMPRESSED_BYTES_MAX
from holdfast_log.broker.log.key_versions import keys_of
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.producer_entry import AppendedBatch
from holdfast_log.broker.log.recompression import recompressed
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.validation import Examined, ExcessiveRecordsError, check_times, examine
from holdfast_log.protocol.batches import (
    COMPRESSION_MASK,
    NO_SEQUENCE,
    BatchHeader,
    is_compressed,
    set_max_timestamp,
)
from holdfast_log.protocol.control_records import end_marker_of
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
    examined: Examined | BrokerError | None = None,
    verified_at: int | None = None,
) -> PreparedAppend:
    """Check whether batches may be appended or repeat earlier ones. Changes nothing.

    `records` is writable: offsets will be assigned in it, and a largest timestamp that is not that of the
    records is corrected, as in Kafka. `examined` is what `validation.examine` has made of a client's batch;
    without it, a small batch is examined here. Raises BrokerError as `check_batches`, `examine` and
    `ProducerStates.check` do, and NOT_LEADER_OR_FOLLOWER after a truncation until its checkpoint is durable,
    or for a large batch that was not examined for the settings that its topic has now;
    RECORD_LIST_TOO_LARGE if a client's batch is larger than segment.bytes;
    INVALID_RECORD for a record without a key if the topic is compacted; INVALID_REQUEST if the append with
    this `append_id` has other records; INVALID_TXN_STATE for a client's batch that would begin a transaction
    which its coordinator has not confirmed: `verified_at` is the producer's last marker
    (`ProducerStates.last_marker_of`) when the coordinator was asked, None if it was not.
    """
    if log.failure is not None or log.settling:
        log.check_may_grow()
    settings = log.settings
    if (
        settings.stores_as_sent
        and log.keys is None
        and append_id is None
        and origin is AppendOrigin.CLIENT
        # The records of an uncompressed batch that was examined are many: they are not read again.
        and (examined is None or is_compressed(records))
    ):
        plain = plain_header(
            records,
            settings.batch_bytes_max,
            now_ms,
            settings.message_timestamp_before_max_ms,
            settings.message_timestamp_after_max_ms,
        )
        if plain is not None and (
            not plain.attributes & COMPRESSION_MASK or _is_sound(examined, plain, settings, now_ms)
        ):
            # Most batches. The others, and all that is wrong, are for the checks below.
            headers = [plain]
            duplicate = None if plain.producer_id < 0 else log.producers.check(headers)
            return _new_tuple(PreparedAppend, (records, headers, log.log_end_offset, duplicate, None, False))
    headers = check_batches(records, log.settings, origin, now_ms, append_id)
    packed: bytes | None = None
    if origin is AppendOrigin.CLIENT:
        # A client's records are one batch.
        found = _examination(records, headers[0], settings, examined, log.topic_partition.topic)
        verdict, packed = found.verdict, found.packed
        if settings.is_compacted:
            check_keys(verdict, headers[0], log.topic_partition)
        if not settings.uses_log_append_time:
            check_times(verdict, settings, now_ms)
            if verdict.most != headers[0].max_timestamp:
                headers = [set_max_timestamp(records, headers[0], verdict.most)]
    if append_id is not None:
        check_append_id(records, headers[0], append_id)
    if append_id is not None and (append := log.producers.append_ids.find(append_id)) is not None:
        return _prepare_repeat(log, records, headers, append)
    duplicate = log.producers.check(headers)
    if duplicate is None:
        _check_transactions(log, records, headers, origin, verified_at)
    if packed is not None and duplicate is None:
        records, header = recompressed(packed, headers[0], settings)
        headers = [header]
    if len(records) > log.settings.segment_bytes and origin is AppendOrigin.CLIENT and duplicate is None:
        raise _too_large(log, len(records))
    keys = None
    if log.keys is not None and duplicate is None:
        keys = [keys_of(records, header) for header in headers]
    return PreparedAppend(records, headers, log.log_end_offset, duplicate, keys)


def _check_transactions(
    log: Log,
    records: memoryview,
    headers: Sequence[BatchHeader],
    origin: AppendOrigin,
    verified_at: int | None,
) -> None:
    """Check what the batches begin and end (KIP-98, KIP-890)."""
    producers = log.producers
    for header in headers:
        if header.is_control:
            marker = end_marker_of(records, header)
            if marker is not None:
                producers.check_marker(header, marker)
        elif (
            header.is_transactional
            and origin is AppendOrigin.CLIENT
            and not producers.continues_transaction(header)
            # A marker since then has ended the transaction that the coordinator has confirmed.
            and verified_at != producers.last_marker_of(header.producer_id)
        ):
            raise error_for(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has no transaction open in {log.topic_partition}: "
                "begin one, and add the partition to it",
            )


def _is_sound(
    examined: Examined | BrokerError | None, header: BatchHeader, settings: LogSettings, now_ms: int
) -> bool:
    """Whether a compressed batch was examined, and its records may be appended as they are."""
    if not isinstance(examined, Examined):
        return False
    verdict = examined.verdict
    before_max_ms = settings.message_timestamp_before_max_ms
    return verdict.most == header.max_timestamp and (
        verdict.least < 0 or now_ms - verdict.least <= before_max_ms
    )


def _examination(
    records: memoryview,
    header: BatchHeader,
    settings: LogSettings,
    examined: Examined | BrokerError | None,
    topic: str,
) -> Examined:
    if isinstance(examined, BrokerError):
        raise examined
    if examined is not None and examined.settings.codec == settings.codec:
        return examined
    limit = INLINE_DECOMPRESSED_BYTES_MAX if header.compression else INLINE_BYTES_MAX
    try:
        if header.size <= limit:
            return examine(records, header, settings, limit)
    except ExcessiveRecordsError:
        pass
    # It would take too long here. Nobody has examined it for the settings that its topic has now.
    raise error_for(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic} was changed while the batch was being examined: try again"
    )


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
