"""The file that says up to which offset compaction has looked at keys in a log.

A pass removes a record because of a later one of its key. If the log is cut between the two, it lacks both,
and the replicas that kept the earlier record differ from it for ever: a follower does not fetch again what
lies before its log's end. So before a pass replaces its first segment, it makes durable how far it has looked
for later records; a log that ends before that offset is copied from its leader anew, see
`broker.replication.following`. An offset in the file that is too high is harmless: at worst a log is copied
that lacks nothing. Kafka ignores the file.
"""

from __future__ import annotations

import logging
import os

from holdfast_log.broker.log import checkpoints, names
from holdfast_log.broker.log.disk import Disk

logger = logging.getLogger(__name__)


def write_mapped_offset(disk: Disk, directory: str, offset: int) -> None:
    """Write the offset of the log in `directory`, durably. Raises OSError."""
    disk.write_atomically(_path(directory), checkpoints.encode_offset(offset))


def read_mapped_offset(disk: Disk, directory: str) -> int:
    """What `write_mapped_offset` has written; 0 if there is no file, or it is damaged. Raises OSError."""
    try:
        return checkpoints.decode_offset(disk.read(_path(directory)))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        logger.warning("Ignoring %s: %s", _path(directory), error)
        return 0


def remove_mapped_offset(disk: Disk, directory: str) -> None:
    """Remove the file of a log that has been emptied. Raises OSError.

    First the removal of the old segments becomes durable: a power failure must not bring them back without
    the file.
    """
    if disk.exists(_path(directory)):
        disk.fsync_directory(directory)
        disk.remove(_path(directory))


def _path(directory: str) -> str:
    return os.path.join(directory, names.MAPPED_OFFSET)
