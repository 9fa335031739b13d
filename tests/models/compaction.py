"""Compacts real logs (`broker.cleaning`) at once, and reads what remains."""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import ensureDeferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cleaning.cleaning_pass import CleaningPass, PassSurroundings
from holdfast_log.broker.cleaning.plan import plan_of
from holdfast_log.broker.cleaning.settings import CleanerSettings
from holdfast_log.broker.decompression_budget import DecompressionBudget
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.protocol.records import iterate
from tests.models.logs import headers_of, read_all
from tests.models.workers import ImmediateWorkers


class StoredRecord(NamedTuple):
    """One record of a log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def compact(
    log: Log,
    disk: Disk,
    now_ms: int,
    *,
    committed_offset: int | None = None,
    settings: CleanerSettings | None = None,
) -> CleaningPass | None:
    """Carry out the next pass over a log; None if it needs none. Raises what the pass raises."""
    committed = log.log_end_offset if committed_offset is None else committed_offset
    plan = plan_of(log, committed, now_ms)
    if plan is None:
        return None
    around = PassSurroundings(
        disk, ImmediateWorkers(), DecompressionBudget(ImmediateWorkers()), lambda: now_ms,
        settings or CleanerSettings(),
        lambda _: succeed(None), lambda: False,
    )  # fmt: skip
    cleaning = CleaningPass(plan, around)
    failures: list[Failure] = []
    ensureDeferred(cleaning.run()).addErrback(failures.append)
    for failure in failures:
        failure.raiseException()
    return cleaning


def records_of(log: Log) -> list[StoredRecord]:
    """All records of a log, by reads from its start."""
    data = memoryview(read_all(log)) if log.log_start_offset < log.log_end_offset else memoryview(b"")
    return [
        StoredRecord(record.offset, record.key, record.value, record.timestamp)
        for header in (headers_of(log) if len(data) else ())
        for record in iterate(data, header)
        if record.offset >= log.log_start_offset
    ]
