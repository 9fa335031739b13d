"""The copy of a log in another directory of its broker, which takes the log's place (KIP-113).

Workers copy the files. Closed segments are copied while the log is in use: they change no more, but
compaction and retention may replace or remove them, so the copy is compared with the log's segments at the
end. The rest is copied while the log takes no appends: `finish_copy`.

The copy has a name of its own until it is complete and durable. Then it gets the name of the log and, as long
as the log is still there under that name in the other directory, the file `names.MOVE_UNFINISHED`: a broker
that starts with both drops the copy, and one that starts with the copy alone uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from holdfast_log.broker.log import names
from holdfast_log.broker.log.disk import Disk

_PART_BYTES = 1 << 20
_IN_PROGRESS = (names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)


class SourceUnreadable(OSError):
    """The log that is being copied cannot be read. Any other OSError is about the copy."""


class FileCopy:
    """Copies one file in parts, and makes the copy durable at its end. For workers; methods raise OSError."""

    def __init__(self, disk: Disk, source: str, target: str) -> None:
        self._disk = disk
        self._source = source
        self._target = target
        self.size = 0
        """Bytes that have been copied."""
        self.is_done = False

    def advance(self, length: int) -> None:
        """Copy so many bytes more, if the file has them."""
        if self.size == 0:
            self._disk.remove(self._target)
        with _reading():
            source = self._disk.open(self._source)
        target = self._disk.open(self._target, create=True)
        end = self.size + length
        while self.size < end:
            with _reading():
                part = source.pread(min(_PART_BYTES, end - self.size), self.size)
            if not part:
                target.fsync()
                self.is_done = True
                break
            target.append([part])
            self.size += len(part)
        source.close()
        target.close()


def begin_copy(disk: Disk, path: str) -> None:
    """Make the directory of a copy, empty. Raises OSError."""
    disk.remove_directory(path)
    if not disk.is_directory(os.path.dirname(path)):
        raise FileNotFoundError(f"{os.path.dirname(path)} is not there: is its disk mounted?")
    disk.make_directory(path)


def finish_copy(disk: Disk, source: str, copy: str, copied: frozenset[str]) -> str:
    """Complete the copy of the log in the directory `source`, which takes no appends, make it durable, and
    give it the name of the log. `copied` are the names of the files that it has already. Returns its new
    path. Raises OSError."""
    with _reading():
        wanted = {name for name in disk.list(source) if not name.endswith(_IN_PROGRESS)}
    for name in disk.list(copy):
        if name not in wanted:
            disk.remove(os.path.join(copy, name))
    for name in sorted(wanted - copied):
        job = FileCopy(disk, os.path.join(source, name), os.path.join(copy, name))
        while not job.is_done:
            job.advance(_PART_BYTES)
    mark = disk.open(os.path.join(copy, names.MOVE_UNFINISHED), create=True)
    mark.fsync()
    mark.close()
    disk.fsync_directory(copy)
    path = os.path.join(os.path.dirname(copy), os.path.basename(source))
    disk.rename(copy, path)
    disk.fsync_directory(os.path.dirname(copy))
    return path


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceUnreadable(error.errno, str(error)) from error
