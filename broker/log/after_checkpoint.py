"""Work on a log that waits until a checkpoint of its directory is durable."""

from __future__ import annotations

import contextlib

from holdfast_log.broker.log.checkpoint_writer import CheckpointWriter
from holdfast_log.broker.log.directory import LogDirectory
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import SEGMENTS_AT_ONCE, begin_settling, discard_before_start, settled
from holdfast_log.protocol.errors import BrokerError


def settle(checkpoints: CheckpointWriter, directory: LogDirectory, log: Log) -> None:
    """Refuse appends until the log's lowered recovery point is durable."""
    begin_settling(log)
    checkpoints.write_offsets_of(directory).addCallback(lambda _: settled(log))


def remove_before_start(checkpoints: CheckpointWriter, directory: LogDirectory, log: Log) -> None:
    """Remove the segments before the log's present start once that start is durable."""
    start = log.log_start_offset

    def remove(_: object) -> None:
        # During the write the topic may have been deleted, or the directory may have failed.
        if log.failure is None:
            with contextlib.suppress(BrokerError):  # The directory is offline now, which has been logged.
                discard_before_start(log, start, SEGMENTS_AT_ONCE)

    checkpoints.write_offsets_of(directory).addCallback(remove)
