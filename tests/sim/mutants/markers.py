"""Bugs of the markers that end transactions: a coordinator that does not have all of them written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast_log.broker.transactions import markers
from holdfast_log.broker.transactions.markers import MarkerSender
from tests.sim.mutation import Mutation, Patch
from tests.sim.plan import TRANSACTIONS


def _drop_aborts_of_the_first_partition() -> Sequence[Patch]:
    queue = MarkerSender._queue

    def mutant(self: MarkerSender, found: Iterable[Any]) -> None:
        each = list(found)
        dropped = [
            marker for marker in each if not marker.end.markers.is_commit and not marker.partition.partition
        ]
        queue(self, (marker for marker in each if marker not in dropped))
        markers._report(dropped)

    return [(MarkerSender, "_queue", mutant)]


MUTATIONS = (
    Mutation(
        "abort-markers-dropped",
        "abort markers of the first partition of every topic count as written, and are not sent",
        _drop_aborts_of_the_first_partition,
        TRANSACTIONS,
    ),
)
