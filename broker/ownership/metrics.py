"""What is counted of ownership: one row each, read when somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.ownership.service import OwnershipService


@dataclass(frozen=True, slots=True)
class Metric:
    """`is_counter`: it only rises, from 0 at the start of the broker; else it is what there is at present."""

    name: str
    doc: str
    is_counter: bool
    read: Callable[[OwnershipService], int]


METRICS: tuple[Metric, ...] = (
    Metric(
        "holdfast_ownership_claims_total",
        "Grants of resources, by claim or by a place in the queue.",
        True,
        lambda service: service.table.state.totals.claims,
    ),
    Metric(
        "holdfast_ownership_steals_total",
        "Grants that took the resource from an owner.",
        True,
        lambda service: service.table.state.totals.steals,
    ),
    Metric(
        "holdfast_ownership_refusals_total",
        "Claims that were refused.",
        True,
        lambda service: service.table.state.totals.refusals,
    ),
    Metric(
        "holdfast_ownership_fenced_appends_total",
        "Appends of those who did not own the partition.",
        True,
        lambda service: service.table.state.totals.fenced_appends,
    ),
    Metric(
        "holdfast_ownership_mismatches_total",
        "Conditional appends where the log did not end as expected.",
        True,
        lambda service: service.mismatches,
    ),
    Metric(
        "holdfast_ownership_waiters",
        "Claims that wait for their turn.",
        False,
        lambda service: sum(len(resource.waiters) for resource in service.resources()),
    ),
    Metric(
        "holdfast_ownership_owners",
        "Resources that are owned, owners that have lost their connection included.",
        False,
        lambda service: sum(
            entry.grant is not None for resource in service.resources() for entry in resource.entries.values()
        ),
    ),
)


def read_metrics(service: OwnershipService) -> dict[str, int]:
    """All of them, by name."""
    return {metric.name: metric.read(service) for metric in METRICS}
