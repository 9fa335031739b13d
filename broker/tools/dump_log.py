"""Print the contents of a log's files, in the format of Kafka's DumpLogSegments.

    dump-log.sh --files data/flights-0/00000000000000000000.log,data/flights-0/00000000000000000000.index

Only reads the files, so the broker may be running. Exits with status 1 if a file is damaged or an index does
not match its log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from holdfast_log.broker.log import checkpoints, names, scan
from holdfast_log.broker.log.aborted_index import ENTRY, decode_entries
from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.open_files import OpenFiles
from holdfast_log.broker.log.producer_state import decode_snapshot
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.tools.internal_records import RecordDecoder, of_offsets, of_transactions
from holdfast_log.coordinator.shards.effects import MalformedRecord
from holdfast_log.protocol.batches import BatchHeader, Compression, TimestampType, has_valid_crc
from holdfast_log.protocol.control_records import readable_end_marker
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.records import Record, iterate

_DECODERS: dict[str | None, RecordDecoder | None] = {
    None: None,
    "offsets": of_offsets,
    "transactions": of_transactions,
}


class DamagedFile(Exception):
    """A file is damaged; the message gives the file and the position."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--files", required=True, help="The files to print, separated by commas.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values too; implies --deep-iteration.")
@click.option(
    "--offsets-decoder",
    "decoder",
    flag_value="offsets",
    help="Print records of __consumer_offsets as JSON; implies --print-data-log.",
)
@click.option(
    "--transaction-log-decoder",
    "decoder",
    flag_value="transactions",
    help="Print records of __transaction_state as JSON; implies --print-data-log.",
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option("--deep-iteration", is_flag=True, help="Print every record, not only the batches.")
@click.option("--max-message-size", type=int, default=5 << 20, help="Maximum size of a batch in bytes.")
@click.option("--max-bytes", type=int, default=2**63 - 1, help="Bytes of a .log file after which to stop.")
@click.option("--index-sanity-check", is_flag=True, help="Only check that an index fits its log.")
@click.option(
    "--verify-index-only", is_flag=True, help="Check an index against its log, and print nothing else."
)
def main(
    files: str,
    print_data_log: bool,
    decoder: str | None,
    skip_record_metadata: bool,
    deep_iteration: bool,
    max_message_size: int,
    max_bytes: int,
    index_sanity_check: bool,
    verify_index_only: bool,
) -> None:
    """Print the contents of a log's files: batches, records, index entries, producers, epochs.

    \b
    dump-log.sh --files /var/lib/holdfast/orders-0/00000000000000000000.log --print-data-log
    dump-log.sh --files data/__consumer_offsets-7/00000000000000000000.log --offsets-decoder
    """
    status = 0
    printed = None
    if deep_iteration or print_data_log or decoder is not None:
        has_data = print_data_log or decoder is not None
        printed = RecordLines(has_data, _DECODERS[decoder], has_metadata=not skip_record_metadata)
    for path in filter(None, (name.strip() for name in files.split(","))):
        click.echo(f"Dumping {path}")
        try:
            match os.path.splitext(path)[1]:
                case names.LOG:
                    lines = _log_lines(path, max_bytes, max_message_size, printed)
                case names.INDEX | names.TIME_INDEX:
                    lines = _index_lines(path, index_sanity_check, verify_index_only)
                case names.TRANSACTION_INDEX:
                    lines = _aborted_lines(path)
                case names.SNAPSHOT:
                    lines = _snapshot_lines(path)
                case _ if os.path.basename(path) == names.LEADER_EPOCHS:
                    lines = _epoch_lines(path)
                case _:
                    raise DamagedFile(f"ignoring a file of unknown kind: {path}")
            for line in lines:
                click.echo(line)
        except (DamagedFile, MalformedRecord, ValueError, BrokerError, OSError) as error:
            click.echo(str(error), err=True)
            status = 1
    sys.exit(status)


def _log_lines(path: str, max_bytes: int, max_batch: int, records: RecordLines | None) -> Iterator[str]:
    yield f"Log starting offset: {_offset_in_name(path)}"
    file = OsDisk().open(path)
    end = min(file.size(), max_bytes)
    position, invalid = 0, 0
    for header in scan.headers(file, 0, end):
        if header.size > max_batch:
            raise DamagedFile(
                f"a batch of {header.size} bytes at position {position}, at most {max_batch} are read"
            )
        data = file.pread(header.size, header.position)
        inner = header._replace(position=0)
        is_valid = has_valid_crc(data, inner)
        invalid += not is_valid
        yield _batch_line(header, is_valid)
        if records is not None and is_valid:
            for record in iterate(data, inner):
                yield records.line(record, header) + _marker(data, inner)
        position = header.end
    if position < end and end == file.size():
        raise DamagedFile(f"{end - position} bytes from position {position} on are not a complete batch")
    if invalid:
        raise DamagedFile(f"{path}: the checksums of {invalid} batches do not match")


def _batch_line(header: BatchHeader, is_valid: bool) -> str:
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_boolean(header.is_transactional)} "
        f"isControl: {_boolean(header.is_control)} "
        f"deleteHorizonMs: {_delete_horizon(header)} position: {header.position} "
        f"{_timestamp_name(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {_codec(header)} crc: {header.crc} isvalid: {_boolean(is_valid)}"
    )


@dataclass(frozen=True, slots=True)
class RecordLines:
    """What is printed of each record: where it is, its key and value, and these as `decode` reads them."""

    has_data: bool
    decode: RecordDecoder | None
    has_metadata: bool = True

    def line(self, record: Record, header: BatchHeader) -> str:
        """The line of a record. Raises MalformedRecord if it cannot be decoded."""
        parts = [_record_metadata(record, header)] if self.has_metadata else []
        if self.has_data and not header.is_control:
            key, value = self._data(record)
            parts += [] if key is None else [f"key: {key}"]
            parts += [] if value is None else [f"payload: {value}"]
        return "| " + " ".join(parts)

    def _data(self, record: Record) -> tuple[str | None, str | None]:
        if self.decode is None or record.key is None:
            return _readable(record.key), _readable(record.value)
        value = None if record.value is None else bytes(record.value)
        return self.decode(bytes(record.key), value)


def _readable(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _record_metadata(record: Record, header: BatchHeader) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    return (
        f"offset: {record.offset} {_timestamp_name(header)}: {record.timestamp} "
        f"keySize: {key_size} valueSize: {value_size} sequence: {_sequence(record, header)} "
        f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
    )


def _marker(data: bytes, header: BatchHeader) -> str:
    """What a control record says."""
    marker = readable_end_marker(data, header) if header.is_control else None
    if marker is None:
        return ""
    kind = "COMMIT" if marker.is_commit else "ABORT"
    return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"


def _sequence(record: Record, header: BatchHeader) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF


def _timestamp_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def _delete_horizon(header: BatchHeader) -> str:
    return f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return str(header.compression)


def _boolean(value: bool) -> str:
    return str(value).lower()


def _index_lines(path: str, only_sanity: bool, only_verify: bool) -> Iterator[str]:
    """Print the entries of an index, and compare each with its log."""
    segment, is_time_index = _segment_of(path)
    index = segment.indexes.times if is_time_index else segment.indexes.offsets
    fits = (
        segment.indexes.times.is_sound(segment.next_offset)
        if is_time_index
        else segment.indexes.offsets.is_sound(segment.size, segment.next_offset)
    )
    if not fits:
        raise DamagedFile(
            f"{path} does not fit its log: its entries do not ascend, or the last one is impossible, "
            f"{index.last()}"
        )
    if only_sanity:
        yield f"{path} passed sanity check."
        return
    wrong = 0
    for first, second in index.pairs():
        if not only_verify:
            if is_time_index:
                yield f"timestamp: {first} offset: {segment.base_offset + second}"
            else:
                yield f"offset: {segment.base_offset + first} position: {second}"
        problem = (
            _time_problem(segment, first, second)
            if is_time_index
            else _offset_problem(segment, first, second)
        )
        if problem is not None:
            wrong += 1
            yield problem
    if wrong:
        raise DamagedFile(f"{path}: {wrong} of {len(index)} entries do not fit the log")
    if only_verify:
        yield f"{path}: all {len(index)} entries fit the log."


def _offset_problem(segment: Segment, relative_offset: int, position: int) -> str | None:
    offset = segment.base_offset + relative_offset
    header = next(segment.headers(position), None)
    if header is None:
        return f"  no batch begins at position {position}"
    if not header.base_offset <= offset:
        return f"  the batch at position {position} begins at {header.base_offset}, after {offset}"
    return None


def _time_problem(segment: Segment, timestamp: int, relative_offset: int) -> str | None:
    offset = segment.base_offset + relative_offset
    header = next((header for header in segment.headers(0) if header.last_offset >= offset), None)
    if header is None:
        return f"  no batch has offset {offset}"
    if header.max_timestamp != timestamp:
        return f"  the batch with offset {offset} has timestamp {header.max_timestamp}, not {timestamp}"
    return None


def _segment_of(path: str) -> tuple[Segment, bool]:
    disk = OsDisk()
    directory = os.path.dirname(path) or "."
    segment = Segment(OpenFiles(disk), directory, _offset_in_name(path), LogSettings())
    segment.size = disk.size(segment.path)
    for header in segment.headers(0):
        segment.next_offset = header.next_offset
    is_time_index = path.endswith(names.TIME_INDEX)
    (segment.indexes.times if is_time_index else segment.indexes.offsets).path = path
    return segment, is_time_index


def _aborted_lines(path: str) -> Iterator[str]:
    data = OsDisk().read(path)
    for entry in decode_entries(data):
        yield (
            f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
            f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
        )
    if len(data) % ENTRY.size:
        raise DamagedFile(f"{path}: the last {len(data) % ENTRY.size} bytes are not a whole entry")


def _snapshot_lines(path: str) -> Iterator[str]:
    for entry in decode_snapshot(OsDisk().read(path)):
        last = entry.batches[-1] if entry.batches else None
        yield (
            f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {entry.transaction_offset} "
            f"lastTimestamp: {entry.last_write_ms} firstSequence: {last.first_sequence if last else -1} "
            f"lastSequence: {entry.last_sequence} lastOffset: {last.last_offset if last else -1} "
            f"offsetDelta: {last.offset_delta if last else 0}"
        )


def _epoch_lines(path: str) -> Iterator[str]:
    for epoch, offset in checkpoints.decode_epochs(OsDisk().read(path)):
        yield f"leaderEpoch: {epoch} startOffset: {offset}"


def _offset_in_name(path: str) -> int:
    file = names.parse_offset_file(os.path.basename(path))
    if file is None:
        raise DamagedFile(f"{path} is not named after an offset")
    return file.offset


if __name__ == "__main__":
    main(prog_name="dump-log.sh")
