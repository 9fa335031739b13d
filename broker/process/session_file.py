"""The file in a broker's first log directory that has the id and password of its ZooKeeper session.

The session of a killed broker, and with it the broker's registration, lasts until ZooKeeper's session timeout
has passed; a restarted broker would have to wait for that. ZooKeeper lets any client that has a session's id
and password end the session, so the broker ends the session of its previous process.

It may do so only if that process is certainly dead: if it used this same directory since the machine booted,
it held the lock that this process holds now (`broker.process.directory_locks`). So the file has the machine's
boot id and its own inode number: it is ignored in a copy of the directory and after a reboot.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast_log.coordinator.zookeeper.session_memory import SessionKey

NAME = ".zookeeper-session"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """The operating system's id of this boot of the machine; None if it has none."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


class SessionFile:
    """Implements `coordinator.zookeeper.session_memory.SessionMemory`.

    This process must have locked the directories.

    `boot` is the machine's `boot_id()`; without one nothing is stored.
    """

    def __init__(self, log_directories: Sequence[str], boot: str | None) -> None:
        self._path = Path(log_directories[0]) / NAME
        self._boot = boot

    def recall(self) -> SessionKey | None:
        """The session of the previous process; None unless that process is certainly dead."""
        try:
            with open(self._path) as file:
                inode = os.fstat(file.fileno()).st_ino
                known = json.load(file)
            if known["boot"] != self._boot or known["inode"] != inode:
                return None
            return SessionKey(int(known["session"]), bytes.fromhex(known["password"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Without the session the start takes longer, but succeeds.

    def remember(self, key: SessionKey) -> None:
        """Store the session of this process. Only the file's owner may read the file: it has a password."""
        if self._boot is None:
            return
        temporary = self._path.with_name(NAME + ".tmp")
        with contextlib.suppress(OSError):
            self._unlink(temporary)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                json.dump(
                    {
                        "boot": self._boot,
                        "inode": os.fstat(descriptor).st_ino,
                        "session": key.session_id,
                        "password": key.password.hex(),
                    },
                    file,
                )
            temporary.replace(self._path)

    def forget(self) -> None:
        """Remove the file: this process has ended its session."""
        self._unlink(self._path)

    @staticmethod
    def _unlink(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
