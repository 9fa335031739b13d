"""The machines that a cell's brokers run on: their clocks can be set, their disks fill up, their power fails.

A power loss removes what no fsync has covered. On an `Ext4Machine` the kernel does that: each broker has a
file system of its own, mounted from a file, which is shut down without writing its caches and mounted again.
This needs root. A `broker.tools.machine.HookedMachine` works everywhere.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast_log.broker.tools.machine import HookedMachine

CHECKOUT = Path(__file__).parent.parent.parent
_DISK_BYTES = 256 << 20
_SHUT_DOWN = 0x8004587D
"""FS_IOC_SHUTDOWN of linux/fs.h."""
_WITHOUT_FLUSH = (2).to_bytes(4, sys.byteorder)
"""FS_SHUTDOWN_FLAGS_NOLOGFLUSH: write neither data nor the journal."""
_FILLER = "filler"


class Ext4Machine(HookedMachine):
    """A machine whose disk is an ext4 file system, mounted from a file in `directory`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._image = directory / "disk.ext4"
        self._mount_point = directory / "disk"
        self.log_dir = self._mount_point / "data"
        self._mount_point.mkdir()
        self._image.touch()
        os.truncate(self._image, _DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self._mount()
        self.log_dir.mkdir()

    def fill_disk(self) -> None:
        filler = os.open(self._mount_point / _FILLER, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for part in (1 << 24, 1 << 20, 1 << 16, 1 << 12):
                _extend_while_possible(filler, part)
        finally:
            os.close(filler)

    def make_room(self) -> None:
        (self._mount_point / _FILLER).unlink()

    def lose_power(self) -> None:
        descriptor = os.open(self._mount_point, os.O_RDONLY)
        fcntl.ioctl(descriptor, _SHUT_DOWN, _WITHOUT_FLUSH)
        os.close(descriptor)
        _run("umount", str(self._mount_point))
        self._mount()
        self._boot()

    def close(self) -> None:
        _run("umount", "--lazy", str(self._mount_point))

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._mount_point))


def _extend_while_possible(descriptor: int, step: int) -> None:
    """Extend a file in steps of so many bytes until the disk has no space for another one."""
    try:
        while True:
            os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, step)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def prefix() -> list[str]:
    """The command prefix that starts a command whose mounts nobody else sees, and which end with it."""
    return ["unshare", "--mount", "--propagation", "private", "--"]


def can_mount() -> bool:
    """Whether this process may use `Ext4Machine`, and has the tools for it."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "mount", "umount", "mkfs.ext4"))):
        return False
    trial = [*prefix(), sys.executable, "-m", "tests.faults.machines"]
    return subprocess.run(trial, cwd=CHECKOUT, capture_output=True, timeout=300, check=False).returncode == 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        trial_machine = Ext4Machine(Path(temporary))
        trial_machine.lose_power()
        trial_machine.close()
