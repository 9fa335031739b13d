"""dump-log: its output for each kind of file, and how it reports damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.disk import OsDisk
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.tools.dump_log import main
from holdfast_log.coordinator.groups.records import CommittedOffset, offset_record
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import encoded
from tests.models.logs import NOW_MS, append, append_as_leader, new_log
from tests.models.transactional import transactional_batch


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = new_log(OsDisk(), str(tmp_path / "flights-3"), index_interval_bytes=0)
    append(log, 1000, 2000, leader_epoch=4, producer_id=8, epoch=1, sequence=0)
    append(log, 3000, leader_epoch=5)
    close_log(log)
    return tmp_path / "flights-3"


def dump(*paths: Path, flags: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(main, ["--files", ",".join(map(str, paths)), *flags])


def log_file(directory: Path, kind: str = ".log", offset: int = 0) -> Path:
    return directory / f"{offset:020d}{kind}"


def test_dump_log_prints_the_batches_of_a_log(directory: Path) -> None:
    result = dump(log_file(directory))
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[:2] == [f"Dumping {log_file(directory)}", "Log starting offset: 0"]
    assert lines[2].startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 8 producerEpoch: 1 "
        "partitionLeaderEpoch: 4 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 2000 size: "
    )
    assert lines[2].endswith("isvalid: true")
    assert len(lines) == 4


def test_dump_log_prints_records_with_their_data(directory: Path) -> None:
    lines = dump(log_file(directory), flags=("--print-data-log",)).output.splitlines()
    assert lines[4] == (
        "| offset: 1 CreateTime: 2000 keySize: 3 valueSize: 10 sequence: 1 headerKeys: [] "
        "key: key payload: vvvvvvvvvv"
    )
    without = dump(log_file(directory), flags=("--deep-iteration",)).output
    assert "| offset: 1 CreateTime: 2000 keySize: 3 valueSize: 10 sequence: 1 headerKeys: []\n" in without


def test_dump_log_prints_records_of_internal_topics_as_json(tmp_path: Path) -> None:
    log = new_log(OsDisk(), str(tmp_path / "__consumer_offsets-0"))
    at = TopicPartition("orders", 3)
    for record in (offset_record("g", at, CommittedOffset(42, 5, "", 1000)), offset_record("g", at, None)):
        add(log, encoded([(NOW_MS, record.key, record.value)]))
    close_log(log)
    path = log_file(tmp_path / "__consumer_offsets-0")
    flags = ("--offsets-decoder", "--skip-record-metadata")
    lines = [line for line in dump(path, flags=flags).output.splitlines() if line.startswith("| ")]
    key = 'key: {"type":"1","data":{"group":"g","topic":"orders","partition":3}}'
    assert lines[1] == f"| {key}"
    assert lines[0].startswith(f'| {key} payload: {{"version":"3","data":{{"offset":42,')
    assert "| offset: 1 CreateTime: " in dump(path, flags=("--offsets-decoder",)).output
    wrong = dump(path, flags=("--transaction-log-decoder",))
    assert wrong.exit_code == 1 and "of the unknown type 1" in wrong.output


def test_dump_log_prints_markers_and_aborted_transactions(tmp_path: Path) -> None:
    log = new_log(OsDisk(), str(tmp_path / "flights-3"))
    add(log, transactional_batch(b"x", producer_id=8))
    add(log, end_marker_batch(8, 0, EndMarker(is_commit=False, coordinator_epoch=3), NOW_MS))
    close_log(log)
    result = dump(log_file(tmp_path / "flights-3", ".txnindex"))
    assert result.output.splitlines()[1:] == [
        "version: 0 producerId: 8 firstOffset: 0 lastOffset: 1 lastStableOffset: 2"
    ]
    lines = dump(log_file(tmp_path / "flights-3"), flags=("--print-data-log",)).output.splitlines()
    assert lines[-1].endswith(" headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 3")
    (tmp_path / "flights-3" / log_file(tmp_path, ".txnindex").name).write_bytes(bytes(35))
    assert dump(log_file(tmp_path / "flights-3", ".txnindex")).exit_code == 1


def add(log: Log, records: bytearray) -> None:
    append_as_leader(log, memoryview(records), 0, origin=AppendOrigin.COORDINATOR, now_ms=NOW_MS)


def test_dump_log_prints_indexes_snapshots_and_epochs(directory: Path) -> None:
    result = dump(
        log_file(directory, ".index"),
        log_file(directory, ".timeindex"),
        log_file(directory, ".snapshot", 3),
        directory / "leader-epoch-checkpoint",
    )
    assert result.exit_code == 0
    for line in (
        "offset: 2 position: ",
        "timestamp: 3000 offset: 2\n",
        "producerId: 8 producerEpoch: 1 coordinatorEpoch: -1 currentTxnFirstOffset: -1 "
        f"lastTimestamp: {NOW_MS} firstSequence: 0 lastSequence: 1 lastOffset: 1 offsetDelta: 1\n",
        "leaderEpoch: 4 startOffset: 0\nleaderEpoch: 5 startOffset: 2\n",
    ):
        assert line in result.output


def test_an_undamaged_index_passes_the_checks_of_dump_log(directory: Path) -> None:
    for kind in (".index", ".timeindex"):
        path = log_file(directory, kind)
        assert f"{path} passed sanity check.\n" in dump(path, flags=("--index-sanity-check",)).output
        result = dump(path, flags=("--verify-index-only",))
        assert result.exit_code == 0 and "entries fit the log" in result.output


def test_dump_log_reports_damage_with_exit_status_1(directory: Path) -> None:
    path = log_file(directory)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = dump(path)
    assert result.exit_code == 1 and result.stdout.splitlines()[-1].endswith("isvalid: false")
    path.write_bytes(data[:-5])
    result = dump(path)
    assert result.exit_code == 1 and "are not a complete batch" in result.output
    index = log_file(directory, ".index")
    index.write_bytes(b"\0\0\0\1\0\0\0\7")
    assert dump(index, flags=("--verify-index-only",)).exit_code == 1
    assert dump(directory / "nothing.log").exit_code == 1
    assert dump(directory / "what.ever").exit_code == 1
