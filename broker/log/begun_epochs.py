"""The record of the leader epochs that have begun in a log, which is written before the first batch of each.

No checksum covers the leader epoch of a batch. `leader-epoch-checkpoint` lags behind the log, so after a kill
it says nothing of the last batches. This file does: the system keeps the writes of a killed process, and no
batch of an epoch is written before the file names the epoch and where it begins. It is not synced: after a
power failure nobody believes it. It has the format of `leader-epoch-checkpoint`; Kafka ignores it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.disk import Disk

logger = logging.getLogger(__name__)


def write_begun_epochs(disk: Disk, directory: str, entries: Sequence[tuple[int, int]]) -> None:
    """Write the (epoch, start offset) of each epoch of the log in `directory`, without an fsync. Where the
    file cannot be written, it is removed: an old one would contradict the batches that follow."""
    path = os.path.join(directory, names.BEGUN_EPOCHS)
    temporary = path + names.TEMPORARY
    try:
        disk.remove(temporary)
        file = disk.open(temporary, create=True)
        file.append([checkpoints.encode_epochs(entries)])
        file.close()
        disk.rename(temporary, path)
    except OSError as error:
        logger.warning("%s could not be written: %s", path, error)
        with contextlib.suppress(OSError):
            disk.remove(path)


def read_begun_epochs(disk: Disk, directory: str) -> list[tuple[int, int]] | None:
    """What `write_begun_epochs` has written; None if there is no file, or it is damaged. Raises OSError."""
    path = os.path.join(directory, names.BEGUN_EPOCHS)
    try:
        return checkpoints.decode_epochs(disk.read(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("Ignoring %s: %s", path, error)
        return None
