"""Many access control lists: read and compiled in turns of the reactor, in force at once, cheap to change."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar
from unittest import mock

import pytest
from twisted.internet.defer import Deferred, ensureDeferred, fail
from twisted.internet.task import Clock

from holdfast_log.broker.security.administration import AclAdministration
from holdfast_log.broker.security.authorizer import AclAuthorizer
from holdfast_log.broker.security.rules import AclRules, _KindRules
from holdfast_log.coordinator.cluster import acls as acls_module
from holdfast_log.coordinator.cluster.acls import AccessControlLists, AclEntries, Acls
from holdfast_log.coordinator.pause import pause
from holdfast_log.coordinator.znodes.acls import acl_path, encode_acls
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.acl_bindings import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclPattern, AclPermission, AclResource
from tests.broker.security.test_authorizer import (
    ALICE,
    BOB,
    GROUP,
    HOME,
    OPERATIONS,
    READ,
    TOPIC,
    WRITE,
    authorizer_of,
    binding,
    by_pattern,
    drawn_binding,
    reads,
)  # fmt: skip
from tests.models.instant_zookeeper import InstantZooKeeper

T = TypeVar("T")
BAR = 500
"""Patterns that one turn may deal with, in some ms."""
EVERYTHING = AclFilter()


class Broker:
    """The lists of a broker, and its authorizer."""

    def __init__(self, bindings: Sequence[AclBinding]) -> None:
        self.zookeeper = InstantZooKeeper()
        self.clock = Clock()
        self.lists = AccessControlLists(self.zookeeper, self.clock)
        self.authorizer = AclAuthorizer()
        self.lists.add_listener(self.authorizer.rules_changed, self.authorizer.prepare)
        for pattern, entries in by_pattern(bindings).items():
            self.zookeeper.znodes[acl_path(pattern)] = encode_acls(entries), 0

    def load(self) -> list[int]:
        """Read all lists. Returns how many patterns each turn of the reactor has compiled."""
        put, next_turn = _KindRules.put, acls_module.pause
        counts, loaded = [0], []

        def counted(rules: _KindRules, pattern: AclPattern, name: str, entries: frozenset[AclEntry]) -> None:
            counts[-1] += 1
            put(rules, pattern, name, entries)

        def turned(clock: Clock) -> Deferred[None]:
            counts.append(0)
            return next_turn(clock)

        with (
            mock.patch.object(_KindRules, "put", counted),
            mock.patch.object(acls_module, "pause", turned),
        ):
            self.lists.load().addCallback(loaded.append)
            self.clock.advance(0)
        assert loaded == [None]
        return counts


def many(count: int) -> list[AclBinding]:
    """One entry for each of so many prefixes, of all lengths, and of as many principals."""
    return [
        binding(f"{number}-" + "x" * (number % 200), principal=f"User:u{number}", is_prefix=True)
        for number in range(count)
    ]


def test_many_lists_are_read_and_compiled_in_turns() -> None:
    count = 3 * BAR + 7
    broker = Broker(many(count))
    entries, sizes = acls_module._entries, []

    async def counted(session: object, patterns: Sequence[ResourcePattern]) -> Acls:
        sizes.append(len(patterns))
        return await entries(session, patterns)  # type: ignore[arg-type]

    with mock.patch.object(acls_module, "_entries", counted):
        turns = broker.load()
    assert max(turns) <= BAR and sum(turns) == count and turns[:2] == [0, 0] and len(turns) == 6
    assert max(sizes) <= BAR and sum(sizes) == count
    assert len(broker.lists.present) == count
    assert all(
        reads(broker.authorizer, each.pattern.name + "y", each.entry.principal) for each in many(count)
    )


def test_what_is_in_force_is_copied_in_a_turn_of_its_own() -> None:
    """The turn before has decoded as many as a turn may, and the one after compiles as many."""
    broker = Broker(many(2 * BAR))
    broker.load()
    for each in many(2 * BAR):
        broker.zookeeper.znodes[acl_path(each.pattern)] = encode_acls({each.entry, binding("t").entry}), 1
    steps: list[str] = []
    copy, entries = AclRules.copy, acls_module._entries

    def copied(rules: AclRules) -> AclRules:
        steps.append("copy")
        return copy(rules)

    async def decoded(session: object, patterns: Sequence[ResourcePattern]) -> Acls:
        steps.append("decode")
        return await entries(session, patterns)  # type: ignore[arg-type]

    def put(rules: AclRules, changes: Acls) -> None:
        if changes:
            steps.append("compile")

    with (
        mock.patch.object(AclRules, "copy", copied),
        mock.patch.object(AclRules, "change", put),
        mock.patch.object(acls_module, "_entries", decoded),
        mock.patch.object(acls_module, "pause", lambda clock: (steps.append("turn"), pause(clock))[1]),
    ):
        broker.lists.load()
        broker.clock.advance(0)
    assert steps == ["decode", "decode", "turn", "copy", "turn", "compile", "turn", "compile"]


def test_what_allows_is_never_in_force_without_what_denies() -> None:
    """Both are among many lists, and compiled in different turns."""
    allows, denies = binding("*"), binding("zz", denies=True, is_prefix=True)
    broker = Broker([allows, *many(3 * BAR), denies])
    seen: list[tuple[bool, bool, int]] = []

    def look() -> None:
        seen.append(
            (reads(broker.authorizer, "t"), reads(broker.authorizer, "zz"), len(broker.lists.present))
        )

    with mock.patch.object(acls_module, "pause", lambda clock: (look(), pause(clock))[1]):
        broker.load()
    assert seen and set(seen) == {(False, False, 0)}
    assert (reads(broker.authorizer, "t"), reads(broker.authorizer, "zz")) == (True, False)


def test_lists_that_are_gone_are_in_force_no_more_after_all_were_read_again() -> None:
    listed = [binding("t"), *many(2 * BAR)]
    broker = Broker(listed)
    broker.load()
    for each in listed:
        del broker.zookeeper.znodes[acl_path(each.pattern)]
    turns = broker.load()
    assert not reads(broker.authorizer, "t") and not broker.lists.present
    assert max(turns) <= BAR and len(turns) == 5


def test_a_change_of_one_list_among_many_compiles_and_copies_no_other() -> None:
    authorizer = authorizer_of(*many(2_000))
    assert reads(authorizer, "7-xxxxxxx", "User:u7")
    lengths = authorizer._rules._kinds[TOPIC].lengths
    put = _KindRules.put
    with (
        mock.patch.object(AclRules, "copy", side_effect=AssertionError),
        mock.patch.object(_KindRules, "put", side_effect=put, autospec=True) as counted,
    ):
        authorizer.rules_changed({many(8)[7].pattern: frozenset()})
        assert not reads(authorizer, "7-xxxxxxx", "User:u7") and reads(authorizer, "8-xxxxxxxx", "User:u8")
        assert not authorizer.allows_some("User:u7", HOME, READ, TOPIC)
        authorizer.rules_changed(by_pattern([many(8)[7]]))
        assert reads(authorizer, "7-xxxxxxx", "User:u7")
        assert authorizer.allows_some("User:u7", HOME, READ, TOPIC)
    assert counted.call_count == 2
    assert authorizer._rules._kinds[TOPIC].lengths is lengths, "another prefix has the same length"


def test_a_judgement_looks_up_each_length_of_a_prefix_once_however_many_prefixes_there_are() -> None:
    authorizer = authorizer_of(*many(2_000))
    rules = authorizer._rules._kinds[TOPIC]
    assert len(rules.lengths) == len({len(each.pattern.name) for each in many(2_000)}) < 210
    assert sum(1 for _ in rules.lists("7-xxxxxxx-and-more")) == 1


@pytest.mark.parametrize("seed", range(60))
def test_changes_in_parts_have_the_same_outcome_as_at_once(seed: int) -> None:
    rng = random.Random(seed)
    parts, whole = AclAuthorizer(), AclAuthorizer()
    bindings: set[AclBinding] = set()
    for _ in range(5):
        before = by_pattern(bindings)
        bindings = {each for each in bindings if rng.random() < 0.6} | {drawn_binding(rng) for _ in range(8)}
        after = by_pattern(bindings)
        changes = {each: after.get(each, frozenset()) for each in before.keys() | after.keys()}
        whole.rules_changed(changes)
        *first, last = [{pattern: changes[pattern]} for pattern in changes]
        for each in first:
            parts.prepare(each)
        parts.rules_changed(last)
        for principal in (ALICE, BOB):
            for operation in OPERATIONS[1:]:
                for kind in (TOPIC, GROUP):
                    asked = principal, HOME, operation, kind
                    assert parts.allows_some(*asked) is whole.allows_some(*asked)
                    for name in ("a", "ab", "abc", "b", "c", "*"):
                        assert parts.allows(*asked, name) is whole.allows(*asked, name)


def test_all_lists_are_described_in_order_and_sorted_in_turns() -> None:
    listed = [*many(2_500), binding("b", resource=GROUP), binding("a", WRITE), binding("b", WRITE)]
    random.Random(3).shuffle(listed)
    broker = Broker(listed)
    broker.load()
    acls = AclAdministration(broker.lists, 50_000)
    prices: list[int] = []

    async def turn(price: int) -> None:
        prices.append(price)

    def described(wanted: AclFilter) -> list[ResourcePattern]:
        found: list[ResourcePattern] = []
        coroutine = acls.described(wanted, turn)
        try:
            coroutine.send(None)
        except StopIteration as ended:
            found = [pattern for pattern, _ in ended.value]
        return found

    found = described(EVERYTHING)
    assert found == sorted(broker.lists.present, key=lambda each: (each.resource, each.pattern, each.name))
    assert len(found) == 2_503 and len(prices) == 3
    named = AclFilter(AclResource.TOPIC, "b", AclPattern.ANY, None, None, AclOperation.ANY, AclPermission.ANY)
    assert described(named) == [ResourcePattern(TOPIC, "b")] and len(prices) == 3


class Deletion:
    """One request to delete, and what it has done: the prices of its work between the turns that it waited
    for, the patterns that were changed, and the number of times it waited for ZooKeeper."""

    def __init__(self, broker: Broker, *filters: AclFilter) -> None:
        self.prices: list[int] = []
        self.updated: list[ResourcePattern] = []
        self.waits = 0
        update, done = broker.lists.update, []

        def counted(pattern: ResourcePattern, change: Callable[[AclEntries], AclEntries]) -> Deferred[None]:
            self.updated.append(pattern)
            return update(pattern, change)

        acls = AclAdministration(broker.lists, 50_000)
        with mock.patch.object(broker.lists, "update", counted):
            deleting = acls.delete(filters, self, lambda count: None)
            ensureDeferred(deleting).addCallback(done.append)
            broker.clock.advance(0)
        self.found = [len(each) for each in done[0]]

    async def turn(self, price: int) -> None:
        self.prices.append(price)

    async def outcome(self, waiting: Deferred[T]) -> T:
        self.waits += 1
        return await waiting


def test_each_list_and_each_entry_that_is_deleted_has_its_price() -> None:
    count = 300
    broker = Broker(many(count))
    broker.load()
    deletion = Deletion(broker, EVERYTHING)
    assert deletion.found == [count] and not broker.lists.present
    # Each list is looked at, its entries are compared with the filter, and the deleted entry is named.
    assert len(deletion.prices) == 3 * count and min(deletion.prices) > 0
    assert deletion.waits > 1, "it asks for no turns while it waits for ZooKeeper"


def test_lists_without_an_entry_that_a_filter_selects_are_not_read_again() -> None:
    broker = Broker(many(300))
    broker.load()
    deletion = Deletion(broker, AclFilter(principal="User:u7"))
    assert deletion.found == [1]
    assert deletion.updated == [many(8)[7].pattern]


def test_a_list_that_a_filter_names_is_read_also_if_nothing_is_known_of_it() -> None:
    broker = Broker([])
    broker.load()
    listed = binding("late")
    broker.zookeeper.znodes[acl_path(listed.pattern)] = encode_acls({listed.entry}), 0
    named = AclFilter(
        AclResource.TOPIC, "late", AclPattern.LITERAL, None, None, AclOperation.ANY, AclPermission.ANY
    )
    assert Deletion(broker, named).found == [1]


def test_a_broker_that_stops_tries_no_further_lists() -> None:
    broker = Broker(many(300))
    broker.load()
    tried: list[ResourcePattern] = []

    def stopped(pattern: ResourcePattern, change: object) -> Deferred[None]:
        tried.append(pattern)
        return fail(SessionExpired("the broker stops"))

    with mock.patch.object(AccessControlLists, "update", lambda lists, *how: stopped(*how)):
        deletion = Deletion(broker, EVERYTHING)
    assert deletion.found == [300], "each with the error"
    assert len(tried) == 50 and len(broker.lists.present) == 300
