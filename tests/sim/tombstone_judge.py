"""Judges tombstones in compacted topics: none is removed too early, and no deleted key comes back to life.

After every pass of a broker's cleaner, and at the end on all replicas, the judge reads the log from its
files. It shares no code with the cleaner's rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from holdfast_log.broker.cleaning.cleaning_pass import CleaningPass
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.records import decode_columns
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History, Incarnation
from tests.sim.plan import Topic
from tests.sim.retention_judge import stored_files

_Copy = tuple[Incarnation, str, int, int]
"""A log of a broker's process, until it is truncated."""
_Rows = Mapping[int, tuple[bytes | None, bytes | None]]
"""Keys and values by offset."""


@dataclass(eq=False, slots=True)
class _Times:
    """The earliest and the latest time of day, in ms, that a broker's clock has shown during a pass."""

    machine: Machine
    earliest_ms: int = field(init=False)
    latest_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.earliest_ms = self.latest_ms = _now_ms(self.machine)

    def note(self) -> None:
        """Note the present time: at the end of the pass, and before and after the clock is set."""
        self.earliest_ms = min(self.earliest_ms, _now_ms(self.machine))
        self.latest_ms = max(self.latest_ms, _now_ms(self.machine))


class TombstoneJudge:
    """Judges the compacted topics for which a plan sets delete.retention.ms."""

    def __init__(self, cluster: Cluster, history: History, topics: Sequence[Topic]) -> None:
        self._cluster = cluster
        self._history = history
        self._retention_ms = {
            topic.name: int(value)
            for topic in topics
            for name, value in topic.configs
            if topic.is_compacted and name == "delete.retention.ms"
        }
        self._met: dict[_Copy, dict[bytes, int]] = {}
        """The same for each copy of the log: a replica that was away for longer than delete.retention.ms
        never gets a tombstone that its leader has removed meanwhile, as in Kafka."""
        self._expire_ms: dict[tuple[Incarnation, int], int] = {}
        """The time of day from which on each tombstone may be gone: the retention time after the first pass
        of any replica, by that broker's clock. A follower copies the time that its leader has set."""

        self._running: set[_Times] = set()
        """The passes that have begun and not ended."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every pass of a cleaner."""
        if not self._retention_ms:
            yield
            return
        run, set_clock = CleaningPass.run, Machine.set_clock

        def noted(machine: Machine, ahead_s: float) -> None:
            self._note_times(machine)
            set_clock(machine, ahead_s)
            self._note_times(machine)

        async def judged(cleaning: CleaningPass) -> None:
            found = self._owner(cleaning)
            if found is None:
                await run(cleaning)
                return
            machine, partition = found
            times = _Times(machine)
            self._running.add(times)
            before = self._begin(machine, partition)
            try:
                await run(cleaning)
            except Exception:
                self._ended(machine, partition, before, times)
                raise
            self._ended(machine, partition, before, times)

        with (
            mock.patch.object(CleaningPass, "run", judged),
            mock.patch.object(Machine, "set_clock", noted),
        ):
            yield

    def _note_times(self, machine: Machine) -> None:
        for times in self._running:
            if times.machine is machine and machine.process is not None:
                times.note()

    def check_end(self) -> None:
        """Check all replicas."""
        for machine in self._cluster.machines:
            for partition in machine.partitions():
                if partition.topic in self._retention_ms and not partition.is_offline:
                    self._check_alive(machine, partition, _rows(machine, partition))

    def _owner(self, cleaning: CleaningPass) -> tuple[Machine, Partition] | None:
        log: Any = cleaning._log
        return next(
            (
                (machine, partition)
                for machine in self._cluster.machines
                for partition in machine.partitions()
                if partition.log is log and partition.topic in self._retention_ms
            ),
            None,
        )

    def _begin(self, machine: Machine, partition: Partition) -> _Rows:
        place, rows = Incarnation(partition.key, partition.topic_id), _rows(machine, partition)
        committed = (self._history.committed or {}).get(place, 0)
        last = self._history.tombstones.setdefault(place, {})
        met = self._met.setdefault(_copy(machine, partition), {})
        expires_ms = _now_ms(machine) + self._retention_ms[partition.topic]
        for offset, (key, value) in rows.items():
            if key is not None and value is None and offset < committed:
                last[key] = max(offset, last.get(key, 0))
                met[key] = max(offset, met.get(key, 0))
                known_ms = self._expire_ms.get((place, offset), expires_ms)
                self._expire_ms[place, offset] = min(expires_ms, known_ms)
        return rows

    def _ended(self, machine: Machine, partition: Partition, before: _Rows, times: _Times) -> None:
        self._running.discard(times)
        if machine.process is None:
            return
        times.note()
        place, rows = Incarnation(partition.key, partition.topic_id), _rows(machine, partition)
        newest = {key: offset for offset, (key, _) in sorted(rows.items())}
        soonest_ms = times.earliest_ms + self._retention_ms[partition.topic]
        for offset, (key, value) in before.items():
            if (place, offset) in self._expire_ms:
                self._expire_ms[place, offset] = min(soonest_ms, self._expire_ms[place, offset])
            expires_ms = self._expire_ms.get((place, offset))
            is_gone = offset not in rows and offset >= partition.log.log_start_offset
            if value is not None or expires_ms is None or not is_gone or newest.get(key, -1) > offset:
                continue
            if times.latest_ms < expires_ms:
                self._history.violation(
                    f"{place}: {machine.name} removed the tombstone of {key!r} at {offset} "
                    f"{expires_ms - times.latest_ms} ms too early"
                )
        self._check_alive(machine, partition, rows)

    def _check_alive(self, machine: Machine, partition: Partition, rows: _Rows) -> None:
        """Check that no record of a key is the last one left, although a later tombstone was committed."""
        place = Incarnation(partition.key, partition.topic_id)
        newest = {key: offset for offset, (key, _) in sorted(rows.items())}
        for key, offset in self._met.get(_copy(machine, partition), {}).items():
            last = newest.get(key)
            if last is not None and last < offset < partition.log.log_end_offset:
                self._history.violation(
                    f"{place}: {key!r} is alive again on {machine.name}: its record at {last} is left, the "
                    f"tombstone at {offset} is gone"
                )
                return


def _copy(machine: Machine, partition: Partition) -> _Copy:
    place = Incarnation(partition.key, partition.topic_id)
    return place, machine.name, machine.life, partition.log.truncations


def _rows(machine: Machine, partition: Partition) -> _Rows:
    """The records of a replica, by offset."""
    log, found = partition.log, {}
    for file in stored_files(machine.disk, log.directory):
        for header in file.headers:
            columns = decode_columns(file.data, header)
            found.update(zip(columns.offsets, zip(columns.keys, columns.values, strict=True), strict=True))
    return {offset: row for offset, row in found.items() if offset >= log.log_start_offset}


def _now_ms(machine: Machine) -> int:
    assert machine.process is not None
    return machine.process.clock.date_ms()
