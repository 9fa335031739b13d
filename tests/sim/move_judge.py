"""Judges moves of replicas between log directories (KIP-113).

A copy that takes the place of a log has all that the log has, and a power loss can take nothing of it. It
takes the place only where the broker was asked to have it: not where the process was asked since to leave
the log where it is, nor where a move of the last topic of that name has come back. After the faults every
move has ended, each replica is where it was last asked to be, and has one directory.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest import mock

from holdfast_log.broker.handlers.alter_replica_log_dirs import AlterReplicaLogDirsHandler
from holdfast_log.broker.log import names
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.producer_state import decode_snapshot
from holdfast_log.broker.log.transactions import OPEN
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.sim.cluster import LOG_DIRECTORIES, Cluster, Machine
from tests.sim.committed_judge import stored_batches
from tests.sim.history import History
from tests.sim.replica_mover import ReplicaMover

_REBUILT = (names.SNAPSHOT, names.INDEX, names.TIME_INDEX)
"""A start that lacks such a file makes it from the batches."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a broker's process, number `life`, has agreed to have a log. `topic_id` is None if a power loss
    has taken the id from the log. `partition` is the replica of the log; None if it had no role yet."""

    topic_id: uuid.UUID | None
    life: int
    directory: str
    partition: Partition | None


class MoveJudge:
    """Looks at what each broker is asked to move, and at each log in whose place its copy is used."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self.mover: ReplicaMover | None = None
        self.moved = 0
        self._wishes: dict[tuple[int, TopicPartition], list[Wish]] = {}
        """By broker and partition, also of topics that had the name before."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every move."""
        replace, choose = LogManager.replace, AlterReplicaLogDirsHandler._choose

        def judged(logs: LogManager, log: Log, copy: Log, target: LogDirectory) -> None:
            self._judge(self._machine(logs), log, copy, target)
            replace(logs, log, copy, target)
            self.moved += 1

        def noted(handler: AlterReplicaLogDirsHandler, partition: TopicPartition, path: str) -> ErrorCode:
            answer = choose(handler, partition, path)
            log = handler.logs.find(partition)
            if answer is ErrorCode.NONE and log is not None:
                machine = self._machine(handler.logs)
                replica = machine.partition((partition.topic, partition.partition))
                wish = Wish(log.topic_id, machine.life, path, replica)
                self._wishes.setdefault((machine.broker_id, partition), []).append(wish)
            return answer

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(LogManager, "replace", judged))
            stack.enter_context(mock.patch.object(AlterReplicaLogDirsHandler, "_choose", noted))
            yield

    def _machine(self, logs: LogManager) -> Machine:
        return next(machine for machine in self._cluster.machines if machine.disk is logs.disk)

    def _judge(self, machine: Machine, log: Log, copy: Log, target: LogDirectory) -> None:
        partition = log.topic_partition
        what = f"{partition} moves to {target.path} of {machine.name}, though"
        had, has = _content(machine, log), _content(machine, copy)
        for name, value in had.items():
            if has[name] != value:
                self._history.violation(f"{what} its copy has {name} {has[name]}, and not {value}")
        unsafe = [path for path in machine.disk.unsafe(copy.directory) if not path.endswith(_REBUILT)]
        if unsafe:
            self._history.violation(f"{what} a power loss could take {unsafe}")
        wishes = self._wishes.get((machine.broker_id, partition), [])
        own = [wish for wish in wishes if wish.topic_id in (log.topic_id, None)]
        if target.path not in [wish.directory for wish in own]:
            self._history.violation(f"{what} nobody has asked for that")
        elif own[-1].life == machine.life and own[-1].directory != target.path:
            self._history.violation(f"{what} it was asked to be in {own[-1].directory} since")

    # After the faults

    def unfinished(self) -> Iterator[str]:
        """Moves that have not ended, and what they have left: only what stays so is a violation."""
        for machine in self._cluster.machines:
            if machine.broker is None or machine.broker.node is None:
                yield f"{machine.name} does not run"
                continue
            replication = machine.broker.node.replication
            yield from (f"{move.partition} of {machine.name} still moves" for move in replication.moves)
            yield from self._left(machine, replication.logs)

    def _left(self, machine: Machine, logs: LogManager) -> Iterator[str]:
        # A log that had begun anew while the directory of the one before was away: the broker keeps both.
        spares = {log.directory for each in logs.directories for log in each.spares.values()}
        places: dict[str, list[str]] = {}
        for directory in LOG_DIRECTORIES:
            for name in machine.disk.list(directory):
                path = posixpath.join(directory, name)
                if names.parse_future_directory(name) is not None:
                    yield f"{path} of {machine.name} is left of a move"
                elif machine.disk.exists(posixpath.join(path, names.MOVE_UNFINISHED)):
                    yield f"{path} of {machine.name} is marked as a copy that moves"
                elif names.parse_directory(name) is not None and path not in spares:
                    places.setdefault(name, []).append(path)
        for partition in machine.partitions():
            found = places.get(f"{partition.topic}-{partition.index}", [])
            if found != [partition.log.directory]:
                yield f"{partition.key} of {machine.name} is in {found}, not in {partition.log.directory}"
        for (broker_id, _), wishes in self._wishes.items():
            wish = wishes[-1]
            replica = wish.partition
            if (
                replica is not None
                and broker_id == machine.broker_id
                and wish.life == machine.life
                and machine.partition(replica.key) is replica
                and posixpath.dirname(replica.log.directory) != wish.directory
            ):
                yield (
                    f"{replica.key} of {machine.name} is in {replica.log.directory}, not in {wish.directory}"
                )


def _content(machine: Machine, log: Log) -> dict[str, object]:
    """What readers, followers and later processes see of a log."""
    batches = stored_batches(machine.disk, log.directory)
    start = log.log_start_offset
    return {
        "the batches": {offset: batch for offset, batch in batches.items() if offset >= start},
        "the start": start,
        "the end": log.log_end_offset,
        "the epochs": [*log.epochs.entries],
        "the producers": sorted(
            (entry.producer_id, entry.epoch, entry.transaction_offset, tuple(map(tuple, entry.batches)))
            for entry in decode_snapshot(log.producers.encode())
        ),
        "open transactions": [first for first, marker in log.unstable.items() if marker == OPEN],
    }
