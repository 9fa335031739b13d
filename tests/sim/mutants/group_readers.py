"""Bugs of single readers in consumer groups."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.ownership import grants, standings
from holdfast_log.broker.ownership.guards import ReaderGuard
from holdfast_log.broker.ownership.readers import AttachReader
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.messages.ownership import ResourceStanding
from tests.sim.mutation import Mutation, Patch


def _attach_anyone() -> Sequence[Patch]:
    attach = AttachReader._attach

    def mutant(self: AttachReader, state: TableState, key: ResourceKey, now_ms: int) -> ResourceStanding:
        resource = state.resource(key)
        entry = resource.entries.get(self._requester.group)
        if entry is None or entry.grant is None:
            return attach(self, state, key, now_ms)
        grants.attach(state, resource, entry, self._requester.connection, now_ms)
        return standings.outcome(key)

    return [(AttachReader, "_attach", mutant)]


def _look_at_readers_once() -> Sequence[Patch]:
    return [(ReaderGuard, "admit", lambda self, connection: None)]


MUTATIONS = (
    Mutation(
        "attach-anyone",
        "a leader lets any member of the group attach itself to a partition",
        _attach_anyone,
    ),
    Mutation(
        "look-at-readers-once",
        "a leader checks the reader when a member attaches itself, and not at each fetch",
        _look_at_readers_once,
    ),
)

# It only delays an answer.
RARE = (
    Mutation(
        "attach-behind-fetch",
        "a member's attachment is answered only after a waiting fetch of its connection",
        lambda: [(OwnershipService, "end_waiting_fetches", lambda self, connection: None)],
    ),
)
