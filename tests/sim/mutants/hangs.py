"""Bugs that leave a cluster, a client or an operator waiting, or end a broker that only lacks something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.log import flush_job, log, manager, open_files, scrubber
from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.directory import LogDirectory, MadeLater, write_files
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.log.log import Log
from holdfast_log.coordinator.controller import reads
from holdfast_log.coordinator.controller.deletions import Deletions
from holdfast_log.coordinator.znodes.json_values import BadZnode
from tests.sim.mutation import Mutation, Patch


def _fail_at_unreadable_topics() -> Sequence[Patch]:
    decode = reads._decode_topic

    def mutant(*arguments: Any) -> Any:
        try:
            return decode(*arguments)
        except BadZnode as error:
            raise RuntimeError(str(error)) from error

    return [(reads, "_decode_topic", mutant)]


def _forget_who_waits_for_a_flush() -> Sequence[Patch]:
    def mutant(self: Flusher, log: Log, failure: Failure) -> None:
        log.failed(failure.value if isinstance(failure.value, OSError) else OSError("the flush failed"))
        self._waiting.pop(log, None)

    return [(Flusher, "_failed", mutant)]


def _write_checkpoints_on_the_reactor() -> Sequence[Patch]:
    def mutant(
        self: CheckpointWriter, directory: LogDirectory, files: Mapping[str, bytes | MadeLater]
    ) -> Deferred[None]:
        return maybeDeferred(write_files, self._disk, files)

    return [(CheckpointWriter, "_write", mutant)]


def _take_pressure_for_failed_disks() -> Sequence[Patch]:
    return [
        (module, "is_pressure", lambda error: False)
        for module in (flush_job, log, manager, open_files, scrubber)
    ]


# The plans of campaigns contain no garbage in ZooKeeper, and no lack of descriptors. What an answer says, and
# which thread waits for a disk, the judges of the simulation do not see.
RARE = (
    Mutation(
        "unreadable-topic-fatal",
        "a topic that cannot be read in ZooKeeper leaves the cluster without a controller",
        _fail_at_unreadable_topics,
    ),
    Mutation(
        "deletion-waits-silently",
        "who creates a topic again is not told which brokers the deletion of the first one waits for",
        lambda: [(Deletions, "waits_for", lambda self, name: [])],
    ),
    Mutation(
        "failed-flush-unanswered",
        "those who wait for a flush get no answer if the disk fails",
        _forget_who_waits_for_a_flush,
    ),
    Mutation(
        "checkpoint-on-reactor",
        "the reactor waits for the disk when a truncation lowers a recovery point",
        _write_checkpoints_on_the_reactor,
    ),
    Mutation(
        "metadata-before-first-update",
        "a broker that starts says that the cluster has no brokers",
        lambda: [(FirstUpdate, "then", lambda self, answer: answer())],
    ),
    Mutation(
        "pressure-fails-directory",
        "a lack of descriptors or memory takes a log directory offline",
        _take_pressure_for_failed_disks,
    ),
)
