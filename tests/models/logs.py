"""Real logs (`broker.log`) on simulated disks."""

from __future__ import annotations

import random
import uuid
from typing import Any

from holdfast_log.broker.log.append import AppendOrigin, AppendResult
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.loading import LoadRequest
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.recovery import create_log, load_log
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.log.timestamps import LookUp, TimestampOffset
from holdfast_log.protocol import batches
from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.models.batches import START_MS as NOW_MS
from tests.models.batches import timed_batch
from tests.models.disk import SimDisk

PARTITION = TopicPartition("flights", 3)
DIRECTORY = "/data/flights-3"


def sim_disk(seed: int = 0) -> SimDisk:
    """A disk with the log directory /data."""
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    disk.make_directory("/data")
    disk.fsync_directory("/")
    return disk


def request(directory: str = DIRECTORY, **values: Any) -> LoadRequest:
    config = values.pop("config", LogSettings())
    return LoadRequest(PARTITION, directory, config, NOW_MS, **values)


def new_log(disk: Disk, directory: str = DIRECTORY, **config: Any) -> Log:
    return create_log(disk, request(directory, config=LogSettings(**config)))


def reopen(disk: Disk, log: Log, *, is_clean: bool, recovery_point: int = 0, **values: Any) -> Log:
    """The same log as another process would find it."""
    wanted = request(
        log.directory, config=log.settings, is_clean=is_clean, recovery_point=recovery_point, **values
    )
    return load_log(disk, wanted)


def restarted(disk: SimDisk, log: Log, *, is_clean: bool) -> Log:
    """The log as the next process finds it after a clean stop or a kill. The checkpoints are up to date."""
    if is_clean:
        close_log(log)
    else:
        disk.kill_process()
    return reopen(
        disk, log,
        is_clean=is_clean, recovery_point=log.recovery_point, log_start_offset=log.log_start_offset,
        cleaned_offset=log.cleaned_offset,
    )  # fmt: skip


def make_rivals(
    disk: Disk,
    older_id: uuid.UUID,
    newer_id: uuid.UUID,
    partition: TopicPartition = PARTITION,
    older_epoch: int = 0,
) -> None:
    """Two logs of one name: while /d1 was offline, a topic was deleted and created again in /d2. The older
    log is longer, and may have the later leader epochs."""
    for path, topic_id, leader_epoch, count in (("/d1", older_id, older_epoch, 2), ("/d2", newer_id, 0, 1)):
        disk.make_directory(path)
        log = create_log(
            disk, LoadRequest(partition, f"{path}/{partition}", LogSettings(), NOW_MS, topic_id=topic_id)
        )
        for _ in range(count):
            append(log, leader_epoch=leader_epoch)
        close_log(log)


def append_as_leader(
    log: Log,
    records: memoryview,
    leader_epoch: int,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    now_ms: int,
) -> AppendResult:
    """Check batches and append them, as a leader does in two steps."""
    prepared = prepare_append(log, records, origin=origin, now_ms=now_ms)
    return log.append_prepared(prepared, leader_epoch, now_ms=now_ms)


def append(log: Log, *timestamps: int, leader_epoch: int = 0, **values: int) -> int:
    """Append one batch. Returns its first offset."""
    records = timed_batch(*timestamps, **values)
    return append_as_leader(log, records, leader_epoch, now_ms=NOW_MS).first_offset


def read_all(log: Log, max_bytes: int = 1000) -> bytes:
    """All bytes of a log, by reads of `max_bytes`."""
    parts = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, max_bytes, upper_offset=log.log_end_offset)
        if read.slice is None:
            break
        parts.append(read.slice.read())
        assert read.next_offset > offset
        offset = read.next_offset
    assert offset == log.log_end_offset
    return b"".join(parts)


def headers_of(log: Log) -> list[BatchHeader]:
    return batches.split(read_all(log))


def look_up_at_once(look_up: LookUp) -> TimestampOffset | None:
    """Run a look-up to its end on this thread. Raises its errors."""
    try:
        search = next(look_up)
        while True:
            try:
                step = search.run()
            except Exception as error:
                search = look_up.throw(error)
            else:
                search = look_up.send(step)
    except StopIteration as end:
        result: TimestampOffset | None = end.value
        return result
