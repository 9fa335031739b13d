"""Directories that only their user can enter, and files with process ids that nobody else can choose.

A directory that others can write to may hold a link under the very name that a server is about to write, or a
process id that somebody else has put there. So servers create their directories for themselves alone, never
write through a link, and believe a process id only if its process belongs to the user who has written it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_DIRECTORY_MODE = 0o700
_PID_FILE_MODE = 0o644
_PID_BYTES_MAX = 32
_ROOT = 0


def make_private(path: str | Path) -> None:
    """Create a directory, with its missing parents, for this user alone. One that exists stays as it is.
    Raises OSError."""
    directory = Path(path)
    if directory.is_dir():
        return
    if not directory.parent.exists():
        make_private(directory.parent)
    directory.mkdir(_DIRECTORY_MODE, exist_ok=True)


def write_pid(path: Path, pid: int) -> None:
    """Write a process id into a new file, in place of what is at `path`. A link there is replaced, and
    what it leads to stays as it is. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):
        temporary.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, _PID_FILE_MODE), "w") as file:
        file.write(f"{pid}\n")
    temporary.replace(path)


def read_pid(path: Path) -> int | None:
    """The id of a running process in a file; None if there is none.

    Links are not followed. A file of another user than root may name only processes of its owner: otherwise
    that user could have root stop a process of somebody else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            pid = int(file.read(_PID_BYTES_MAX))
        owner = os.stat(f"/proc/{pid}").st_uid
    except (OSError, ValueError):
        return None
    return pid if found.st_uid in (_ROOT, owner) else None
