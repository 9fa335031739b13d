"""How far a file has been read, shown on a terminal."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO

_STEP_BYTES = 64 * 1024


@contextmanager
def progress(source: BinaryIO, screen: TextIO) -> Iterator[Callable[[int], None]]:
    """Draw a bar on `screen` while `source` is read; call the given function with each count of bytes.

    Only where the screen is a terminal, and the source a regular file, whose end can be known.
    """
    total = _bytes_left(source) if screen.isatty() else None
    if total is None:
        yield lambda count: None
        return
    from rich.console import Console  # Slow to import, and most do without.
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=screen)) as bar:
        task = bar.add_task("", total=total)
        untold = 0

        def advance(count: int) -> None:
            nonlocal untold
            untold += count
            if untold >= _STEP_BYTES:  # A line is too little to look at the bar for.
                bar.advance(task, untold)
                untold = 0

        try:
            yield advance
        finally:
            bar.advance(task, untold)


def _bytes_left(source: BinaryIO) -> int | None:
    """How much of a regular file is still to be read; None for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:  # No file at all, but something that can be read like one.
        return None
    return status.st_size - source.tell() if stat.S_ISREG(status.st_mode) else None
