"""Checks of batches before anything is appended to a log."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from holdfast_log.broker.log.key_runs import KeyEntry
from holdfast_log.broker.log.producer_entry import AppendedBatch
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.protocol.batches import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    check,
    has_valid_crc,
    read_header,
    split,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode, InvalidRecordError, error_for
from holdfast_log.protocol.record_validation import RecordsVerdict
from holdfast_log.protocol.records import APPEND_ID_HEADER, append_id_of
from holdfast_log.protocol.topic_partition import TopicPartition


class AppendOrigin(enum.Enum):
    """Source of batches for a leader's log."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    """The broker itself: groups and their offsets, transaction markers."""


class PreparedAppend(NamedTuple):
    """Checked batches without offsets, valid until the log grows: at most until the reactor's turn ends.

    `duplicate` is the earlier batch that they repeat; then nothing is appended. `is_repeat`: they repeat it
    by their append id, and not as the retry of one producer's batch. `keys` has, for each batch, the digests
    of its records' keys, with their offsets relative to the batch; None if the topic has no key.versions.
    """

    records: memoryview
    headers: Sequence[BatchHeader]
    log_end_offset: int
    duplicate: AppendedBatch | None = None
    keys: Sequence[Sequence[KeyEntry]] | None = None
    is_repeat: bool = False


class AppendResult(NamedTuple):
    """Offsets of appended batches.

    `log_append_time_ms` is -1 if the records keep their producer's timestamps. `is_duplicate`: the log
    already had the batches, at these offsets.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


def check_batches(
    records: memoryview,
    settings: LogSettings,
    origin: AppendOrigin,
    now_ms: int,
    append_id: bytes | None = None,
) -> list[BatchHeader]:
    """Check batches sent to a leader, except their sequences and records. Returns their headers.

    Raises BrokerError: the errors of `protocol.batches.check`; INVALID_TIMESTAMP; INVALID_RECORD if a client
    sends no batch, several batches, a control batch, or a batch with another append id than `append_id`.
    """
    headers = split(records)
    if origin is AppendOrigin.CLIENT:
        if len(headers) != 1:
            raise _invalid(f"the records of a partition must be one batch, not {len(headers)}")
        if not headers[0].is_plain:
            _check_marks(headers[0], append_id)
    elif not headers:
        raise _invalid("the request has no batch for the partition")
    for header in headers:
        check(records, header, settings.max_message_bytes)
        if not settings.uses_log_append_time:
            _check_timestamps(header, settings, now_ms)
    return headers


def check_keys(verdict: RecordsVerdict, header: BatchHeader, partition: TopicPartition) -> None:
    """Check that every record of a batch has a key. Raises InvalidRecordError with the records that have
    none."""
    missing = verdict.missing
    if not missing:
        return
    why = f"Compacted topic cannot accept message without key in topic partition {partition}."
    raise InvalidRecordError(
        message=f"{verdict.missing_keys} of {header.record_count} records have no key, the first at index "
        f"{missing[0]} of the batch. Nothing of the batch was written, because {partition.topic} is "
        "compacted (cleanup.policy=compact), which keeps the last record of each key",
        records=[(index, why) for index in missing],
    )


def check_append_id(records: memoryview, header: BatchHeader, append_id: bytes) -> None:
    """Check that a batch has this append id. Raises BrokerError with INVALID_RECORD if not."""
    if not header.has_append_id or append_id_of(records, header) != append_id:
        raise _invalid(
            f"the first record must have the append id in a header {APPEND_ID_HEADER}, and bit 14 of the "
            "batch's attributes must be set"
        )


def _check_marks(header: BatchHeader, append_id: bytes | None) -> None:
    if header.has_append_id and append_id is None:
        raise _invalid("the batch is marked to have an append id, which needs a condition with that id")
    if header.is_control or header.has_delete_horizon:
        raise _invalid("clients may write neither control batches nor batches with a delete horizon")
    if header.is_transactional and header.base_sequence < 0:
        raise _invalid(f"the transactional batch has sequence {header.base_sequence}")


def _check_timestamps(header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    if header.has_log_append_time:
        raise _invalid_timestamp(
            "the batch is marked LogAppendTime, but the topic has message.timestamp.type=CreateTime"
        )
    # Compare differences: adding a limit of 2**63 - 1 to a timestamp would exceed 64 bits.
    if header.max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        raise _invalid_timestamp(
            f"timestamp {header.max_timestamp} is more than {settings.message_timestamp_after_max_ms} ms "
            "ahead"
        )
    base_timestamp = header.base_timestamp
    if now_ms - base_timestamp > settings.message_timestamp_before_max_ms and base_timestamp > NO_TIMESTAMP:
        raise _invalid_timestamp(
            f"timestamp {base_timestamp} is more than {settings.message_timestamp_before_max_ms} ms old"
        )


def check_fetched(records: memoryview, log_end_offset: int, *, is_dense: bool) -> list[BatchHeader]:
    """As `sound_batches`, but raises its error."""
    headers, error = sound_batches(records, log_end_offset, is_dense=is_dense)
    if error is not None:
        raise error
    return headers


def sound_batches(
    records: memoryview,
    log_end_offset: int,
    *,
    is_dense: bool,
    latest_epoch: int = NO_LEADER_EPOCH,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[list[BatchHeader], BrokerError | None]:
    """The headers of the complete batches that a follower fetched, up to the first that is not sound, and
    what is wrong with that one. A last batch that is cut off is skipped.

    No batch may begin below `log_end_offset`. If the log `is_dense`, each batch must begin where the one
    before it ended: only compaction leaves gaps, so here a gap means that the leader's files have lost
    records. No batch may be of an earlier leader epoch than the one before it, which is of `latest_epoch`,
    or of a later one than `leader_epoch`, in which the leader leads; -1: unknown. The errors:
    CORRUPT_MESSAGE for a damaged batch, OFFSET_OUT_OF_RANGE for a batch that overlaps existing records or
    leaves a gap.
    """
    headers: list[BatchHeader] = []
    expected, position, size = log_end_offset, 0, len(records)
    try:
        while size - position >= HEADER_SIZE:
            header = read_header(records, position)
            position = header.end
            if position > size:
                break
            _check_fetched(records, header, expected, is_dense=is_dense)
            _check_fetched_epoch(header, latest_epoch, leader_epoch)
            headers.append(header)
            expected, latest_epoch = header.next_offset, header.leader_epoch
    except BrokerError as error:
        return headers, error.with_traceback(None)
    return headers, None


def _check_fetched(records: memoryview, header: BatchHeader, expected: int, *, is_dense: bool) -> None:
    if not has_valid_crc(records, header):
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"the fetched batch at {header.base_offset} is damaged")
    if header.base_offset < expected or header.last_offset_delta < 0:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a fetched batch begins at offset {header.base_offset}, before the log's end at {expected}",
        )
    if header.base_offset > expected and is_dense:
        raise error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"a fetched batch begins at {header.base_offset}, the log ends at {expected}: the leader has "
            "lost the records between or compacted them, or its batch is damaged. If they are compacted, set "
            "cleanup.policy=compact,delete",
        )


def _check_fetched_epoch(header: BatchHeader, latest_epoch: int, leader_epoch: int) -> None:
    """No checksum covers the leader epoch. A log that believed a wrong one would differ from its leader's."""
    epoch = header.leader_epoch
    if NO_LEADER_EPOCH in (epoch, leader_epoch) or latest_epoch <= epoch <= leader_epoch:
        return
    raise error_for(
        ErrorCode.CORRUPT_MESSAGE,
        f"the fetched batch at {header.base_offset} is damaged: it has leader epoch {epoch}, the batch "
        f"before it {latest_epoch}, and its leader leads in {leader_epoch}",
    )


def _invalid(message: str) -> BrokerError:
    return error_for(ErrorCode.INVALID_RECORD, message)


def _invalid_timestamp(message: str) -> BrokerError:
    return error_for(ErrorCode.INVALID_TIMESTAMP, message)
