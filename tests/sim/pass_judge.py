"""Judges each replacement of segments by a broker's cleaner: it changes nothing that the log says.

What replaces segments has only records that the log has now, at their offsets: no record of a log that was
truncated and written again meanwhile. A record leaves only if a later one of its key is committed, and
durable on this machine, or if it is a tombstone (which `TombstoneJudge` judges). Records of an aborted
transaction, and markers, leave without such a one, and replace none. The last record of a log
stays: followers and recovery see by it how far the log reaches. The judge reads the files as the broker wrote
them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from holdfast_log.broker.cleaning import cleaning_pass
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.replacement import SegmentReplacement
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.records import decode_columns
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History
from tests.sim.retention_judge import stored_files
from tests.sim.uncounted import uncounted_offsets

_Rows = Mapping[int, tuple[bytes | None, bytes | None]]
"""Keys and values by offset."""


class PassJudge:
    """Compares a log before and after each replacement of some of its segments."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self.replacements = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every replacement."""
        finish = cleaning_pass.finish_replacement

        def judged(replacement: SegmentReplacement) -> bool:
            owner = self._owner(replacement.log)
            before = {} if owner is None else stored_rows(*owner)
            uncounted = frozenset() if owner is None else _uncounted(*owner)
            is_replaced = finish(replacement)
            if is_replaced and owner is not None:
                self.replacements += 1
                self._judge(*owner, before, uncounted)
            return is_replaced

        with mock.patch.object(cleaning_pass, "finish_replacement", judged):
            yield

    def _owner(self, log: Log) -> tuple[Machine, Partition] | None:
        return next(
            (
                (machine, partition)
                for machine in self._cluster.machines
                for partition in machine.partitions()
                if partition.log is log
            ),
            None,
        )

    def _judge(
        self, machine: Machine, partition: Partition, before: _Rows, uncounted: Container[int]
    ) -> None:
        after, log = stored_rows(machine, partition), partition.log
        settled = min(partition.high_watermark, log.recovery_point)
        newest = {
            key: offset
            for offset, (key, _) in sorted(before.items())
            if offset < settled and offset not in uncounted
        }
        for offset, row in after.items():
            if before.get(offset) != row:
                self._found(
                    machine, partition, f"puts {row} at {offset}, where the log has {before.get(offset)}"
                )
        for offset, (key, value) in before.items():
            is_gone = offset not in after and offset >= log.log_start_offset
            if is_gone and offset == log.log_end_offset - 1:
                self._found(machine, partition, f"removes the last record of the log, at {offset}")
            elif offset in uncounted:
                continue
            elif is_gone and value is not None and newest.get(key, -1) <= offset:
                self._found(
                    machine,
                    partition,
                    f"removes {key!r} at {offset}, without a later record of the key before {settled}, where "
                    f"committed and durable records end",
                )

    def _found(self, machine: Machine, partition: Partition, what: str) -> None:
        self._history.violation(f"{partition.key}: a pass of the cleaner on {machine.name} {what}")


def stored_rows(machine: Machine, partition: Partition) -> dict[int, tuple[bytes | None, bytes | None]]:
    """The records in the files of a replica, by offset."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    for file in stored_files(machine.disk, partition.log.directory):
        for header in file.headers:
            columns = decode_columns(file.data, header)
            found.update(zip(columns.offsets, zip(columns.keys, columns.values, strict=True), strict=True))
    return found


def _uncounted(machine: Machine, partition: Partition) -> frozenset[int]:
    files = stored_files(machine.disk, partition.log.directory)
    return uncounted_offsets((header, file.data) for file in files for header in file.headers)
