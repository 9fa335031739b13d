"""The few operations on files of which the ledger's atomic steps are made, and their local implementation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Storage(Protocol):
    """Files below one folder. Paths are relative to it, with "/" between their parts."""

    def names(self, folder: str) -> Sequence[str]:
        """The names of files and folders in a folder, sorted; empty if it does not exist."""
        ...

    def files(self, folder: str) -> Sequence[str]:
        """The paths of all files below a folder, sorted."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a file. Raises FileNotFoundError."""
        ...

    def size(self, path: str) -> int:
        """The size of a file in bytes."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write a file that survives a power cut once this returns. Not atomic."""
        ...

    def sync(self, path: str) -> None:
        """Make a file that another process wrote survive a power cut."""
        ...

    def publish(self, path: str, name: str) -> bool:
        """Give a written file its final name, in one atomic step that survives a power cut.

        False if that name is taken; then nothing has changed.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it. It need not exist."""
        ...


class LocalStorage:
    """A folder of a file system that is mounted on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> Sequence[str]:
        place = self._root / folder
        return sorted(found.name for found in place.iterdir()) if place.is_dir() else []

    def files(self, folder: str) -> Sequence[str]:
        found = (self._root / folder).rglob("*")
        return sorted(path.relative_to(self._root).as_posix() for path in found if path.is_file())

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def size(self, path: str) -> int:
        return (self._root / path).stat().st_size

    def write(self, path: str, content: bytes) -> None:
        place = self._root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def sync(self, path: str) -> None:
        _sync(self._root / path)
        _sync((self._root / path).parent)

    def publish(self, path: str, name: str) -> bool:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._root / path, target)  # Unlike a rename, a link never replaces a file.
        except FileExistsError:
            return False
        _sync(target.parent)
        (self._root / path).unlink(missing_ok=True)  # A later run may have swept it since.
        return True

    def remove(self, path: str) -> None:
        place = self._root / path
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
