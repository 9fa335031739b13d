"""One run of a job: its lease, its ledger, and what it reports."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast_log import Lease, OwnershipRefusedError
from holdfast_log.clients.config import ADMIN_ROWS
from holdfast_log.pipeline.cluster import properties_for
from holdfast_log.pipeline.jobs.ledger import Ledger, SupersededError
from holdfast_log.pipeline.jobs.storage import LocalStorage

LEASE_GROUP = "holdfast-jobs"


class JobError(Exception):
    """The job cannot run, or must not; the message says why, and what to do."""


@dataclass
class JobReport:
    """What one run did, for people and for programs."""

    job: str
    run: str
    output: str
    began_at: float
    """Seconds since 1970."""
    seconds: float = 0.0
    status: str = "failed"
    """"done", "nothing new" or "failed"."""
    records: int = 0
    bytes: int = 0
    files: int = 0
    lag: int | None = None
    """Offsets that the topics had when the run ended and that no run has taken; None if nobody looked."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds that the parts of the run took, in their order."""
    token: int = -1
    step: int = -1
    """Number of the result in the ledger; -1 if there is none."""
    start: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    end: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    error: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The report in words."""
        rate = f", {self.records / self.seconds:,.0f} a second" if self.seconds > 0 and self.records else ""
        size = f", {self.bytes:,} bytes in {self.files} files" if self.files else ""
        lag = f" {self.lag:,} offsets are left to take." if self.lag else ""
        told = [f"{self.job} {self.output}: {self.status}. {self.records:,} records{size}{rate}.{lag}"]
        for topic, partitions in self.end.items():
            starts = self.start.get(topic, {})
            moved = [
                f"{partition}: [{starts.get(partition, 0)}, {end})"
                for partition, end in partitions.items()
                if end != starts.get(partition, 0)
            ]
            told.append(f"  {topic}: {', '.join(moved) or 'nothing new'}")
        return told


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run that holds the lease of its output."""

    ledger: Ledger
    storage: LocalStorage
    report: JobReport

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to the report."""
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.report.phases[name] = round(self.report.phases.get(name, 0.0) + took, 3)

    def begin(self) -> None:
        """Keep earlier runs from finishing, and remove what they left. Raises `SupersededError`."""
        self.ledger.claim()
        self.report.details["removed"] = self.ledger.sweep()

    def finish(
        self,
        kind: str,
        offsets: Mapping[str, Mapping[str, int]],
        files: list[str],
        details: Mapping[str, Any],
    ) -> None:
        """Publish the result. Raises `SupersededError`.

        A run that has lost its lease may publish as long as no other run has begun: the ledger alone decides.
        """
        with self.phase("publish"):
            self.report.step = self.ledger.finish(kind, offsets, files, details).number


@dataclass(frozen=True, slots=True)
class HeldOutput:
    """An output folder on which this process holds the lease, for one run after the other."""

    job: str
    place: Path
    token: int

    @contextmanager
    def run(self) -> Iterator[JobRun]:
        """One run, which ends with the block.

        If a later run has claimed the output, it has also removed files of this one, and the block may fail
        with any error. `SupersededError` is then raised from that error.
        """
        run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        report = JobReport(self.job, run, str(self.place), time.time(), token=self.token)
        storage = LocalStorage(self.place)
        ledger = Ledger(storage, run, self.token)
        began = time.monotonic()
        try:
            yield JobRun(ledger, storage, report)
        except Exception as error:
            if report.status == "failed" and not isinstance(error, SupersededError):
                _check(ledger, error)
            raise
        finally:
            report.seconds = time.monotonic() - began


def _check(ledger: Ledger, error: Exception) -> None:
    """Raise `SupersededError` from `error` if a later run has claimed the output."""
    try:
        ledger.check()
    except SupersededError as superseded:
        raise superseded from error


@contextmanager
def held_output(job: str, client: Mapping[str, str], output: Path) -> Iterator[HeldOutput]:
    """Keep other processes from working on an output folder. Raises `JobError` if one does."""
    place = output.resolve()
    owner = f"{socket.gethostname()} process {os.getpid()} job {job} {uuid.uuid4().hex[:8]}"
    lease = Lease(properties_for(ADMIN_ROWS, client), LEASE_GROUP, [str(place)], owner_id=owner)
    try:
        try:
            lease.claim()
        except OwnershipRefusedError as error:
            raise JobError(
                f"another run of a job works on {place}, and this one has done nothing: {error}. Wait for "
                f"it to end, or see scripts/owners.sh, group {LEASE_GROUP}."
            ) from None
        yield HeldOutput(job, place, lease.token(str(place)))
    finally:
        lease.close()


@contextmanager
def job_run(job: str, client: Mapping[str, str], output: Path) -> Iterator[JobRun]:
    """One run of a job, on an output folder that no other run changes. Raises `JobError` if one does."""
    with held_output(job, client, output) as held, held.run() as run:
        yield run
