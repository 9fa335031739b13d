"""Judges retention: only whole segments that are committed and really expired may leave the beginning of a
log, and what has expired does leave it.

The judge reads sizes and timestamps from the log files themselves, before any bit changed, and takes the
limits from the plan. It shares no code with the broker's decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from holdfast_log.broker.log import names
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication import retention
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.batches import BatchHeader, read_header
from holdfast_log.protocol.errors import BrokerError
from tests.models.disk import SimDisk
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History, Incarnation
from tests.sim.plan import RETENTION_CHECK_MS, Topic

_SLACK_MS = 2 * RETENTION_CHECK_MS + 3000
"""How much later than its limit a segment may still be there in a healthy cluster, in ms."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One segment's file: its batches, their bytes, and when it was last written."""

    base_offset: int
    data: bytes
    headers: Sequence[BatchHeader]
    written_ms: int

    @property
    def latest_ms(self) -> int:
        return max((header.max_timestamp for header in self.headers), default=-1)

    @property
    def next_offset(self) -> int:
        return self.headers[-1].next_offset if self.headers else self.base_offset


def stored_files(disk: SimDisk, directory: str) -> list[StoredFile]:
    """The segments in a log's directory, oldest first."""
    found = []
    for name in disk.list(directory):
        file = names.parse_offset_file(name)
        if file is not None and file.kind == names.LOG and not file.marker:
            (data,) = disk.contents(directory, name)
            written_ms = disk.modified_ms(f"{directory}/{name}")
            found.append(StoredFile(file.offset, data, list(_headers(data)), written_ms))
    return sorted(found, key=lambda file: file.base_offset)


def _headers(data: bytes) -> Iterator[BatchHeader]:
    position = 0
    while position < len(data):
        try:
            header = read_header(data, position)
        except BrokerError:
            return
        if header.end > len(data):
            return
        yield header
        position = header.end


class RetentionJudge:
    """Judges every removal by a broker's retention, and lets the history know what is gone."""

    def __init__(self, cluster: Cluster, history: History, topics: Sequence[Topic]) -> None:
        self._cluster = cluster
        self._history = history
        self._limits = {topic.name: _limits(topic) for topic in topics}
        self.removals = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every move of a log start by retention."""
        move = retention.move_log_start

        def judged(log: Log, offset: int, **more: Any) -> None:
            if offset > log.log_start_offset:
                self._judge(log, offset)
            move(log, offset, **more)

        with mock.patch.object(retention, "move_log_start", judged):
            yield

    def _judge(self, log: Log, offset: int) -> None:
        machine, partition = self._owner(log)
        place = Incarnation(partition.key, partition.topic_id)
        age_ms_max, bytes_max = self._limits.get(partition.topic, (-1, -1))
        assert machine.process is not None
        now_ms = machine.process.clock.date_ms()
        files = stored_files(machine.disk, log.directory)
        committed = (self._history.committed or {}).get(place, 0)
        what = f"{place}: broker {partition.local_id} removes the records before {offset}"
        self.removals += 1
        if offset > committed:
            self._history.violation(f"{what}, though only those before {committed} are committed")
        begins = [file.base_offset for file in files]
        is_compacted = partition.topic in self._history.compacted
        # A cleaner may have merged segments since the broker has decided, and removed records between them.
        if not is_compacted and offset not in [*begins, log.log_end_offset]:
            self._history.violation(f"{what}, where no segment begins")
        for number, file in enumerate(files):
            if file.base_offset >= offset:
                break
            if file.next_offset <= log.log_start_offset and number + 1 < len(files):
                continue
            dates_ms = [header.max_timestamp for header in file.headers if header.base_offset < offset]
            latest_ms = max(dates_ms, default=-1) if is_compacted else file.latest_ms
            if latest_ms > now_ms:
                latest_ms = min(latest_ms, file.written_ms)  # That time has not come yet.
            is_old = 0 <= age_ms_max < now_ms - latest_ms
            rest = sum(len(later.data) for later in files[number + 1 :])
            if not is_old and not 0 <= bytes_max <= rest:
                self._history.violation(
                    f"{what}, of {now_ms - latest_ms} ms age and {rest} bytes before the log's end, "
                    f"though the limits are {age_ms_max} ms and {bytes_max} bytes"
                )
        self._note(place, partition, files, offset)

    def _note(
        self, place: Incarnation, partition: Partition, files: Sequence[StoredFile], offset: int
    ) -> None:
        """Read the records once more before they go: consumers may not have got them, and those that have
        must have got the same."""
        deleted = self._history.deleted.get(place, 0)
        for file in files:
            for header in file.headers:
                if header.next_offset > deleted and header.base_offset < offset:
                    values = self._history.values_of(place, memoryview(file.data), header)
                    who = f"the retention of broker {partition.local_id}"
                    self._history.saw(who, place, header.base_offset, values)
        self._history.deletes(place, offset)

    def _owner(self, log: Log) -> tuple[Machine, Partition]:
        return next(
            (machine, partition)
            for machine in self._cluster.machines
            for partition in machine.partitions()
            if partition.log is log
        )

    def overdue(self) -> Iterator[str]:
        """The first segments of logs that should have been removed some time ago: only what stays so in a
        healthy cluster is a violation."""
        for machine in self._cluster.machines:
            for partition in machine.partitions():
                age_ms_max, bytes_max = self._limits.get(partition.topic, (-1, -1))
                if partition.is_offline or max(age_ms_max, bytes_max) < 0:
                    continue
                assert machine.process is not None
                now_ms = machine.process.clock.date_ms()
                files = stored_files(machine.disk, partition.log.directory)
                first = files[0]
                # Compaction may leave only batches without records, which have no timestamps.
                has_come = 0 <= first.latest_ms <= now_ms
                latest_ms = first.latest_ms if has_come else first.written_ms
                is_old = 0 <= age_ms_max < now_ms - latest_ms - _SLACK_MS
                is_beyond = 0 <= bytes_max <= sum(len(later.data) for later in files[1:])
                if first.headers and first.next_offset <= partition.high_watermark and (is_old or is_beyond):
                    yield (
                        f"{partition.key} on {machine.name} still begins at {first.base_offset}, "
                        f"{now_ms - latest_ms} ms old and {sum(len(each.data) for each in files)} "
                        f"bytes in all, though the limits are {age_ms_max} ms and {bytes_max} bytes"
                    )


def _limits(topic: Topic) -> tuple[int, int]:
    """(maximum age in ms, maximum size in bytes) of a topic; -1 for no limit. The limits by default are more
    than a run can reach."""
    configs = dict(topic.configs)
    return int(configs.get("retention.ms", -1)), int(configs.get("retention.bytes", -1))
