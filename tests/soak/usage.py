"""Samples the memory, file descriptors, threads and disk space of processes into a CSV file."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that one process uses at one moment."""

    rss_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of one process at one moment. `life` counts the starts of the process, from 1; `age_s` is
    the time in seconds since that start, `at_s` the time since the first sample of the run."""

    at_s: float
    process: str
    life: int
    age_s: float
    rss_bytes: int
    descriptors: int
    threads: int
    directory_bytes: int


@dataclass(frozen=True, slots=True)
class _Watched:
    pid: int
    life: int
    started: float
    directory: Path


class Sampler:
    """Samples the watched processes, in a thread of its own. A context manager.

    It writes every sample to `path` at once, so that the samples of an interrupted run are kept.
    """

    def __init__(self, path: Path, interval_s: float) -> None:
        self.samples: list[Sample] = []
        self._path = path
        self._interval_s = interval_s
        self._began = time.monotonic()
        self._watched: dict[str, _Watched] = {}
        self._lives: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def watch(self, process: str, pid: int, directory: Path) -> None:
        """Sample this process, which has just started, until `leave` is called."""
        with self._lock:
            self._lives[process] = self._lives.get(process, 0) + 1
            self._watched[process] = _Watched(pid, self._lives[process], time.monotonic(), directory)

    @property
    def processes(self) -> set[str]:
        """The names of the processes that are sampled."""
        with self._lock:
            return set(self._watched)

    def leave(self, process: str) -> None:
        """Stop sampling this process. Call it before the process is stopped."""
        with self._lock:
            del self._watched[process]

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with open(self._path, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([field.name for field in fields(Sample)])
            while not self._stopping.wait(self._interval_s):
                for sample in self._look():
                    self.samples.append(sample)
                    rows.writerow(astuple(sample))
                file.flush()

    def _look(self) -> Sequence[Sample]:
        with self._lock:  # Held while /proc is read, so that `leave` returns only after the last sample.
            found = []
            for name, watched in self._watched.items():
                usage, now = usage_of(watched.pid), time.monotonic()
                at_s, age_s = round(now - self._began, 3), round(now - watched.started, 3)
                row = (usage.rss_bytes, usage.descriptors, usage.threads, size_of(watched.directory))
                found.append(Sample(at_s, name, watched.life, age_s, *row))
            return found


def usage_of(pid: int) -> Usage:
    """The resources that a process uses now. Raises OSError if there is no such process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return Usage(
        rss_bytes=int(values["VmRSS"].split()[0]) * 1024,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(values["Threads"]),
    )


def size_of(directory: Path) -> int:
    """Bytes in the files below a directory. Files that vanish meanwhile are not counted."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total
