"""Runs a broker on a machine whose clock and disk can be made to fail:

    python -P -m holdfast_log.broker.tools.machine_hooks DIRECTORY -m holdfast_log.broker server.properties

DIRECTORY belongs to a `broker.tools.machine.HookedMachine`, which writes its files while the broker runs.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import runpy
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTROLS = "controls"
"""File with the machine's `STATE`, which the broker maps into memory."""
STATE = struct.Struct("=d?")
"""How many seconds the clock is ahead of the true time, and whether the disk is full."""
BOOT = "boot"
"""File with the machine's boot id."""
SYNCED = "synced"
"""File with a `SYNC` for each fsync of a file: the length up to which its content outlasts a power loss."""
SYNC = struct.Struct("=QQ")
"""Inode number, and length in bytes."""


class Hooks:
    """Replaces functions of the standard library by ones that obey the files in `directory`."""

    def __init__(self, directory: Path) -> None:
        with open(directory / CONTROLS, "rb") as file:
            self._controls = mmap.mmap(file.fileno(), STATE.size, prot=mmap.PROT_READ)
        self._boot = directory / BOOT
        self._synced = os.open(directory / SYNCED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def install(self) -> None:
        """Hook the clock, the disk and the boot id. Call it before Twisted is imported, which keeps time.time
        itself."""
        self._hook_clock()
        self._hook_full_disk()
        self._hook_syncs()
        # Imported only now, because it may import modules that keep a reference to what is hooked.
        from holdfast_log.broker.process import session_file

        session_file._BOOT_ID = self._boot

    def _hook_clock(self) -> None:
        true_s, true_ns = time.time, time.time_ns
        time.time = lambda: true_s() + self._ahead_s()
        time.time_ns = lambda: true_ns() + int(self._ahead_s() * 1e9)

    def _hook_full_disk(self) -> None:
        def hooked(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **keywords: Any) -> Any:
                self._check_space()
                return function(*arguments, **keywords)

            return call

        for name in ("pwritev", "pwrite", "mkdir"):
            setattr(os, name, hooked(getattr(os, name)))
        true_open = builtins.open

        def open_file(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if mode != "r" and mode != "rb":
                self._check_space()
            return true_open(file, mode, *arguments, **keywords)

        setattr(builtins, "open", open_file)  # noqa: B010
        setattr(io, "open", open_file)  # noqa: B010

    def _hook_syncs(self) -> None:
        true_fsync, true_open = os.fsync, os.open

        def fsync(fd: Any) -> None:
            true_fsync(fd)
            self._note(fd)

        def open_file(path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
            descriptor = true_open(path, flags, *arguments, **keywords)
            if flags & os.O_CREAT and os.fstat(descriptor).st_size == 0:
                self._note(descriptor)  # The inode number may have been that of another file.
            return descriptor

        os.fsync = fsync
        os.open = open_file

    def _ahead_s(self) -> float:
        ahead_s: float = STATE.unpack_from(self._controls)[0]
        return ahead_s

    def _check_space(self) -> None:
        if STATE.unpack_from(self._controls)[1]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _note(self, descriptor: int) -> None:
        seen = os.fstat(descriptor)
        os.write(self._synced, SYNC.pack(seen.st_ino, seen.st_size))


def main() -> None:
    directory, flag, module, *rest = sys.argv[1:]
    assert flag == "-m", (
        "usage: python -m holdfast_log.broker.tools.machine_hooks DIRECTORY -m MODULE ARGUMENTS"
    )
    Hooks(Path(directory)).install()
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
