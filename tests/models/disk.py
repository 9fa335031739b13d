"""A disk in memory with faults: lost and torn writes, I/O errors, no space left.

A *kill* ends only the process: its writes are in the page cache and stay. A *power loss* also takes what no
fsync has made durable: unsynced bytes are cut at a random point, unsynced changes of names survive only up to
a random point of their order, and an unsynced truncation may be undone.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence

from protocol.wire import Buffer


class _Inode:
    """The content of one file: the bytes that processes see, and how many of them are durable."""

    __slots__ = ("data", "durable_size", "modified_ms", "shadow")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable_size = 0
        # The durable bytes that an unsynced truncation removed: (offset of the cut, removed bytes).
        self.shadow: tuple[int, bytes] | None = None
        self.modified_ms = modified_ms

    def truncate(self, size: int) -> None:
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))
            return
        if size < self.durable_size:
            cut, rest = self.shadow or (self.durable_size, b"")
            if size < cut:
                self.shadow = (size, bytes(self.data[size : self.durable_size]) + rest)
            self.durable_size = size
        del self.data[size:]

    def sync(self) -> None:
        self.durable_size = len(self.data)
        self.shadow = None

    def lose_power(self, rng: random.Random) -> None:
        if self.shadow is not None and rng.random() < 0.5:
            cut, rest = self.shadow
            self.data[cut:] = rest
        elif len(self.data) > self.durable_size:
            del self.data[rng.randint(self.durable_size, len(self.data)) :]
        self.sync()


class SimFile:
    """One open file of a `SimDisk`."""

    def __init__(self, disk: SimDisk, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode: _Inode | None = inode
        self._life = disk.life

    def _open_inode(self) -> _Inode:
        if self._inode is None or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._inode

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def size(self) -> int:
        return len(self._open_inode().data)

    def append(self, buffers: Sequence[Buffer]) -> None:
        inode = self._open_inode()
        self._disk.check_fault(self.path, writing=True)
        data = b"".join(buffers)
        room = self._disk.take_room(len(data))
        inode.data.extend(data[:room])
        inode.modified_ms = self._disk.now_ms()
        if room < len(data):
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", self.path)

    def pread(self, length: int, offset: int) -> bytes:
        inode = self._open_inode()
        self._disk.check_fault(self.path, writing=False)
        return bytes(inode.data[offset : offset + length])

    def is_cached(self, length: int, offset: int) -> bool:
        inode = self._open_inode()
        return inode not in self._disk.cold and self._disk.rng.random() >= self._disk.cold_share

    def truncate(self, size: int) -> None:
        inode = self._open_inode()
        self._disk.check_fault(self.path, writing=True)
        inode.truncate(size)

    def fsync(self) -> None:
        inode = self._open_inode()
        self._disk.check_fault(self.path, writing=True)
        inode.sync()

    def close(self) -> None:
        self._inode = None


class SimDisk:
    """A `broker.log.disk.Disk` in memory, with the faults that the module's docstring describes.

    `now_ms` stamps files; `capacity` is in bytes; `cold_share` is the share of reads said to be uncached.
    """

    def __init__(
        self,
        rng: random.Random,
        now_ms: Callable[[], int],
        *,
        capacity: int = 1 << 30,
        cold_share: float = 0.0,
    ) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.capacity = capacity
        self._whole_capacity = capacity
        self.cold_share = cold_share
        self.life = 0
        self._files: dict[str, _Inode] = {}
        self._directories: dict[str, None] = {"/": None}
        self._durable_files: dict[str, _Inode] = {}
        self._durable_directories: dict[str, None] = {"/": None}
        self._unsynced_names: list[Callable[[dict[str, _Inode], dict[str, None]], None]] = []
        self._failing: dict[str, bool] = {}
        self.cold: set[_Inode] = set()
        """Files of which the page cache has nothing: what has rotted shows when the disk is read."""
        self._used_at_most = 0
        self._strike_after = 0
        self._strike: Callable[[], None] | None = None
        self._is_off = False

    # Called by the simulation.

    def kill_process(self) -> None:
        """Close every open file, and keep every write."""
        self.life += 1

    def lose_power(self) -> None:
        """Close every open file, and lose some or all unsynced writes."""
        self.life += 1
        survivors = self.rng.randint(0, len(self._unsynced_names))
        for change in self._unsynced_names[:survivors]:
            change(self._durable_files, self._durable_directories)
        self._unsynced_names.clear()
        self._files = dict(self._durable_files)
        self._directories = dict(self._durable_directories)
        for inode in self._files.values():
            inode.lose_power(self.rng)

    def wipe(self, directory: str) -> None:
        """Replace the directory's device with an empty one."""
        self.remove_directory(directory)
        self.make_directory(directory)
        self._sync_names()

    def contents(self, directory: str, suffix: str) -> list[bytes]:
        """What processes see in the files of a directory whose names end so, in the order of their names. No
        fault strikes this."""
        files = self._files
        within = directory.rstrip("/") + "/"
        paths = sorted(path for path in files if path.startswith(within) and path.endswith(suffix))
        return [bytes(files[path].data) for path in paths]

    def rot(self, path: str, position: int, bit: int) -> None:
        """One bit of a file changes while nobody looks."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        self.cold.add(inode)

    def cut(self, path: str, size: int) -> None:
        """A file loses its end while nobody looks."""
        inode = self._inode(path)
        del inode.data[size:]
        self.cold.add(inode)

    def fail(self, directory: str, *, only_writes: bool = False) -> None:
        """Make I/O below `directory` fail with EIO from now on."""
        self._failing[directory] = only_writes

    def mend(self, directory: str) -> None:
        self._failing.pop(directory, None)

    def leave_room(self, room: int | None) -> None:
        """Let only `room` more bytes fit, plus what is removed; None restores the original capacity."""
        self.capacity = self._whole_capacity
        if room is not None:
            self.capacity += room - self.room()
        self._used_at_most = self.capacity - self.room()

    @property
    def is_bounded(self) -> bool:
        """Whether `leave_room` has changed the capacity."""
        return self.capacity != self._whole_capacity

    @property
    def is_failing(self) -> bool:
        return bool(self._failing)

    def strike(self, writes: int, struck: Callable[[], None]) -> None:
        """Make the machine fail at the change after `writes` more changes: `struck` is called to end the
        machine, and all I/O fails until `switch_on`."""
        self._strike_after, self._strike = writes, struck

    def spare(self) -> None:
        """Cancel a strike that has not happened yet."""
        self._strike = None

    def switch_on(self) -> None:
        self._is_off = False

    def room(self) -> int:
        return max(0, self.capacity - sum(len(inode.data) for inode in self._files.values()))

    def take_room(self, size: int) -> int:
        """Reserve room for up to `size` bytes. Returns how many fit."""
        # Removed files are counted only when the capacity is reached: a sum per write would be slow.
        if self._used_at_most + size > self.capacity:
            self._used_at_most = self.capacity - self.room()
        taken = min(size, self.capacity - self._used_at_most)
        self._used_at_most += taken
        return taken

    def check_fault(self, path: str, *, writing: bool) -> None:
        if writing and self._strike is not None:
            self._strike_after -= 1
            if self._strike_after < 0:
                struck, self._strike = self._strike, None
                struck()
                self._is_off = True
        if self._is_off:
            raise OSError(errno.EIO, "the machine has ended", path)
        for directory, only_writes in self._failing.items():
            if (writing or not only_writes) and (path == directory or path.startswith(directory + "/")):
                raise OSError(errno.EIO, "simulated input/output error", path)

    # The interface of broker.log.disk.Disk.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check_fault(path, writing=False)
        inode = self._files.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.check_fault(path, writing=True)
            inode = self._create(path)
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def list(self, path: str) -> list[str]:
        self.check_fault(path, writing=False)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        above = path.rstrip("/") + "/"
        start = len(above)
        inner = [name[start:] for name in (*self._files, *self._directories) if name.startswith(above)]
        return sorted(name for name in inner if name and "/" not in name)

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def make_directory(self, path: str) -> None:
        self.check_fault(path, writing=True)
        if path in self._directories:
            return
        parent = posixpath.dirname(path)
        if parent != path:
            self.make_directory(parent)
        self._change_names(lambda files, directories: directories.setdefault(path))

    def rename(self, source: str, target: str) -> None:
        self.check_fault(source, writing=True)
        if source in self._files:
            self._change_names(lambda files, directories: _rename_file(files, source, target))
        elif source in self._directories:
            self._change_names(
                lambda files, directories: _rename_directory(files, directories, source, target)
            )
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    def remove(self, path: str) -> None:
        self.check_fault(path, writing=True)
        if path in self._files:
            self._change_names(lambda files, directories: files.pop(path, None))

    def remove_directory(self, path: str) -> None:
        self.check_fault(path, writing=True)
        if path in self._directories:
            self._change_names(lambda files, directories: _remove_directory(files, directories, path))

    def fsync_directory(self, path: str) -> None:
        self.check_fault(path, writing=True)
        self._sync_names()

    def read(self, path: str) -> bytes:
        self.check_fault(path, writing=False)
        return bytes(self._inode(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self.remove(temporary)
        file = self.open(temporary, create=True)
        file.append([data])
        file.fsync()
        file.close()
        self.rename(temporary, path)
        self.fsync_directory(posixpath.dirname(path))

    def free_bytes(self, path: str) -> int:
        return self.room()

    def total_bytes(self, path: str) -> int:
        return self.capacity

    # Names: processes see each change at once; changes are kept in order until a sync makes them durable.

    def _inode(self, path: str) -> _Inode:
        inode = self._files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _create(self, path: str) -> _Inode:
        if posixpath.dirname(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inode = _Inode(self.now_ms())
        self._change_names(lambda files, directories: files.__setitem__(path, inode))
        return inode

    def _change_names(self, change: Callable[[dict[str, _Inode], dict[str, None]], object]) -> None:
        change(self._files, self._directories)
        self._unsynced_names.append(lambda files, directories: (change(files, directories), None)[1])

    def _sync_names(self) -> None:
        for change in self._unsynced_names:
            change(self._durable_files, self._durable_directories)
        self._unsynced_names.clear()


def _rename_file(files: dict[str, _Inode], source: str, target: str) -> None:
    inode = files.pop(source, None)
    if inode is not None:
        files[target] = inode


def _rename_directory(
    files: dict[str, _Inode], directories: dict[str, None], source: str, target: str
) -> None:
    for table in (files, directories):
        for path in [path for path in table if path == source or path.startswith(source + "/")]:
            table[target + path[len(source) :]] = table.pop(path)  # type: ignore[assignment]


def _remove_directory(files: dict[str, _Inode], directories: dict[str, None], path: str) -> None:
    for table in (files, directories):
        for inner in [name for name in table if name == path or name.startswith(path + "/")]:
            del table[inner]
