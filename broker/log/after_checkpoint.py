"""Work on a log that waits until a checkpoint of its directory is durable."""

from __future__ import annotations

import contextlib
import logging

from twisted.python.failure import Failure

from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.mapped_offset import remove_mapped_offset
from holdfast_log.broker.log.truncation import SEGMENTS_AT_ONCE, begin_settling, discard_before_start, settled
from holdfast_log.broker.workers import Workers
from holdfast_log.protocol.errors import BrokerError

logger = logging.getLogger(__name__)


def settle(checkpoints: CheckpointWriter, directory: LogDirectory, workers: Workers, log: Log) -> None:
    """Refuse appends until the log's lowered recovery point is durable. Where the log was emptied, remove
    the file of its mapped offset before that: no pass of the cleaner can write another one meanwhile."""
    begin_settling(log)
    done = checkpoints.write_offsets_of(directory)
    if log.mapped_offset == 0 and log.log_start_offset == log.log_end_offset:
        done.addCallback(lambda _: workers.run(remove_mapped_offset, log.disk, log.directory))
        done.addErrback(_not_removed, log)
    done.addCallback(lambda _: settled(log))


def _not_removed(failure: Failure, log: Log) -> None:
    failure.trap(OSError)
    logger.warning("The mapped offset of %s could not be removed: %s", log.topic_partition, failure.value)


def remove_before_start(checkpoints: CheckpointWriter, directory: LogDirectory, log: Log) -> None:
    """Remove the segments before the log's present start once that start is durable."""
    start = log.log_start_offset

    def remove(_: object) -> None:
        # During the write the topic may have been deleted, or the directory may have failed.
        if log.failure is None:
            with contextlib.suppress(BrokerError):  # The directory is offline now, which has been logged.
                discard_before_start(log, start, SEGMENTS_AT_ONCE)

    checkpoints.write_offsets_of(directory).addCallback(remove)
