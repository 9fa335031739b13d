"""The machine that a broker runs on: its clock can be set, its disk fills up, its power fails."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from holdfast_log.broker.tools.machine_hooks import BOOT, CONTROLS, STATE, SYNC, SYNCED


class Machine(Protocol):
    """The clock and the disk of one broker's machine."""

    log_dir: Path
    """The broker's log directory."""
    python_arguments: Sequence[str]
    """Arguments of the Python interpreter before `-m holdfast_log.broker`."""

    def set_clock(self, ahead_s: float) -> None:
        """Set the time of day `ahead_s` seconds ahead of the true time, or behind it if negative."""
        ...

    def fill_disk(self) -> None:
        """Use up all space on the broker's disk."""
        ...

    def make_room(self) -> None:
        """End `fill_disk`."""
        ...

    def lose_power(self) -> None:
        """Remove all that is not synced, and change the boot id. The broker must have been killed."""
        ...

    def empty_disk(self) -> None:
        """Remove everything in the log directory. The broker must have been killed."""
        for entry in self.log_dir.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def close(self) -> None: ...


class HookedMachine(Machine):
    """A machine that `broker.tools.machine_hooks` pretends. What it needs is in `directory`.

    A power loss cuts each file to the length that it had at its last fsync. Renamed and removed files stay
    renamed and removed, and a truncation stays, synced or not.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_dir = directory / "data"
        self.python_arguments: Sequence[str] = (
            "-m",
            "holdfast_log.broker.tools.machine_hooks",
            str(directory),
        )
        self._directory = directory
        self._ahead_s = 0.0
        self._is_full = False
        self._write_state()
        self._boot()

    def set_clock(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s
        self._write_state()

    def fill_disk(self) -> None:
        self._is_full = True
        self._write_state()

    def make_room(self) -> None:
        self._is_full = False
        self._write_state()

    def lose_power(self) -> None:
        lengths = self._synced_lengths()
        for path in self.log_dir.rglob("*"):
            if not path.is_file():
                continue
            seen = path.stat()
            if seen.st_ino not in lengths:
                path.unlink()
            elif seen.st_size > lengths[seen.st_ino]:
                os.truncate(path, lengths[seen.st_ino])
        self._boot()

    def close(self) -> None:
        pass

    def _synced_lengths(self) -> Mapping[int, int]:
        """Length at the last fsync, by inode number."""
        noted = (self._directory / SYNCED).read_bytes()
        whole = len(noted) // SYNC.size * SYNC.size
        return dict(SYNC.iter_unpack(noted[:whole]))

    def _write_state(self) -> None:
        # In place, because running brokers have the file mapped.
        descriptor = os.open(self._directory / CONTROLS, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(descriptor, STATE.pack(self._ahead_s, self._is_full), 0)
        os.close(descriptor)

    def _boot(self) -> None:
        (self._directory / BOOT).write_text(f"{uuid.uuid4()}\n")
