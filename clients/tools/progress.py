"""A progress bar on a terminal while a file is read."""

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

    Draws nothing unless `screen` is a terminal and `source` is a regular file, whose size is known.
    """
    total = _bytes_left(source) if screen.isatty() else None
    if total is None:
        yield lambda count: None
        return
    from rich.console import Console  # Imported here because it is slow and most runs do not need it.
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=screen)) as bar:
        task = bar.add_task("", total=total)
        untold = 0

        def advance(count: int) -> None:
            nonlocal untold
            untold += count
            if untold >= _STEP_BYTES:  # Updating the bar for each line would be slow.
                bar.advance(task, untold)
                untold = 0

        try:
            yield advance
        finally:
            bar.advance(task, untold)


def _bytes_left(source: BinaryIO) -> int | None:
    """The number of bytes of a regular file not read yet; None for anything else."""
    try:
        status = os.fstat(source.fileno())
    except OSError:  # A file-like object without a descriptor.
        return None
    return status.st_size - source.tell() if stat.S_ISREG(status.st_mode) else None
