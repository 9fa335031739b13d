"""Bugs of names: of those that are forgotten, and of many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast_log.broker.ownership import forgetting, group_names, limits, table
from holdfast_log.broker.ownership.decided import DecidedResources, _LedPartition
from holdfast_log.broker.ownership.group_names import GroupNames
from holdfast_log.broker.ownership.resources import NO_ZNODE, Resource
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import NameKey, ResourceKey
from holdfast_log.coordinator.ownership.store import FoundRecords
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import ResourceStanding
from holdfast_log.protocol.topic_partition import TopicPartition
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
    free = TableState.not_free

    def mutant(self: TableState, key: ResourceKey) -> None:
        """Keep a name among those without an owner when it is granted."""
        if key not in self.resources or self.resources[key].version == NO_ZNODE:
            free(self, key)

    def is_forgettable(state: TableState, key: NameKey) -> bool:
        return key in state.resources and state.resources[key].version != NO_ZNODE

    return [(TableState, "not_free", mutant), (forgetting, "_is_forgettable", is_forgettable)]


def _count_no_waiters_of_all_queues() -> Sequence[Patch]:
    limit = limits.queue_limit

    def mutant(state: TableState, resource: Resource) -> BrokerError | None:
        return limit(state, resource) if len(resource.waiters) >= state.settings.waiters_max else None

    return [(limits, "queue_limit", mutant)]


def _load_at_once() -> Sequence[Patch]:
    return [(group_names, "NAMES_AT_ONCE", 10**9)]


def _load_again_at_once() -> Sequence[Patch]:
    async def mutant(
        self: GroupNames, found: Mapping[str, FoundRecords], is_wanted: Callable[[], bool]
    ) -> bool:
        for records in found.values():
            self._table.count_from(records.incarnations_from)
            for each in records.records:
                self._records.load(each)
        recorded = {each.key for records in found.values() for each in records.records}
        for name in self._records.names_of(found):
            if name not in recorded:
                self._records.unload_unwritten(name)
        return True

    return [(GroupNames, "load_again", mutant)]


def _unload_at_once() -> Sequence[Patch]:
    async def mutant(self: GroupNames) -> None:
        while self._leaving:
            self._records.unload(self._leaving.popleft(), BrokerError(ErrorCode.NOT_COORDINATOR))
        self._table_changed()
        self._leaving_groups.clear()

    return [(GroupNames, "_unload_in_turns", mutant)]


def _confirm_while_unloading() -> Sequence[Patch]:
    def mutant(self: OwnershipService, key: ResourceKey, standing: ResourceStanding) -> ResourceStanding:
        return standing

    return [(OwnershipService, "_confirmed_one", mutant)]


def _read_while_unloading() -> Sequence[Patch]:
    async def mutant(self: GroupNames, group: str) -> FoundRecords:
        return await self._store.read_names(group)

    return [(GroupNames, "_read", mutant)]


def _write_while_unloading() -> Sequence[Patch]:
    return [(GroupNames, "is_leaving", lambda self, group: False)]


def _load_for_a_late_order() -> Sequence[Patch]:
    def mutant(self: DecidedResources, where: TopicPartition, leader_epoch: int) -> _LedPartition | None:
        return self._led.get(where)

    return [(DecidedResources, "_led_before", mutant)]


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
        "queues-without-total",
        "many connections that wait for many names fill the memory, because only each queue has a limit",
        _count_no_waiters_of_all_queues,
    ),
    Mutation(
        "names-unloaded-in-one-turn",
        "a broker that stops leading takes all names out of its table in one turn of the reactor",
        _unload_at_once,
    ),
    Mutation(
        "names-confirmed-while-unloaded",
        "a broker that has stopped leading confirms a name that it has not taken out of its table yet",
        _confirm_while_unloading,
    ),
    Mutation(
        "names-read-while-unloaded",
        "a broker that leads again reads names while it still takes out those of its leadership before",
        _read_while_unloading,
    ),
    Mutation(
        "names-written-while-unloaded",
        "a broker that leads again writes what it knows of names from its leadership before",
        _write_while_unloading,
    ),
    Mutation(
        "names-loaded-again-in-one-turn",
        "a broker that leads again takes all names of a group into its table in one turn of the reactor",
        _load_again_at_once,
    ),
    Mutation(
        "names-loaded-for-a-late-order",
        "a broker loads names again for an order to lead in an earlier epoch, while it goes on writing them",
        _load_for_a_late_order,
    ),
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
