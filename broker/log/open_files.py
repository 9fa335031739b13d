"""Open files of many logs, with a bound on how many there are.

A broker with ten thousand partitions has far more files than it reads at any moment. A file is opened when it
is first wanted, and the one wanted longest ago is dropped when there are too many. Dropping does not close
it: a response may still be sending from it, and it closes when its last reference goes.

Segments that are written to, or that no fsync has covered yet, hold their file themselves: there are about as
many of these as partitions, and they are not counted here.
"""

from __future__ import annotations

from collections import OrderedDict

from broker.log.disk import Disk, DiskFile


class OpenFiles:
    """At most `capacity` open files, by path. Belongs to one thread."""

    __slots__ = ("_capacity", "_files", "disk")

    def __init__(self, disk: Disk, capacity: int = 1024) -> None:
        self.disk = disk
        self._capacity = capacity
        self._files: OrderedDict[str, DiskFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> DiskFile:
        """The open file at `path`. Raises OSError where it cannot be opened."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self.disk.open(path, create=create)
        self._files[path] = file
        if len(self._files) > self._capacity:
            self._files.popitem(last=False)
        return file

    def forget(self, path: str) -> None:
        """Drop the file from the cache, because other code renames, removes or truncates it."""
        self._files.pop(path, None)
