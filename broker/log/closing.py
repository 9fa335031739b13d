"""Closes the logs of a directory when the broker stops, and marks the stop as clean."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.flush_job import close_log
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


def close_directory(
    directory: LogDirectory,
    checkpoints: CheckpointWriter,
    workers: Workers,
    high_watermarks: Mapping[TopicPartition, int],
    _: object = None,
) -> Deferred[None] | None:
    """Close a directory's logs, write its checkpoints, and mark its stop as clean; None if it has failed. An
    error is logged, so that the other directories are closed as well."""
    if directory.failure is not None:
        return None
    logs = [*directory.logs.values(), *directory.spares.values()]
    closed = workers.run(_close_logs, logs)
    closed.addCallback(lambda _: checkpoints.write_last(directory, high_watermarks))
    closed.addCallback(lambda _: workers.run(directory.mark_clean))
    return closed.addErrback(lambda failure: _close_failed(directory, failure))


def _close_logs(logs: Sequence[Log]) -> None:
    for log in logs:
        close_log(log)


def _close_failed(directory: LogDirectory, failure: Failure) -> None:
    if failure.check(OSError, BrokerError):
        logger.error(
            "Log directory %s could not be closed cleanly; its logs are recovered at the next start: %s",
            directory.path,
            failure.value,
        )
    else:
        logger.error("%s could not be closed cleanly", directory.path, exc_info=raised(failure))
