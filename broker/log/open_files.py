"""Open files of many logs, with a bound on how many there are.

A broker with ten thousand partitions has far more files than it reads at any moment. A file is opened on its
first use; when there are too many, the least recently used one is dropped. A dropped file stays open until
the last reference to it is dropped: a response may still be sent from it.

Segments with unflushed records hold their file open themselves, about one per partition. They do not count
here.
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
