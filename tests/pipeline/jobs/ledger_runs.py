"""Runs of a job without Spark, one after the other, to be killed from outside.

    python -m tests.pipeline.jobs.ledger_runs FOLDER TOKEN END

Before each operation that changes a file it prints the operation's name, and waits for a line of input. It
prints "done" when everything up to END is copied.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast_log.pipeline.jobs.ledger import Ledger
from holdfast_log.pipeline.jobs.storage import LocalStorage

STEP = 7


class LoudStorage:
    """A storage that reports each change, and waits for permission, before it is made."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in ("write", "sync", "publish", "remove"):
            print(name, flush=True)
            sys.stdin.readline()
        found: Callable[..., Any] = getattr(self._storage, name)
        return found


def main(folder: Path, token: int, end: int) -> None:
    """Copy the numbers that are missing, `STEP` of them in one run."""
    storage: Any = LoudStorage(LocalStorage(folder))
    for run in range(end):
        ledger = Ledger(storage, f"{token}-{run}", token)
        last = ledger.last_result()
        start = last.offsets["t"]["0"] if last else 0
        if start >= end:
            break
        ledger.claim()
        ledger.sweep()
        stop = min(end, start + STEP)
        path = f"{ledger.folder()}/part"
        storage.write(path, json.dumps(list(range(start, stop))).encode())
        ledger.finish("load", {"t": {"0": stop}}, [path])
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
