"""The metrics of ownership: one row each, read on demand. No broker exports them yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.ownership.service import OwnershipService


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A counter (`is_counter`) only rises, from 0 at the start of the broker; others are present
    values."""

    name: str
    doc: str
    is_counter: bool
    read: Callable[[OwnershipService], int]


METRICS: tuple[Metric, ...] = (
    Metric(
        "holdfast_ownership_claims_total",
        "Grants of resources, to claims and to waiters.",
        True,
        lambda service: service.totals().claims,
    ),
    Metric(
        "holdfast_ownership_steals_total",
        "Grants that took the resource from an owner.",
        True,
        lambda service: service.totals().steals,
    ),
    Metric(
        "holdfast_ownership_refusals_total",
        "Claims that were refused.",
        True,
        lambda service: service.totals().refusals,
    ),
    Metric(
        "holdfast_ownership_fenced_appends_total",
        "Appends refused because the client did not own the partition.",
        True,
        lambda service: service.totals().fenced_appends,
    ),
    Metric(
        "holdfast_ownership_mismatches_total",
        "Conditional appends whose condition did not hold.",
        True,
        lambda service: service.mismatches,
    ),
    Metric(
        "holdfast_ownership_waiters",
        "Claims that wait in queues at present.",
        False,
        lambda service: sum(len(resource.waiters) for resource in service.resources()),
    ),
    Metric(
        "holdfast_ownership_owners",
        "Resources that have an owner at present, including detached owners.",
        False,
        lambda service: sum(
            entry.grant is not None for resource in service.resources() for entry in resource.entries.values()
        ),
    ),
)


def read_metrics(service: OwnershipService) -> dict[str, int]:
    """All metrics, by name."""
    return {metric.name: metric.read(service) for metric in METRICS}
