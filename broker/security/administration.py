"""Access control lists on request: describes those that a filter selects, creates and deletes entries."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.coordinator.cluster.acls import AccessControlLists, AclEntries
from holdfast_log.coordinator.znodes.acls import ACL_PATTERNS, ACL_RESOURCES, is_acl_name
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import (
    MultiFailed,
    RequestTooLarge,
    SessionExpired,
    ZooKeeperConnectionLost,
    ZooKeeperError,
)
from holdfast_log.coordinator.zookeeper.pipelined import outcomes
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode

CHARACTERS_MAX = 1_000
"""Maximum number of characters of a resource's name, a principal and a host in an entry."""

BROAD_FILTERS_MAX = 50
"""Maximum number of filters in one request to delete that name no single pattern: each is compared with every
list of the cluster."""

_WRITTEN_TOGETHER = 50
_SORTED_TOGETHER = 1_000
_SORTED_BYTES = 8_192
"""The price of sorting so many patterns, in bytes of an answer: a millisecond."""
_CHECKED_BYTES = 0
"""The price of an entry that is checked, beside that of any row."""
_LOOKED_AT_BYTES = 4
"""The price of an entry that is looked at, in bytes of an answer: it takes about half a microsecond."""

_FOUND_BYTES = 40
"""The price of a list whose entries are compared with filters, and of an entry that is named in an answer: it
takes about five microseconds."""

AnswerTurn = Callable[[int], Awaitable[None]]
"""Awaits the next turn in which work of this price may be done, as `LongAnswer.turn`."""

T = TypeVar("T")


class AnswerTurns(Protocol):
    """The turns of an answer, as those of `LongAnswer`."""

    async def turn(self, price: int) -> None:
        """Await the next turn in which work of this price may be done."""
        ...

    async def outcome(self, waiting: Deferred[T]) -> T:
        """Await something else than a turn: the answer is given none meanwhile."""
        ...


RefusedChanges: TypeAlias = dict[ResourcePattern, BrokerError]
"""Why patterns were not changed."""


@dataclass(frozen=True, slots=True)
class DeletedAcl:
    """An entry that a filter has deleted, or not: then `error` says why."""

    binding: AclBinding
    error: BrokerError | None = None


class AclAdministration:
    """What clients may ask and alter about access control lists. `lists` is None without an authorizer: then
    everything is refused with SECURITY_DISABLED. At most `entries_max` entries exist."""

    def __init__(self, lists: AccessControlLists | None, entries_max: int) -> None:
        self._lists = lists
        self._entries_max = entries_max

    @property
    def _enabled(self) -> AccessControlLists:
        if self._lists is None:
            raise BrokerError(
                ErrorCode.SECURITY_DISABLED,
                "this broker has no authorizer, so no access control lists: set authorizer.class.name",
            )
        return self._lists

    # Describing

    async def described(
        self, wanted: AclFilter, turn: AnswerTurn
    ) -> Iterator[tuple[ResourcePattern, AclEntries]]:
        """The lists in force on this broker that a filter may select, ordered by their pattern: all of them,
        unless it names its patterns. Raises BrokerError."""
        present = self._enabled.present
        if exact := wanted.exact_patterns:
            return iter([(pattern, present[pattern]) for pattern in exact if pattern in present])
        lists, runs = list(present.items()), []
        for first in range(0, len(lists), _SORTED_TOGETHER):
            await turn(_SORTED_BYTES)
            runs.append(sorted(lists[first : first + _SORTED_TOGETHER], key=_order_of_list))
        return heapq.merge(*runs, key=_order_of_list)

    # Creating

    async def create(self, wanted: Sequence[AclBinding], answer: AnswerTurns) -> list[BrokerError | None]:
        """Create entries. The result has an error for each that was not created; that it exists already is
        none. Raises BrokerError if none can be."""
        lists = self._enabled
        results: list[BrokerError | None] = []
        for binding in wanted:
            await answer.turn(_CHECKED_BYTES)
            results.append(_invalid(binding))
        new: dict[ResourcePattern, list[int]] = {}
        room = self._entries_max - sum(map(len, lists.present.values()))
        for index, binding in enumerate(wanted):
            if results[index] is not None:
                continue
            known = lists.present.get(binding.pattern, frozenset())
            room -= binding.entry not in known
            if room < 0 and binding.entry not in known:
                results[index] = self._no_room()
            else:
                new.setdefault(binding.pattern, []).append(index)

        def adding(indexes: Sequence[int]) -> Callable[[AclEntries], AclEntries]:
            entries = frozenset(wanted[index].entry for index in indexes)
            return lambda present: present | entries

        refused = await self._update({pattern: adding(indexes) for pattern, indexes in new.items()}, answer)
        for pattern, error in refused.items():
            for index in new[pattern]:
                results[index] = error
        return results

    def _no_room(self) -> BrokerError:
        return BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"there would be more than acl.entries.max={self._entries_max} entries: use prefixes, the name * "
            "or the principal User:* in place of many entries, or delete some",
        )

    # Deleting

    async def delete(
        self, filters: Sequence[AclFilter], answer: AnswerTurns, reserve: Callable[[int], None]
    ) -> list[list[DeletedAcl]]:
        """Delete what each filter selects. Of several filters that select an entry, the first has it in its
        result. `reserve` is called with the number of entries to be deleted that this broker knows, and may
        raise an error; then nothing is deleted. Raises BrokerError."""
        lists = self._enabled
        found: dict[AclBinding, int] = {}
        changes: dict[ResourcePattern, Callable[[AclEntries], AclEntries]] = {}
        for pattern, selecting in (await self._selected(lists, filters, answer.turn)).items():
            await answer.turn(_FOUND_BYTES)
            present = lists.present.get(pattern, frozenset())
            count = sum(_finder(entry, selecting, filters) is not None for entry in present)
            # Another broker may have created entries that this one does not know yet. They are looked for
            # where a filter names the pattern only: one that names a principal would have all read again.
            if count or any(filters[each].exact_patterns for each in selecting):
                reserve(count)
                changes[pattern] = _deleting(pattern, selecting, filters, found)
        refused = await self._update(changes, answer)
        for pattern in refused:
            # The change may not have come to see the entries: then name those that this broker knows.
            await answer.turn(_FOUND_BYTES)
            changes[pattern](lists.present.get(pattern, frozenset()))
        results: list[list[DeletedAcl]] = [[] for _ in filters]
        for binding, index in found.items():
            await answer.turn(_FOUND_BYTES)
            results[index].append(DeletedAcl(binding, refused.get(binding.pattern)))
        return results

    async def _selected(
        self, lists: AccessControlLists, filters: Sequence[AclFilter], turn: AnswerTurn
    ) -> dict[ResourcePattern, list[int]]:
        """The patterns that filters select, each with the indexes of these filters in order."""
        selected: dict[ResourcePattern, list[int]] = {}
        broad = []
        for index, each in enumerate(filters):
            exact = each.exact_patterns
            if not exact:
                broad.append(index)
            # Also those that this broker does not know yet, because they were created by another.
            for pattern in exact:
                if is_acl_name(pattern.name):
                    selected.setdefault(pattern, []).append(index)
        if len(broad) > BROAD_FILTERS_MAX:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"the request has {len(broad)} filters that do not name a single resource pattern: at most "
                f"{BROAD_FILTERS_MAX} are allowed. Send several requests",
            )
        for pattern in list(lists.present) if broad else ():
            await turn(_LOOKED_AT_BYTES * len(broad))
            matching = [index for index in broad if filters[index].selects(pattern)]
            if matching:
                selected[pattern] = sorted([*selected.get(pattern, ()), *matching])
        return selected

    # Both

    async def _update(
        self, changes: Mapping[ResourcePattern, Callable[[AclEntries], AclEntries]], answer: AnswerTurns
    ) -> RefusedChanges:
        """Make the changes, some of them at a time. Returns those that failed."""
        lists = self._enabled
        refused: RefusedChanges = {}
        pending = list(changes.items())
        for first in range(0, len(pending), _WRITTEN_TOGETHER):
            batch = pending[first : first + _WRITTEN_TOGETHER]
            updates = [lists.update(pattern, change) for pattern, change in batch]
            ended = await answer.outcome(ensureDeferred(outcomes(updates)))
            for (pattern, _), outcome in zip(batch, ended, strict=True):
                if isinstance(outcome, Exception):
                    refused[pattern] = _refusal(pattern, outcome)
            if stopped := next((each for each in ended if isinstance(each, SessionExpired)), None):
                # The others would all fail in this turn of the reactor.
                left = [pattern for pattern, _ in pending[first + _WRITTEN_TOGETHER :]]
                if left:
                    refused.update(dict.fromkeys(left, _refusal(left[0], stopped)))
                break
        return refused


def _deleting(
    pattern: ResourcePattern,
    selecting: Sequence[int],
    filters: Sequence[AclFilter],
    found: dict[AclBinding, int],
) -> Callable[[AclEntries], AclEntries]:
    """A change that removes what the filters select, and notes for each entry the filter that found it.

    After a lost answer it is made again, on entries from which it may have removed some: what was noted
    stays noted."""

    def change(present: AclEntries) -> AclEntries:
        kept = set()
        for entry in present:
            index = _finder(entry, selecting, filters)
            if index is None:
                kept.add(entry)
            else:
                found.setdefault(AclBinding(pattern, entry), index)
        return frozenset(kept)

    return change


def _finder(entry: AclEntry, selecting: Iterable[int], filters: Sequence[AclFilter]) -> int | None:
    """The first of the filters that selects the entry. None selects one that this release does not know: no
    answer could name it."""
    if not entry.is_known:
        return None
    return next((each for each in selecting if filters[each].selects_entry(entry)), None)


def _refusal(pattern: ResourcePattern, error: Exception) -> BrokerError:
    """What a client learns of a change that failed. Raises what is not ZooKeeper's."""
    match error:
        case BadZnode():
            code, why = (
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the present entries cannot be read: repair or remove the znode",
            )
        case RequestTooLarge():
            code, why = (
                ErrorCode.POLICY_VIOLATION,
                "its entries would be too long for one znode: use the principal User:* or the host * in "
                "place of many entries",
            )
        case SessionExpired():
            code, why = (
                ErrorCode.BROKER_NOT_AVAILABLE,
                "this broker is stopping: ask any other broker",
            )
        case MultiFailed() | ZooKeeperConnectionLost():
            code, why = ErrorCode.REQUEST_TIMED_OUT, "it changed too often in the meantime: ask again"
        case ZooKeeperError():
            code, why = ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper has refused it"
        case _:
            raise error
    return BrokerError(code, f"{pattern} was not changed: {why} ({error})")


def _invalid(binding: AclBinding) -> BrokerError | None:
    """Why the entry cannot be created; None if it can."""
    problem = next(_problems(binding), None)
    return None if problem is None else BrokerError(ErrorCode.INVALID_REQUEST, problem)


def _problems(binding: AclBinding) -> Iterator[str]:
    pattern, entry = binding.pattern, binding.entry
    if pattern.resource not in ACL_RESOURCES:
        yield f"the resource type {pattern.resource.name} cannot have entries"
    if pattern.pattern not in ACL_PATTERNS:
        yield f"the pattern type is {pattern.pattern.name}: expected LITERAL or PREFIXED"
    if entry.operation <= AclOperation.ANY:
        yield f"the operation is {entry.operation.name}: expected one that exists"
    if entry.permission <= AclPermission.ANY:
        yield f"the permission type is {entry.permission.name}: expected ALLOW or DENY"
    for what, text in (("name", pattern.name), ("principal", entry.principal), ("host", entry.host)):
        if not text:
            yield f"the {what} is empty"
        if len(text) > CHARACTERS_MAX:
            yield f"the {what} has {len(text)} characters: at most {CHARACTERS_MAX} are allowed"
    if pattern.resource is AclResource.CLUSTER and pattern.name != CLUSTER_NAME:
        yield f"the only name of a cluster is {CLUSTER_NAME}"
    if not is_acl_name(pattern.name):
        yield (
            f"a resource pattern of the name {pattern.name!r} cannot have entries, because ZooKeeper does "
            "not take it as the name of a znode: use a prefix of it, or *"
        )
    kind, separator, name = entry.principal.partition(":")
    if not (kind and separator and name):
        yield f"the principal is {entry.principal!r}: expected a type and a name, such as User:alice"


def _order(pattern: ResourcePattern) -> tuple[AclResource, AclPattern, str]:
    return pattern.resource, pattern.pattern, pattern.name


def _order_of_list(each: tuple[ResourcePattern, AclEntries]) -> tuple[AclResource, AclPattern, str]:
    return _order(each[0])


def entry_order(entry: AclEntry) -> tuple[str, str, AclOperation, AclPermission]:
    """Orders the entries of one pattern in answers."""
    return entry.principal, entry.host, entry.operation, entry.permission


def selected_entries(wanted: AclFilter, entries: Iterable[AclEntry]) -> list[AclEntry]:
    """The entries that a filter selects of a pattern that it selects, in order; without those that this
    release does not know, which no answer can name."""
    return sorted(
        (entry for entry in entries if entry.is_known and wanted.selects_entry(entry)), key=entry_order
    )
