"""The metrics of ownership."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, counters, gauge
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.protocol.messages.ownership import LossReason


def _losses(service: OwnershipService) -> Iterator[Sample]:
    for reason, count in service.losses().items():
        if reason is not LossReason.NONE:
            yield Sample((reason.name.lower(),), count)


OWNERSHIP_METRICS: tuple[MetricRow[OwnershipService], ...] = (
    counter(
        "holdfast_ownership_claims_total",
        "Grants of resources, to claims and to waiters.",
        lambda service: service.totals().claims,
    ),
    counter(
        "holdfast_ownership_steals_total",
        "Grants that took the resource from an owner.",
        lambda service: service.totals().steals,
    ),
    counter(
        "holdfast_ownership_refusals_total",
        "Claims that were refused.",
        lambda service: service.totals().refusals,
    ),
    counter(
        "holdfast_ownership_fenced_appends_total",
        "Appends refused because the client did not own the partition.",
        lambda service: service.totals().fenced_appends,
    ),
    counter(
        "holdfast_ownership_mismatches_total",
        "Conditional appends whose condition did not hold.",
        lambda service: service.mismatches,
    ),
    counters(
        "holdfast_ownership_losses_total",
        "Grants that ended, by reason: stolen, reset, evicted, released, disconnected, session_timed_out, "
        "forced (by an administrator), deleted, foreign_append, foreign_fetch.",
        ("reason",),
        _losses,
    ),
    counter(
        "holdfast_ownership_forced_releases_total",
        "Grants that an administrator ended.",
        lambda service: service.losses()[LossReason.FORCED],
    ),
    gauge(
        "holdfast_ownership_record_bytes",
        "Bytes of the records of what is owned at this broker, which ZooKeeper has in memory; "
        "own.records.total.bytes limits them.",
        lambda service: service.record_bytes,
    ),
    gauge(
        "holdfast_ownership_record_bytes_available",
        "Bytes left of own.records.total.bytes; at 0 claims of resources that were never owned are refused.",
        lambda service: service.record_bytes_left,
    ),
    gauge(
        "holdfast_ownership_waiters",
        "Claims that wait in queues at present.",
        lambda service: sum(len(resource.waiters) for resource in service.resources()),
    ),
    gauge(
        "holdfast_ownership_owners",
        "Grants in force at present, including those of detached owners.",
        lambda service: sum(
            entry.grant is not None for resource in service.resources() for entry in resource.entries.values()
        ),
    ),
    gauge(
        "holdfast_ownership_detached_owners",
        "Grants in force whose owners have no connection at present, and may resume.",
        lambda service: sum(
            entry.grant is not None and entry.connection is None
            for resource in service.resources()
            for entry in resource.entries.values()
        ),
    ),
)
