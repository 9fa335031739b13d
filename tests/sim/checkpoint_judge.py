"""Judges appends and truncations by what a recovery would find on the disk.

Recovery believes the records before the recovery point in the checkpoint. So the checkpoint of a log must not
name a later offset than that of the next record which is appended: a truncation that goes back before it has
to be in the checkpoint first. Recovery also believes a snapshot of the producers, whose name is an offset:
none may be left beyond the end of a log, because it speaks of records that were truncated.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from holdfast_log.broker.log.checkpoints import decode_offsets
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.names import RECOVERY_POINTS
from holdfast_log.broker.log.snapshots import snapshot_offsets
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.usual_append import UsualAppends
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History


class CheckpointJudge:
    """Compares the offset of an append with the recovery point in the checkpoint: at the first append of each
    log in a process, and at the first one after each truncation. Other changes only raise both."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._judged: WeakKeyDictionary[Log, int] = WeakKeyDictionary()
        """How often each log had been truncated at its last append."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge appends."""
        write = Log.write

        def judged(log: Log, records: Any, headers: Any, base_offsets: Sequence[int], *more: Any) -> None:
            if self._judged.get(log) != log.truncations:
                self._judged[log] = log.truncations
                self._judge(log, base_offsets[0])
            write(log, records, headers, base_offsets, *more)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(Log, "write", judged))
            stack.enter_context(self._appending_usually())
            for name in ("truncate_to", "start_at"):
                stack.enter_context(self._truncating(name))
            yield

    def _appending_usually(self) -> Any:
        """The same for the appends of usual produce requests, which need not call `Log.write`."""
        append = UsualAppends.append

        def judged(appends: UsualAppends, *arguments: Any) -> Any:
            unjudged = {
                partition.log: partition.log.log_end_offset
                for partition in appends.replicas
                if self._judged.get(partition.log) != partition.log.truncations
            }
            done = append(appends, *arguments)
            for log, offset in unjudged.items():
                if log.log_end_offset > offset and self._judged.get(log) != log.truncations:
                    self._judged[log] = log.truncations
                    self._judge(log, offset)
            return done

        return mock.patch.object(UsualAppends, "append", judged)

    def _truncating(self, name: str) -> Any:
        method = getattr(Partition, name)

        def judged(partition: Partition, *arguments: Any) -> None:
            method(partition, *arguments)
            log, disk = partition.log, self._cluster.machine(partition.local_id).disk
            late = [offset for offset in snapshot_offsets(disk, log.directory) if offset > log.log_end_offset]
            if late:
                self._history.violation(
                    f"{partition.key}: broker {partition.local_id} keeps snapshots of producers at {late}, "
                    f"though its log was truncated to {log.log_end_offset}"
                )

        return mock.patch.object(Partition, name, judged)

    def _judge(self, log: Log, offset: int) -> None:
        machine = next((each for each in self._cluster.machines if _has(each, log)), None)
        if machine is None:
            return
        path = posixpath.join(posixpath.dirname(log.directory), RECOVERY_POINTS)
        entry = decode_offsets(machine.disk.peek(path) or b"0\n0\n").get(log.topic_partition)
        if entry is not None and entry.may_be_of(log.topic_id) and entry.offset > offset:
            self._history.violation(
                f"{log.topic_partition}: {machine.name} appends at {offset}, though its checkpoint has the "
                f"recovery point {entry.offset}: recovery would not check the record"
            )


def _has(machine: Machine, log: Log) -> bool:
    return any(partition.log is log for partition in machine.partitions())
