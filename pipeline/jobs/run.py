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

from clients.config import ADMIN_ROWS
from holdfast import Lease, OwnershipRefusedError
from pipeline.cluster import properties_for
from pipeline.jobs.ledger import Ledger
from pipeline.jobs.storage import LocalStorage

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
        told = [f"{self.job} {self.output}: {self.status}. {self.records:,} records{size}{rate}."]
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
        self.report.step = self.ledger.finish(kind, offsets, files, details).number


@contextmanager
def job_run(job: str, client: Mapping[str, str], output: Path) -> Iterator[JobRun]:
    """Run a job on an output folder that no other run changes meanwhile. Raises `JobError` if one does."""
    place = output.resolve()
    run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"
    report = JobReport(job, run, str(place), time.time())
    began = time.monotonic()
    owner = f"{socket.gethostname()} process {os.getpid()} run {run}"
    lease = Lease(properties_for(ADMIN_ROWS, client), LEASE_GROUP, [str(place)], owner_id=owner)
    try:
        try:
            lease.claim()
        except OwnershipRefusedError as error:
            raise JobError(
                f"another run of a job works on {place}, and this one has done nothing: {error}. Wait for "
                f"it to end, or see scripts/owners.sh, group {LEASE_GROUP}."
            ) from None
        report.token = lease.token(str(place))
        storage = LocalStorage(place)
        yield JobRun(Ledger(storage, run, report.token), storage, report)
    finally:
        report.seconds = time.monotonic() - began
        lease.close()
