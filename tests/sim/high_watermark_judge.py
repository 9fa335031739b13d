"""Judges what each replica knows to be committed, over leader epochs, stops and starts.

A replica that has served a record as committed must not forget that it is: if it leads next, and its
followers are away, it can serve only what it knows. So the high watermark of a replica goes back only with
the end of its log. A broker that was stopped in order knows as much after its next start. After a kill it
knows at least what the killed process knew when it began. No high watermark lies before the start of its log,
or beyond its end.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from tests.sim.cluster import Cluster, Machine
from tests.sim.history import History

_Replica = tuple[str, uuid.UUID]
"""The directory of a log, and the id of its topic."""


@dataclass(slots=True)
class _Memory:
    """What one machine must remember: the high watermarks of its replicas."""

    kept: dict[_Replica, int] = field(default_factory=dict)
    """What a process must know that starts now."""
    ended: dict[_Replica, int] = field(default_factory=dict)
    """What the replicas knew whose roles have ended in process `life`, which has not ended."""
    closing: dict[_Replica, int] = field(default_factory=dict)
    """What a process that stops in order knew last. Its next one must know it once the stop is complete."""
    life: int = 0


class HighWatermarkJudge:
    """Compares each high watermark with those that the same replica has had before."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._memories = {machine: _Memory() for machine in cluster.machines}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every change of a high watermark, of a role, and of a log's ends."""
        with ExitStack() as stack:
            for name in ("lead", "follow", "advance_high_watermark", "take_high_watermark"):
                stack.enter_context(self._wrapped(Partition, name, self._step))
            for name in ("truncate_to", "start_at"):
                stack.enter_context(self._wrapped(Partition, name, self._truncate))
            stack.enter_context(self._wrapped(Partition, "restore_high_watermark", self._restore))
            stack.enter_context(self._wrapped(Partition, "replace_log", self._replace))
            stack.enter_context(self._wrapped(Replicas, "remove", self._remove))
            stack.enter_context(self._wrapped(LogManager, "close", self._close))
            stack.enter_context(self._wrapped(LogDirectory, "mark_clean", self._closed))
            for name in ("go_back", "mount", "unmount"):
                stack.enter_context(self._wrapped(Machine, name, self._exchange))
            yield

    def _wrapped(self, owner: type, name: str, judged: Any) -> Any:
        method = getattr(owner, name)

        def call(changed: Any, *arguments: Any, **more: Any) -> Any:
            return judged(method, changed, *arguments, **more)

        return mock.patch.object(owner, name, call)

    # In a process

    def _step(self, method: Any, partition: Partition, *arguments: Any) -> Any:
        before = partition.high_watermark
        result = method(partition, *arguments)
        if partition.high_watermark < before:
            self._found(partition, f"goes back from {before}")
        self._check_bounds(partition)
        return result

    def _truncate(self, method: Any, partition: Partition, *arguments: Any) -> None:
        method(partition, *arguments)
        self._check_bounds(partition)
        kept = self._memory(partition.local_id).kept
        replica = _replica(partition)
        kept[replica] = min(partition.high_watermark, kept.get(replica, 0))

    def _replace(self, method: Any, partition: Partition, *arguments: Any) -> None:
        """A log in another directory takes over what the replica must remember. A power loss may bring back
        the one before."""
        before = _replica(partition)
        method(partition, *arguments)
        kept = self._memory(partition.local_id).kept
        kept[_replica(partition)] = kept.get(before, 0)
        self._check_bounds(partition)

    def _check_bounds(self, partition: Partition) -> None:
        log = partition.log
        is_inside = log.log_start_offset <= partition.high_watermark <= log.log_end_offset
        if not is_inside and not partition.is_offline:
            self._found(partition, f"lies outside its log, {log.log_start_offset} to {log.log_end_offset}")

    def _found(self, partition: Partition, what: str) -> None:
        self._history.violation(
            f"{partition.key}: the high watermark {partition.high_watermark} of broker {partition.local_id}, "
            f"in leader epoch {partition.leader_epoch}, {what}"
        )

    # Over the end of a role or of a process

    def _restore(self, method: Any, partition: Partition, *arguments: Any) -> None:
        method(partition, *arguments)
        replica, memory = _replica(partition), self._memory(partition.local_id)
        known = memory.ended.get(replica, memory.kept.get(replica, 0))
        if partition.high_watermark < min(known, partition.log.log_end_offset):
            self._found(partition, f"is forgotten: it was {known} before")
        self._check_bounds(partition)
        memory.ended.pop(replica, None)
        memory.kept[replica] = partition.high_watermark

    def _remove(self, method: Any, replicas: Replicas, partition: Partition) -> None:
        method(replicas, partition)
        self._memory(partition.local_id).ended[_replica(partition)] = partition.high_watermark

    def _close(self, method: Any, logs: LogManager, *arguments: Any) -> Any:
        machine = self._machine(logs.disk)
        memory = self._memory(machine.broker_id)
        memory.closing = {
            **memory.ended,
            **{_replica(each): each.high_watermark for each in machine.partitions() if not each.is_offline},
        }
        return method(logs, *arguments)

    def _closed(self, method: Any, directory: LogDirectory) -> None:
        method(directory)
        memory = self._memory(self._machine(directory.disk).broker_id)
        for replica, known in memory.closing.items():
            if posixpath.dirname(replica[0]) == directory.path:
                memory.kept[replica] = known

    def _exchange(self, method: Any, machine: Machine, *arguments: Any) -> None:
        """Other disks may have older checkpoints."""
        method(machine, *arguments)
        self._memories[machine] = _Memory(life=machine.life)

    def _memory(self, broker_id: int) -> _Memory:
        machine = self._cluster.machine(broker_id)
        memory = self._memories[machine]
        if memory.life != machine.life:
            memory.life, memory.ended, memory.closing = machine.life, {}, {}
        return memory

    def _machine(self, disk: object) -> Machine:
        return next(machine for machine in self._cluster.machines if machine.disk is disk)


def _replica(partition: Partition) -> _Replica:
    return partition.log.directory, partition.topic_id
