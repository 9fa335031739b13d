"""A disk in memory with faults: lost and torn writes, I/O errors, no space left, read-only or older content.

A *kill* ends only the process: its writes are in the page cache and stay. A *power loss* also takes what no
fsync has made durable. Only a random part of the unsynced bytes survives: their end is cut off, or part of
them is replaced by zeros or garbage. An unsynced truncation may be undone. In each directory only the first
few unsynced changes of names survive, independently of other directories. A file is lost if the name of any
directory above it is lost.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast_log.protocol.wire import Buffer

_PAGE_BYTES = 4096


class _Inode:
    """The content of one file: the bytes that processes see, and how many of them are durable."""

    __slots__ = ("data", "durable_size", "durable_sound_size", "modified_ms", "shadow", "sound")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable_size = 0
        # The durable bytes that an unsynced truncation removed: (offset of the cut, removed bytes).
        self.shadow: tuple[int, bytes] | None = None
        self.modified_ms = modified_ms
        self.sound: bytes | None = None
        """The bytes that processes wrote, if the disk has changed them since; None if it has not."""
        self.durable_sound_size = 0
        """How many bytes of `sound` were durable."""

    def rot(self) -> None:
        """Keep a copy of the written bytes before the disk changes them."""
        if self.sound is None:
            self.sound, self.durable_sound_size = bytes(self.data), self.durable_size

    def is_rotten(self) -> bool:
        """Whether the file has other bytes than processes wrote."""
        return self.sound is not None and self.sound != self.data

    def truncate(self, size: int) -> None:
        if self.sound is not None:
            self.sound = self.sound[:size]
            if size > len(self.data) or self.sound == self.data[:size]:
                self.sound = None
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
        self.durable_sound_size = len(self.sound or b"")
        self.shadow = None

    def lose_power(self, rng: random.Random) -> None:
        is_shortened = self.sound is not None and len(self.sound) > len(self.data)
        if self.shadow is not None and rng.random() < 0.5:
            cut, rest = self.shadow
            self.data[cut:] = rest
        elif len(self.data) > self.durable_size:
            self._tear(rng)
        if self.sound is not None and is_shortened:
            self.sound = self.sound[: self.durable_sound_size]
        elif self.sound is not None:
            # A file that was damaged is read from the disk as it is from now on, also behind the damage.
            self.sound = self.sound[: len(self.data)] + self.data[len(self.sound) :]
        self.sync()

    def _tear(self, rng: random.Random) -> None:
        """Lose some of the unsynced bytes. The file may still have its full size, with other bytes in it."""
        torn_at = rng.randint(self.durable_size, len(self.data))
        match rng.choice(["cut", "cut", "zeros", "garbage", "hole"]):
            case "cut":
                del self.data[torn_at:]
            case "zeros":
                self.data[torn_at:] = bytes(len(self.data) - torn_at)
            case "garbage":
                self.data[torn_at:] = rng.randbytes(len(self.data) - torn_at)
            case _:
                end = min(torn_at + _PAGE_BYTES, len(self.data))
                self.data[torn_at:end] = bytes(end - torn_at)

    def copy(self) -> _Inode:
        copy = _Inode(self.modified_ms)
        copy.data[:] = self.data
        copy.sound = self.sound
        copy.sync()
        return copy


@dataclass(eq=False, slots=True)
class _Directory:
    """The names in one directory: those that would survive a power loss, and the changes since then, in
    order.

    A change maps each name that it adds, removes or replaces to the new file or directory, or to None. After
    a power loss either all names of a change are there, or none.
    """

    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    unsynced: list[dict[str, _Inode | _Directory | None]] = field(default_factory=list)

    def sync(self, changes: int | None = None) -> None:
        """Make the first `changes` changes durable, or all if it is None."""
        for change in self.unsynced[:changes]:
            for name, entry in change.items():
                if entry is None:
                    self.durable.pop(name, None)
                else:
                    self.durable[name] = entry
        self.unsynced.clear()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a whole disk at one time."""

    files: dict[str, _Inode]
    directories: tuple[str, ...]


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
        if inode.sound is not None:
            # After a lost end, what is appended makes a new file.
            inode.sound = inode.sound + data[:room] if len(inode.sound) == len(inode.data) else None
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
        self._disk.check_sync(self.path)
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
        self._root = _Directory()
        self._directories: dict[str, _Directory] = {"/": self._root}
        self._failing: dict[str, tuple[bool, int]] = {}
        self._unsyncable: set[str] = set()
        self.unmounted: dict[str, tuple[dict[str, _Inode], list[str]]] = {}
        """The files and directories of devices that are not mounted, by mount point."""
        self.cold: set[_Inode] = set()
        """Files that are not in the page cache, so that processes read any damage from the disk."""
        self._used_at_most = 0
        self._strike_after = 0
        self._strike: Callable[[], None] | None = None
        self._is_off = False

    # Called by the simulation.

    def kill_process(self) -> None:
        """Close every open file, and keep every write."""
        self.life += 1

    def write_back(self) -> None:
        """Make every write so far durable, as the system does in the background."""
        for inode in self._files.values():
            inode.sync()
        self._sync_all()

    def lose_power(self) -> None:
        """Close every open file, and lose some or all unsynced writes."""
        self.life += 1
        self._files, self._directories = {}, {}
        self._recover("/", self._root)
        for inode in self._files.values():
            inode.lose_power(self.rng)

    def _recover(self, path: str, directory: _Directory) -> None:
        """Restore the files and directories below `path` that survive a power loss."""
        if directory.unsynced:
            directory.sync(self.rng.randint(0, len(directory.unsynced)))
        self._directories[path] = directory
        for name, entry in directory.durable.items():
            inner = posixpath.join(path, name)
            if isinstance(entry, _Directory):
                self._recover(inner, entry)
            else:
                self._files[inner] = entry

    def snapshot(self) -> Snapshot:
        """A copy of the disk's content, synced or not."""
        files = {path: inode.copy() for path, inode in self._files.items()}
        return Snapshot(files, tuple(path for path in self._directories if path != "/"))

    def restore(self, snapshot: Snapshot) -> None:
        """Close every open file, and set the disk's content back to the snapshot."""
        self.life += 1
        self._root = _Directory()
        self._files, self._directories = {}, {"/": self._root}
        for path in sorted(snapshot.directories):
            self._name(path, _Directory())
        for path, inode in snapshot.files.items():
            self._name(path, inode.copy())
        self._sync_all()

    def unmount(self, directory: str) -> None:
        """Unmount the directory's device: the directory is empty until `mount`. Call it while no process
        runs."""
        files = {path: inode for path, inode in self._files.items() if path.startswith(directory + "/")}
        folders = [path for path in self._directories if path.startswith(directory + "/")]
        for inode in files.values():
            inode.sync()
        self.unmounted[directory] = files, folders
        self.wipe(directory)

    def mount(self, directory: str) -> None:
        """Mount the directory's device again, with its former content. Files that were written into the empty
        directory meanwhile are dropped."""
        files, folders = self.unmounted.pop(directory)
        self.wipe(directory)
        for path in sorted(folders):
            self._name(path, _Directory())
        for path, inode in files.items():
            self._name(path, inode)
        self._sync_all()

    def wipe(self, directory: str) -> None:
        """Replace the directory's device with an empty one. Injected I/O errors do not affect this call."""
        self._remove_tree(directory)
        if directory not in self._directories:
            self._name(directory, _Directory())
        self._sync_all()

    def peek(self, path: str) -> bytes | None:
        """The bytes that processes read from a file; None if there is no such file. Injected I/O errors do
        not affect this call."""
        inode = self._files.get(path)
        return None if inode is None else bytes(inode.data)

    def contents(self, directory: str, suffix: str) -> list[bytes]:
        """The bytes that processes wrote to the files of a directory whose names end with `suffix`, sorted by
        name, without any change that the disk made since. Injected I/O errors do not affect this call."""
        files = self._files
        within = directory.rstrip("/") + "/"
        paths = sorted(path for path in files if path.startswith(within) and path.endswith(suffix))
        return [files[path].sound or bytes(files[path].data) for path in paths]

    def unsafe(self, directory: str) -> list[str]:
        """The files of a directory that a power loss could take, or shorten, now."""
        above, name = posixpath.split(directory)
        own = self._directories[directory]
        is_named = self._directories[above].durable.get(name) is own
        inner = {path: inode for path, inode in self._files.items() if posixpath.dirname(path) == directory}
        return [
            path
            for path, inode in sorted(inner.items())
            if not is_named
            or own.durable.get(posixpath.basename(path)) is not inode
            or inode.durable_size < len(inode.data)
        ]

    def rot(self, path: str, position: int, bit: int, *, is_warm: bool = False) -> None:
        """Change one bit of a file, without any error, as a failing disk does. `is_warm`: somebody else has
        read the file since, so that the page cache has the bit."""
        inode = self._inode(path)
        inode.rot()
        inode.data[position] ^= 1 << bit
        if not is_warm:
            self.cold.add(inode)

    def is_rotten(self, path: str) -> bool:
        """Whether a file has other bytes than processes wrote to it, because of `rot` or `cut`. The file
        may be on a device that is not mounted. A file that does not exist is not rotten."""
        mounts = (self._files, *(files for files, _ in self.unmounted.values()))
        return any(path in files and files[path].is_rotten() for files in mounts)

    def rewrite(self, path: str, position: int, bit: int) -> None:
        """Change one bit of a file as if a process had written it so."""
        self._inode(path).data[position] ^= 1 << bit

    def cut(self, path: str, size: int) -> None:
        """Shorten a file to `size` bytes, without any error, as a failing disk does."""
        inode = self._inode(path)
        inode.rot()
        del inode.data[size:]
        self.cold.add(inode)

    def fail(self, directory: str, *, only_writes: bool = False) -> None:
        """Make I/O below `directory` fail with EIO from now on."""
        self._failing[directory] = (only_writes, errno.EIO)

    def fail_syncs(self, directory: str) -> None:
        """Make every fsync of a file below `directory` fail with EIO from now on, as a disk does that cannot
        write. Writes reach the page cache only."""
        self._unsyncable.add(directory)

    def make_read_only(self, directory: str) -> None:
        """Make changes below `directory` fail with EROFS from now on."""
        self._failing[directory] = (True, errno.EROFS)

    def mend(self, directory: str) -> None:
        self._failing.pop(directory, None)
        self._unsyncable.discard(directory)

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
        return bool(self._failing or self._unsyncable)

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
        for directory, (only_writes, number) in self._failing.items():
            if (writing or not only_writes) and (path == directory or path.startswith(directory + "/")):
                raise OSError(number, f"simulated: {os.strerror(number)}", path)

    def check_sync(self, path: str) -> None:
        if any(path.startswith(directory + "/") for directory in self._unsyncable):
            raise OSError(errno.EIO, f"simulated: {os.strerror(errno.EIO)}", path)

    # The interface of holdfast_log.broker.log.disk.Disk.

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
        self._name(path, _Directory())

    def rename(self, source: str, target: str) -> None:
        self.check_fault(source, writing=True)
        if source in self._files:
            inode = self._files[target] = self._files.pop(source)
            self._change_names({source: None, target: inode})
        elif source in self._directories:
            directory = self._directories[source]
            for table in (self._files, self._directories):
                for path in [path for path in table if path == source or path.startswith(source + "/")]:
                    table[target + path[len(source) :]] = table.pop(path)  # type: ignore[assignment]
            self._change_names({source: None, target: directory})
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

    def remove(self, path: str) -> None:
        self.check_fault(path, writing=True)
        if self._files.pop(path, None) is not None:
            self._change_names({path: None})

    def remove_directory(self, path: str) -> None:
        self.check_fault(path, writing=True)
        self._remove_tree(path)

    def _remove_tree(self, path: str) -> None:
        if path in self._directories:
            for table in (self._files, self._directories):
                for inner in [name for name in table if name == path or name.startswith(path + "/")]:
                    del table[inner]
            self._change_names({path: None})

    def fsync_directory(self, path: str) -> None:
        self.check_fault(path, writing=True)
        directory = self._directories.get(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        directory.sync()

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

    # Names: processes see each change at once; the directory keeps it until a sync makes it durable.

    def _inode(self, path: str) -> _Inode:
        inode = self._files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def _create(self, path: str) -> _Inode:
        if posixpath.dirname(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inode = _Inode(self.now_ms())
        self._name(path, inode)
        return inode

    def _name(self, path: str, entry: _Inode | _Directory) -> None:
        """Give a new file or directory its name."""
        if isinstance(entry, _Directory):
            self._directories[path] = entry
        else:
            self._files[path] = entry
        self._change_names({path: entry})

    def _change_names(self, change: dict[str, _Inode | _Directory | None]) -> None:
        """Record changed names as unsynced, in the directory of each name."""
        by_parent: dict[str, dict[str, _Inode | _Directory | None]] = {}
        for path, entry in change.items():
            by_parent.setdefault(posixpath.dirname(path), {})[posixpath.basename(path)] = entry
        for parent, names in by_parent.items():
            self._directories[parent].unsynced.append(names)

    def _sync_all(self) -> None:
        for directory in self._directories.values():
            directory.sync()
