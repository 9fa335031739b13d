"""Open files of many logs, with a bound on how many there are.

A broker with ten thousand partitions has far more files than it uses at any moment. A file is opened when it
is first needed; when there are too many, the file whose last use is the oldest is released. It closes when
its last user has finished: a response may still be sending from it.

A segment with records that no fsync has covered holds its file open: the system reports an error in writing
them to the device only to files that were open then. Held files count towards the bound. When they fill half
of it, the logs whose files have been held longest are flushed in the background. When all files exceed the
bound and no other file is left to release, held files are synced at once and released.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from holdfast_log.broker.log.disk import Disk, DiskFile
from holdfast_log.broker.log.known_reads import KnownReads
from holdfast_log.broker.log.pressure import is_pressure


class Holder(Protocol):
    """A segment that holds its file open."""

    def sync_and_release(self) -> None:
        """Make the file's content durable, then release the file. Raises nothing: the segment keeps an error
        and reports it on its next use."""
        ...


class OpenFiles:
    """At most `capacity` open files, by path. Belongs to one thread.

    Responses that are being sent keep further files open: while `open_max` or more files are open in all, no
    other file is opened for a response. `flush_soon` is called with the path of a held file whose log should
    be flushed in the background.
    """

    __slots__ = (
        "_asked", "_capacity", "_files", "_flush_soon", "_held", "_open_max", "_opened", "disk",
        "known_reads",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        capacity: int = 1024,
        open_max: int | None = None,
        flush_soon: Callable[[str], None] | None = None,
    ) -> None:
        self.disk = disk
        self.known_reads = KnownReads()
        """What reads of these files have found."""
        self._capacity = capacity
        self._open_max = open_max
        self._opened: WeakSet[DiskFile] = WeakSet()
        self._flush_soon = flush_soon
        self._files: OrderedDict[str, DiskFile] = OrderedDict()
        self._held: OrderedDict[str, Holder] = OrderedDict()
        self._asked: OrderedDict[str, Holder] = OrderedDict()
        """Held files whose logs `flush_soon` has been called for."""

    def __len__(self) -> int:
        return len(self._files) + len(self._held) + len(self._asked)

    def get(self, path: str, *, create: bool = False) -> DiskFile:
        """The open file at `path`. Raises OSError where it cannot be opened."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self._open(path, create)
        self._files[path] = file
        if len(self) > self._capacity:
            self._shrink()
        return file

    def get_to_send(self, path: str) -> DiskFile:
        """Like `get`, for a response. Raises OSError with EMFILE if responses keep too many files open."""
        if self._open_max is None or path in self._files:
            return self.get(path)
        while self._files and len(self._opened) >= self._open_max:
            self._files.popitem(last=False)
        if len(self._opened) >= self._open_max:
            raise OSError(errno.EMFILE, "responses that are being sent keep too many log files open", path)
        return self.get(path)

    def _open(self, path: str, create: bool) -> DiskFile:
        file = self._open_anew(path, create)
        self._opened.add(file)
        return file

    def _open_anew(self, path: str, create: bool) -> DiskFile:
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if not is_pressure(error):
                raise
        # The process has run out of descriptors or memory: close up to half of the cached files.
        for _ in range(max(1, len(self._files) // 2)):
            if self._files:
                self._files.popitem(last=False)
        return self.disk.open(path, create=create)

    def create(self, path: str) -> None:
        """Create an empty file, or leave the present one as it is. Raises OSError."""
        self._open_anew(path, create=True).close()

    def hold(self, path: str, holder: Holder) -> DiskFile:
        """The open file at `path`, which `holder` keeps until `settle`, `sync_and_release` or `forget`."""
        file = self.get(path)
        self._files.pop(path, None)
        self._held[path] = holder
        if len(self._held) > self._capacity // 2:
            self._flush_oldest()
        return file

    def settle(self, path: str, file: DiskFile) -> None:
        """The content of a held file is durable: it may be released when there are too many."""
        if self._held.pop(path, None) is not None or self._asked.pop(path, None) is not None:
            self._files[path] = file

    def hold_on(self, path: str) -> None:
        """Keep a file held: a flush has ended, but the file has content that the flush did not cover."""
        holder = self._asked.pop(path, None)
        if holder is not None:
            self._held[path] = holder

    def forget(self, path: str) -> None:
        """Release the file, because it is renamed, removed, or truncated through another descriptor."""
        self._files.pop(path, None)
        self._held.pop(path, None)
        self._asked.pop(path, None)

    def _shrink(self) -> None:
        # Keep the file that was opened last: the caller is about to use it.
        while len(self) > self._capacity and len(self._files) > 1:
            self._files.popitem(last=False)
        while len(self) > self._capacity and (self._asked or self._held):
            _, holder = (self._asked or self._held).popitem(last=False)
            holder.sync_and_release()

    def _flush_oldest(self) -> None:
        if self._flush_soon is None:
            return
        path, holder = self._held.popitem(last=False)
        self._asked[path] = holder
        self._flush_soon(path)
