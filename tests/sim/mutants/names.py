"""Bugs of names: of those that are forgotten, and of many at once."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.ownership import decided, forgetting, table
from holdfast_log.broker.ownership.resources import NO_ZNODE, Resource
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import NameKey, ResourceKey
from tests.sim.mutation import Mutation, Patch


def _begin_at_one() -> Sequence[Patch]:
    resource = TableState.resource

    def mutant(self: TableState, key: ResourceKey) -> Resource:
        is_new = key not in self.resources
        found = resource(self, key)
        if is_new and isinstance(key, NameKey):
            found.incarnation = 0
        return found

    return [(TableState, "resource", mutant)]


def _forget_names_in_use() -> Sequence[Patch]:
    free = TableState._not_free

    def mutant(self: TableState, key: ResourceKey) -> None:
        """Keep a name among those without an owner when it is granted."""
        if key not in self.resources or self.resources[key].version == NO_ZNODE:
            free(self, key)

    def is_forgettable(state: TableState, key: NameKey) -> bool:
        return key in state.resources and state.resources[key].version != NO_ZNODE

    return [(TableState, "_not_free", mutant), (forgetting, "_is_forgettable", is_forgettable)]


def _load_at_once() -> Sequence[Patch]:
    return [(decided, "NAMES_LOADED_AT_ONCE", 10**9)]


def _end_at_once() -> Sequence[Patch]:
    return [(table, "DEADLINES_AT_ONCE", 10**9)]


MUTATIONS = (
    Mutation(
        "forgotten-name-begins-at-one",
        "the incarnations of a name that was forgotten begin at 1 again",
        _begin_at_one,
    ),
    Mutation("owned-name-forgotten", "a name is forgotten while it has an owner", _forget_names_in_use),
)

RARE = (
    Mutation(
        "names-loaded-in-one-turn",
        "a broker takes all names of a group into its table in one turn of the reactor",
        _load_at_once,
    ),
    Mutation(
        "sessions-ended-in-one-turn",
        "a broker ends all sessions that have run out in one turn of the reactor",
        _end_at_once,
    ),
)
