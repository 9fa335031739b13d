"""Limits on the memory and work that clients can cause at a broker: during ZooKeeper outages, in queues, and
by requests."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.ownership import audit_lines, limits, resources
from holdfast_log.broker.ownership.audit_lines import AuditLines
from holdfast_log.broker.ownership.effects import Notify
from holdfast_log.broker.ownership.record_sizes import sizes_of
from holdfast_log.broker.ownership.record_writing import WRITES_MAX
from holdfast_log.broker.ownership.renewals import _SEEN_MAX, Renewals
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.broker.ownership.table import DEADLINES_AT_ONCE
from holdfast_log.coordinator.ownership.records import (
    GRANT_BYTES_MAX,
    NameKey,
    PartitionKey,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    RESET_GENERATION,
    Access,
    ReleaseRequest,
    ResourceStanding,
)
from holdfast_log.protocol.messages.ownership_sight import DescribeOwnersRequest
from tests.broker.ownership.machine import NAME, P0, SESSION_MS, Machine, named_record
from tests.broker.ownership.world import OwnershipWorld

T = "t"
OFFSETS = "__consumer_offsets"


def queued(world: OwnershipWorld) -> int:
    """The number of operations queued for the partition."""
    return len(world.ownership.service.table._queues._queues.get(PartitionKey(world.topic_id(T), 0), ()))


def test_claims_that_have_timed_out_do_not_wait_for_zookeeper(world: OwnershipWorld) -> None:
    world.zookeeper.is_held = True
    anna = world.owner("anna")
    for _ in range(50):
        anna.ask(anna.claim_request(T, generation=0, timeout_ms=10))
        world.clock.advance(0.02)
    assert {answer.error_code for answer in anna.client.answers()} == {ErrorCode.REQUEST_TIMED_OUT}
    assert queued(world) == 1, "a write already sent cannot be withdrawn"

    world.zookeeper.release()

    assert anna.claim(T, generation=-1).generation == 1


def test_claims_of_closed_connections_do_not_wait_for_zookeeper(world: OwnershipWorld) -> None:
    world.zookeeper.is_held = True
    for number in range(20):
        owner = world.owner(f"owner-{number}")
        for _ in range(5):
            owner.ask(owner.claim_request(T, generation=0, timeout_ms=60_000))
        owner.client.connection.close("gone")
    assert queued(world) == 1
    assert len(world.ownership.service._answers._pending) == 0

    world.zookeeper.release()

    assert world.owner("anna").claim(T, generation=-1).generation == 2


def test_connections_that_close_while_names_are_loaded_leave_no_state_behind(world: OwnershipWorld) -> None:
    world.lead(OFFSETS)
    world.zookeeper.is_held = True
    for number in range(10):
        owner = world.owner("anna", f"group-{number}")
        owner.ask(owner.claim_request("any", partition=-1))
        owner.ask(owner.renew_request("any", -1, max_wait_ms=60_000))
        owner.client.connection.close("gone")

    world.zookeeper.release()

    service = world.ownership.service
    assert (service._tickets, service._renewals._seen, service._renewals._waiting) == ({}, {}, {})
    assert service.table._state.names == 0


def test_the_sessions_of_many_owners_end_in_many_turns_of_the_reactor() -> None:
    count = 2 * DEADLINES_AT_ONCE + 1
    machine = Machine()
    for number in range(count):
        machine.table.load(NameKey("app", f"n{number}"), named_record(), 0, machine.now_ms)
    machine.now_ms += SESSION_MS
    turns = 0
    while (due_ms := machine.table.next_deadline_ms) is not None and due_ms <= machine.now_ms:
        before = owned_names(machine)
        machine.table.tick(machine.now_ms)
        assert before - owned_names(machine) <= DEADLINES_AT_ONCE
        turns += 1
    assert (owned_names(machine), turns) == (0, 3)


def owned_names(machine: Machine) -> int:
    return sum(
        entry.grant is not None
        for resource in machine.table.resources()
        for entry in resource.entries.values()
    )


def test_a_limited_number_of_writes_is_sent_to_zookeeper_at_a_time(world: OwnershipWorld) -> None:
    world.lead(OFFSETS)
    owners = [world.owner(f"owner-{number}") for number in range(2 * WRITES_MAX)]
    owners[0].renew("any", -1)
    world.zookeeper.is_held = True
    for number, owner in enumerate(owners):
        owner.ask(owner.claim_request(f"name-{number}", partition=-1))
    assert world.zookeeper.held == WRITES_MAX

    world.zookeeper.release()

    assert [owner.client.answers()[0].error_code for owner in owners] == [0] * len(owners)


@pytest.mark.parametrize("length", [0, 256, 32_000])
def test_a_group_name_has_1_to_255_characters(world: OwnershipWorld, length: int) -> None:
    world.lead(OFFSETS)
    owner = world.owner("anna", "g" * length)
    renew = owner.renew_request("any", -1)
    release = ReleaseRequest(group=owner.group, owner_id="anna", resources=renew.resources)
    codes = [owner.client.call(renew).error_code, owner.client.call(release).error_code]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_describing_a_group_with_a_long_name_is_refused(world: OwnershipWorld) -> None:
    world.lead(OFFSETS)
    response = world.client().call(DescribeOwnersRequest(groups=["", "g" * 256], include_history=False))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_queued_release_is_carried_out_although_its_connection_closes(world: OwnershipWorld) -> None:
    """The connection closes while the release waits behind a write."""
    anna, ben = world.owner("anna"), world.owner("ben", "other", Access.READ)
    anna.claim(T)
    world.zookeeper.is_held = True
    ben.ask(ben.claim_request(T))
    anna.reconnect()
    anna.ask(anna.release_request(T))
    anna.client.connection.close("done")
    (resource,) = world.ownership.service.resources()
    assert resource.writer is not None

    world.zookeeper.release()

    assert resource.writer is None


def test_a_connection_with_many_waiters_is_notified_once() -> None:
    """One connection may have a thousand waiters in a queue; a notification for each would keep the broker
    busy."""
    machine = Machine(OwnershipSettings(waiters_max=2000))
    machine.client("anna").claim(NAME)
    crowd = machine.client("crowd")
    for number in range(500):
        crowd.owner_id = f"crowd-{number}"
        assert crowd.claim(NAME, -1, wait_ms=-1).position == number + 1
    last = machine.client("last")
    assert last.claim(NAME, -1, wait_ms=-1).position == 501

    machine.table.connection_closed(crowd.connection, machine.now_ms)

    notified = [effect.connection for effect in machine.table.take_effects() if isinstance(effect, Notify)]
    assert sorted(notified) == [crowd.connection, last.connection]
    assert last.renew(NAME).position == 1


def test_a_connection_has_a_limited_number_of_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Released resources and abandoned waits do not count towards the limit."""
    monkeypatch.setattr(limits, "CONNECTION_RESOURCES_MAX", 3)
    machine = Machine()
    anna, ben = machine.client("anna"), machine.client("ben")
    names = [NameKey("app", f"n{number}") for number in range(6)]
    ben.claim(names[5])
    assert [anna.claim(name).error_code for name in names[:3]] == [0, 0, 0]
    assert anna.claim(names[3]).error_code == ErrorCode.POLICY_VIOLATION
    assert anna.claim(names[2], 1).error_code == 0, "anna already owns this name"
    anna.release(names[0])
    assert anna.claim(names[5], -1, wait_ms=-1).position == 1
    assert anna.claim(names[3]).error_code == ErrorCode.POLICY_VIOLATION
    anna.release(names[5], -1)
    assert anna.claim(names[3]).error_code == 0
    anna.close()
    assert [machine.owner_of(name) for name in names] == [None] * 5 + ["ben"]


def test_many_lost_resources_are_written_1000_at_a_time() -> None:
    machine = Machine()
    anna = machine.client("anna")
    for start in range(0, 1200, 100):
        anna.claim_all(*((NameKey("app", f"n{start + number}"), 1) for number in range(100)))
    anna.close()
    assert len(machine.table._state.unwritten) == 1200
    machine.flush()
    assert len(machine.table._state.unwritten) == 200
    assert machine.table.has_unwritten
    machine.flush()
    assert not machine.table.has_unwritten


def test_a_claim_that_finds_the_queue_full_is_counted_as_refused() -> None:
    machine = Machine(OwnershipSettings(waiters_max=1))
    machine.client("anna").claim(P0)
    machine.client("ben").claim(P0, -1, wait_ms=-1)
    assert machine.client("cleo").claim(P0, -1, wait_ms=-1).error_code == ErrorCode.RESOURCE_OWNED
    assert machine.table.totals().refusals == 1


def test_all_queues_of_a_broker_together_have_a_limit() -> None:
    """Each of many connections may wait for each of many resources, so a bound for each is none for all."""
    machine = Machine(OwnershipSettings(waiters_total_max=4))
    names = [NameKey("app", f"n{number}") for number in range(3)]
    owner = machine.client("owner")
    for name in names:
        owner.claim(name)
    waiters = [machine.client(f"waiter-{number}") for number in range(3)]
    answers = [waiter.claim(name, -1, wait_ms=-1) for waiter in waiters for name in names]
    assert [answer.error_code for answer in answers][4:] == [ErrorCode.RESOURCE_OWNED] * 5
    assert "own.waiters.total.max=4" in str(answers[4].error_message)
    assert sum(len(each.waiters) for each in machine.table.resources()) == machine.table._state.waiters == 4
    waiters[0].close()
    assert machine.table._state.waiters == 1
    assert waiters[2].claim(names[2], -1, wait_ms=-1).position == 1
    owner.release(names[2])
    assert machine.owner_of(names[2]) == "waiter-2"
    assert machine.table._state.waiters == 1


def test_all_connections_of_a_broker_together_have_a_limited_number_of_resources() -> None:
    machine = Machine(OwnershipSettings(resources_total_max=3))
    names = [NameKey("app", f"n{number}") for number in range(4)]
    owners = [machine.client(f"owner-{number}") for number in range(4)]
    answers = [owner.claim(name) for owner, name in zip(owners, names, strict=True)]
    assert [answer.error_code for answer in answers] == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert "own.resources.total.max=3" in str(answers[3].error_message)
    assert owners[1].claim(names[1], 1).error_code == 0, "it has this name already"
    owners[0].release(names[0])
    assert owners[3].claim(names[3]).error_code == 0
    owners[1].close()
    owners[2].close()
    assert machine.table._state.held == 1


def full_machine(owner: str) -> Machine:
    """A broker whose records have no room left. The last owner of name 0 has a name of 200 characters."""
    settings = OwnershipSettings(records_bytes_max=3 * GRANT_BYTES_MAX, records_source_percentage=100)
    machine = Machine(settings)
    names = iter(range(1000))
    for number in names:
        answer = machine.client(owner.ljust(200, "x")).claim(NameKey("app", f"n{number}"))
        if answer.error_code:
            assert answer.error_code == ErrorCode.POLICY_VIOLATION
            assert "own.records.total.bytes=" in str(answer.error_message)
            break
    assert 3 < number < 20
    return machine


def test_all_records_of_a_broker_together_have_a_limited_number_of_bytes() -> None:
    machine = full_machine("strangers")
    state = machine.table._state
    limit = state.settings.records_bytes_max
    first = NameKey("app", "n0")
    assert limit - GRANT_BYTES_MAX < state.sizes.total <= limit
    assert machine.client("anna").claim(first, IF_FREE).error_code == ErrorCode.RESOURCE_OWNED
    before = state.sizes.total
    for number in range(40):
        successor = machine.client(f"honest-{number}".ljust(200, "y"))
        assert successor.claim(first, RESET_GENERATION).error_code == 0
    assert state.sizes.total == before, "past grants are forgotten, so a successor of the same length fits"
    assert len(machine.entry(first).history) == 1
    longer = machine.client("x" * 255).claim(first, RESET_GENERATION)
    assert longer.error_code == ErrorCode.POLICY_VIOLATION


def test_room_for_records_is_found_by_forgetting_free_names_and_counted_anew() -> None:
    machine = full_machine("strangers")
    state = machine.table._state
    assert machine.client("anna").claim(NAME).error_code == ErrorCode.POLICY_VIOLATION
    for key in [key for key in state.resources if isinstance(key, NameKey)]:
        machine.force_release(key)
    machine.flush()
    machine.now_ms += state.settings.names_retention_ms
    assert machine.client("anna").claim(NAME).error_code == 0
    assert state.sizes.total == record_bytes(state)
    machine.fail_over()
    state = machine.table._state
    assert state.sizes.total == record_bytes(state) > 0


def record_bytes(state: TableState) -> int:
    return sum(sum(sizes_of(resource).values()) for resource in state.resources.values())


def names_granted_to(machine: Machine, principal: str, host: str = "127.0.0.1") -> int:
    """How many new names a source is granted until it is refused one."""
    client = machine.client("o".ljust(200, "x"))
    client.principal, client.host = principal, host
    for number in range(1000):
        answer = client.claim(NameKey("app", f"{client.connection} {number}"))
        if answer.error_code:
            assert answer.error_code == ErrorCode.POLICY_VIOLATION
            assert "own.records.per.source.percentage=50" in str(answer.error_message)
            break
    return number


def test_one_source_leaves_room_for_the_records_of_others() -> None:
    """A source is a principal, or an address whose clients have none."""
    machine = Machine(OwnershipSettings(records_bytes_max=60 * GRANT_BYTES_MAX))
    state = machine.table._state
    sources = [("User:ANONYMOUS", "10.0.0.1"), ("User:ANONYMOUS", "fe80::1"), ("User:b", "10.0.0.1")]
    granted = []
    for principal, host in sources:
        granted.append(names_granted_to(machine, principal, host))
        assert names_granted_to(machine, principal, "fe80::2" if ":" in host else host) == 0
    assert granted[0] > 60 and all(1.9 < one / next_ < 3 for one, next_ in pairwise(granted)), granted
    assert names_granted_to(machine, "User:b", "10.0.0.9") == 0, "a principal is one source anywhere"
    sizes = [state.sizes.of(source) for source in ("10.0.0.1", "fe80::/64", "User:b")]
    assert sum(sizes) == state.sizes.total == record_bytes(state)
    machine.fail_over()
    again = machine.table._state.sizes
    assert [again.of(source) for source in ("10.0.0.1", "fe80::/64", "User:b")] == sizes
    assert names_granted_to(machine, "User:ANONYMOUS", "10.0.0.1") == 0, "the records say whose they are"


def test_past_grants_leave_half_of_the_share_for_further_resources() -> None:
    """An application whose owners take turns has resources with long histories, and is granted others."""
    machine = Machine(OwnershipSettings(records_bytes_max=60 * GRANT_BYTES_MAX))
    state = machine.table._state
    for number in range(100):
        owner = machine.client(f"owner-{number}")
        for name in range(20):
            assert owner.claim(NameKey("app", f"n{name}"), RESET_GENERATION).error_code == 0
    assert state.sizes.total == record_bytes(state) < 0.3 * state.settings.records_bytes_max
    anna = machine.client("anna")
    assert [anna.claim(NameKey("app", f"new {name}")).error_code for name in range(10)] == [0] * 10


def test_a_source_at_its_share_is_given_room_by_forgetting_free_names() -> None:
    machine = Machine(OwnershipSettings(records_bytes_max=20 * GRANT_BYTES_MAX))
    state = machine.table._state
    count = names_granted_to(machine, "User:a")
    for key in list(state.resources):
        machine.force_release(key)
    machine.flush()
    machine.now_ms += state.settings.names_retention_ms
    assert names_granted_to(machine, "User:a", "other") >= count > 20


def lines_at_once(count: int) -> tuple[int, list[str]]:
    """How many lines of one event are written at once, and all of them."""
    clock, written = Clock(), []
    lines = AuditLines(clock)
    with mock.patch.object(audit_lines._audit, "info", lambda text, line: written.append(line)):
        lines.begin()
        for number in range(count):
            lines.write(f"lost: {number}")
        first = len(written)
        clock.advance(0)
        lines.stop()
    return first, written


def test_the_audit_lines_of_many_resources_are_written_in_turns() -> None:
    first, written = lines_at_once(1050)
    assert first == audit_lines.LINES_AT_ONCE
    assert written == [f"lost: {number}" for number in range(1050)]


def test_a_connections_1000_most_recently_named_groups_are_remembered() -> None:
    machine = Machine()
    anna = machine.client("anna")
    for number in range(1500):
        anna.group = f"g{number}"
        anna.claim(NameKey(anna.group, "leader"))
    holdings = machine.table.holdings(anna.connection)
    assert holdings is not None
    groups = holdings.groups
    assert len(groups) == resources.NAMED_GROUPS_MAX == 1000
    assert "g1499" in groups


def test_only_the_most_recently_answered_standings_are_remembered() -> None:
    machine = Machine()

    def standings(*_: object) -> list[ResourceStanding]:
        return [ResourceStanding(name=f"n{number}", partition=-1, error_code=0) for number in range(300)]

    renewals = Renewals(Clock(), standings, lambda *_: None)
    anna = machine.client("anna")
    for number in range(100):
        anna.owner_id = f"owner-{number}"
        renewals.renew(anna.requester, [], 0)
    kept = renewals._seen[anna.connection]
    assert "owner-99" in {owner_id for _, owner_id in kept}
    assert sum(map(len, kept.values())) <= _SEEN_MAX + 300


@pytest.mark.parametrize("length", [1, 15, 65])
def test_a_secret_has_16_to_64_bytes(world: OwnershipWorld, length: int) -> None:
    anna = world.owner("anna")
    anna.secret = b"x" * length
    assert anna.client.call(anna.claim_request(T)).error_code == ErrorCode.INVALID_REQUEST
