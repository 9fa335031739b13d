"""The file in a broker's first log directory that says which ZooKeeper session the broker has.

A broker that is killed leaves its session behind, and with it its registration, until ZooKeeper has waited
for the whole session timeout. Started again at once, it would have to wait as long. Whoever shows ZooKeeper a
session's id and password may end it at once, and that is what a broker does with the session of the process
before it.

It may do so only when that process is surely dead. It is if it had this very directory on this very run of
this machine, because then the lock that this process holds now (`broker.process.directory_locks`) was held by
that one before. So the file names the machine's run and its own inode: in a copy of the directory, here or
elsewhere, it means nothing, and after a restart of the machine neither.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from coordinator.zookeeper.session_memory import SessionKey

NAME = ".zookeeper-session"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """What tells this run of the machine from every other; None where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


class SessionFile:
    """Implements `coordinator.zookeeper.session_memory.SessionMemory`.

    This process must have locked the directories.

    `boot` is the machine's `boot_id()`; without one nothing is remembered.
    """

    def __init__(self, log_directories: Sequence[str], boot: str | None) -> None:
        self._path = Path(log_directories[0]) / NAME
        self._boot = boot

    def recall(self) -> SessionKey | None:
        """The session that the process before this one had, if it is certain that there was one."""
        try:
            with open(self._path) as file:
                inode = os.fstat(file.fileno()).st_ino
                known = json.load(file)
            if known["boot"] != self._boot or known["inode"] != inode:
                return None
            return SessionKey(int(known["session"]), bytes.fromhex(known["password"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Without it the start takes longer, and that is all.

    def remember(self, key: SessionKey) -> None:
        """Note the session of this process. Only its owner may read the file: it holds a password."""
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
        """This process has ended its session itself."""
        self._unlink(self._path)

    @staticmethod
    def _unlink(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
