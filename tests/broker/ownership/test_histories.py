"""Random histories: owners arrive, leave, pause and lose connections; writes fail; brokers are replaced.

After every step the guarantees are checked against all answers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast_log.coordinator.ownership.records import NameKey, PartitionKey, ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import Access, ResourceStanding
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.broker.ownership.machine import NAME, P0, P1, SESSION_MS, Client, Machine

KEYS: tuple[ResourceKey, ...] = (P0, P1, NAME)
EXAMPLES = int(os.environ.get("HOLDFAST_OWNERSHIP_HISTORIES", "30"))

clients = st.integers(0, 5)
keys = st.sampled_from(KEYS)


@dataclass(frozen=True)
class Appended:
    """A record in a log, and the owner and incarnation that wrote it."""

    incarnation: int
    owner_id: str


class Histories(RuleBasedStateMachine):
    """Two writers in each of two groups of the own API, and two exclusive producers."""

    @initialize()
    def start(self) -> None:
        self.machine = Machine()
        groups = ["left", "left", "right", "right", "", ""]
        self.clients = [self.machine.client(f"owner {number}", group) for number, group in enumerate(groups)]
        self.logs: dict[ResourceKey, list[Appended]] = {P0: [], P1: []}
        self.granted: dict[ResourceKey, dict[int, ResourceStanding]] = {key: {} for key in KEYS}
        self.pending: list[tuple[int, list[ResourceKey]]] = []
        self.highest: dict[ResourceKey, int] = dict.fromkeys(KEYS, 0)

    # -- actions of clients ------------------------------------------------------------------------------

    def open_client(self, number: int) -> Client:
        client = self.clients[number]
        if not client.is_open:
            client.reconnect()
        client.heard()
        return client

    @rule(number=clients, wanted=st.lists(keys, min_size=1, max_size=3, unique=True), by=st.integers(-2, 3))
    def claim(self, number: int, wanted: list[ResourceKey], by: int) -> None:
        """Claim with a generation near the one in force, or with 0 or -1."""
        client = self.open_client(number)
        if client.group:
            claims = [(key, max(self.generation(client, key) + by, -1)) for key in wanted]
            self.pending.append((client.ask_claim(*claims), wanted))
            self.hear()

    @rule(number=clients, key=keys, generation=st.sampled_from([0, -1]), waits=st.booleans())
    def claim_specially(self, number: int, key: ResourceKey, generation: int, waits: bool) -> None:
        client = self.open_client(number)
        if client.group:
            wait_ms = 5000 if waits and generation == -1 else 0
            self.pending.append((client.ask_claim((key, generation), wait_ms=wait_ms), [key]))
            self.hear()

    @rule(
        number=st.integers(4, 5),
        key=st.sampled_from([P0, P1]),
        mode=st.sampled_from(ProducerAccessMode),
        epoch=st.sampled_from([-1, -1, -1, 0, 1, 2]),
    )
    def ask_for_access(self, number: int, key: PartitionKey, mode: ProducerAccessMode, epoch: int) -> None:
        client = self.open_client(number)
        self.pending.append((client.ask_access(key, mode, epoch, 5000), [key]))
        self.hear()

    @rule(number=clients, key=keys)
    def resume(self, number: int, key: ResourceKey) -> None:
        client = self.open_client(number)
        if key in client.incarnations and not self.machine.holds_writes:
            standing = client.resume(key)
            if standing.error_code == 0:
                assert standing.incarnation == max(self.writers_of(key, client)), (
                    "another owner was granted the resource in between"
                )

    @rule(number=clients, key=keys)
    def release(self, number: int, key: ResourceKey) -> None:
        client = self.open_client(number)
        if not self.machine.holds_writes:
            client.release(key)

    @rule(number=clients)
    def disconnect(self, number: int) -> None:
        self.clients[number].close()

    @rule(number=clients)
    def be_forgotten(self, number: int) -> None:
        """The client opens another connection; the broker does not know that the old one is dead."""
        self.clients[number].reconnect()

    @rule(number=clients, key=st.sampled_from([P0, P1]), is_committed=st.booleans())
    def append(self, number: int, key: PartitionKey, is_committed: bool) -> None:
        """A client that believes it owns the partition writes; the guard decides by its connection."""
        client = self.clients[number]
        resource = self.machine.table.resource(key)
        writer = None if resource is None else resource.writer
        if not client.is_open or writer is None or writer.connection != client.connection:
            return
        client.heard()
        assert writer.grant is not None
        self.logs[key].append(Appended(writer.grant.incarnation, client.owner_id))
        self.machine.grow(key, committed=is_committed)

    # -- faults ------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1000, 4999, SESSION_MS // 2, SESSION_MS]), alive=st.sets(clients))
    def pass_time(self, ms: int, alive: set[int]) -> None:
        heard = [self.clients[number] for number in sorted(alive) if self.clients[number].is_open]
        self.machine.advance(ms, *heard)

    @rule()
    def zookeeper_is_slow(self) -> None:
        self.machine.holds_writes = True

    @precondition(lambda self: self.machine.writes)
    @rule(fails=st.booleans())
    def zookeeper_answers(self, fails: bool) -> None:
        self.machine.settle_writes(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if fails else None)
        self.hear()

    @rule()
    def zookeeper_is_quick(self) -> None:
        self.machine.holds_writes = False
        while self.machine.writes:
            self.machine.settle_writes()
        self.hear()

    @rule()
    def flush(self) -> None:
        self.machine.flush()

    @rule(writes_landed=st.booleans())
    def fail_over(self, writes_landed: bool) -> None:
        """Another broker leads: it has all committed records, and loads the ownership records with or without
        the last write."""
        if writes_landed:
            for write in self.machine.writes:
                self.machine.land(write)
        self.machine.writes.clear()
        self.machine.holds_writes = False
        for key in (P0, P1):
            end = self.machine.high_watermarks.get(key, 0)
            self.machine.end_offsets[key] = end
            del self.logs[key][end:]
        self.pending.clear()
        for client in self.clients:
            client.is_open = False
        self.machine.fail_over()

    # -- invariants --------------------------------------------------------------------------------------

    def hear(self) -> None:
        """Record the answers: each is a guarantee from then on."""
        for ticket, wanted in list(self.pending):
            if not self.machine.is_answered(ticket):
                continue
            self.pending.remove((ticket, wanted))
            try:
                standings = self.machine.answer(ticket)
            except BrokerError:
                continue
            errors = {standing.error_code for standing in standings}
            assert 0 not in errors or errors == {0}, "all of them or none"
            for key, standing in zip(wanted, standings, strict=True):
                if standing.error_code == 0 and standing.incarnation >= 0:
                    self.granted[key][standing.incarnation] = standing

    def generation(self, client: Client, key: ResourceKey) -> int:
        resource = self.machine.table.resource(key)
        entry = None if resource is None else resource.entries.get(client.group)
        return 1 if entry is None else entry.generation

    def writers_of(self, key: ResourceKey, client: Client) -> list[int]:
        """The incarnations that exclude one another: all writers of a partition, across groups."""
        entries = self.machine.resource(key).entries.values()
        return [
            grant.incarnation
            for entry in entries
            for grant in entry.history
            if Access.WRITE in grant.owner.access or entry.group == client.group
        ]

    @invariant()
    def a_partition_has_one_writer(self) -> None:
        for resource in self.machine.table.resources():
            writers = [entry for entry in resource.entries.values() if entry.writes]
            assert len(writers) <= 1
            assert not (writers and resource.sharers)

    @invariant()
    def what_is_in_force_is_written(self) -> None:
        for resource in self.machine.table.resources():
            key = resource.key
            for entry in resource.entries.values():
                if entry.grant is not None:
                    written = self.machine.record(key).histories[entry.group]
                    assert entry.grant.incarnation in [grant.incarnation for grant in written]

    @invariant()
    def no_acknowledged_grant_is_forgotten(self) -> None:
        for key, granted in self.granted.items():
            if granted:
                assert self.machine.record(key).incarnation >= max(granted)

    @invariant()
    def incarnations_never_go_down(self) -> None:
        for resource in self.machine.table.resources():
            key = resource.key
            assert resource.incarnation >= self.highest[key]
            self.highest[key] = resource.incarnation

    @invariant()
    def nothing_older_lands_behind_a_fence(self) -> None:
        for key, log in self.logs.items():
            incarnations = [appended.incarnation for appended in log]
            assert incarnations == sorted(incarnations), "no append of one owner after the next one's first"
            for incarnation, standing in self.granted[key].items():
                behind = incarnations[standing.fence_offset :]
                assert all(each >= incarnation for each in behind)

    @invariant()
    def waiters_wait_only_for_resources_that_are_owned_or_shared(self) -> None:
        if self.machine.writes or self.machine.table.has_unwritten:
            return
        for resource in self.machine.table.resources():
            key = resource.key
            if resource.waiters and not self.machine.holds_writes:
                is_held = any(entry.grant is not None for entry in resource.entries.values())
                assert is_held or resource.sharers, f"{key} is free, but has waiters"

    @invariant()
    def owners_are_connected_or_detached_for_a_while(self) -> None:
        for resource in self.machine.table.resources():
            for entry in resource.entries.values():
                if entry.grant is not None and entry.connection is None:
                    assert entry.deadline_ms >= self.machine.now_ms
                if entry.connection is not None:
                    assert self.machine.table.holdings(entry.connection) is not None


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_keys_include_a_partition_and_a_name() -> None:
    assert {type(key) for key in KEYS} == {PartitionKey, NameKey}
