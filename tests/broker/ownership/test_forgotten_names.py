"""Names that nobody has owned for long are forgotten, so that a broker has room for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.ownership.effects import Write
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.ownership.records import Forgotten, NameKey, OwnershipRecord, decode_mark
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import ResourceStanding
from tests.broker.ownership.machine import Client, Machine
from tests.broker.ownership.world import OwnershipWorld

RETENTION_MS = 600_000


def name(number: int) -> NameKey:
    return NameKey("app", f"n{number}")


def a_machine(names_max: int = 5, *, grace_ms: int = 0) -> Machine:
    return Machine(
        OwnershipSettings(
            names_max=names_max, names_retention_ms=RETENTION_MS, release_grace_ms=grace_ms, waiters_max=10
        )
    )


def use(machine: Machine, key: NameKey) -> ResourceStanding:
    """Claim a name and release it."""
    client = machine.client("passer-by")
    standing = client.claim(key, -1)
    assert standing.error_code == ErrorCode.NONE, standing
    client.release(key)
    client.close()
    machine.now_ms += 1
    return standing


def grow_old(machine: Machine) -> None:
    """Let the retention pass for names that are free, without the broker's own look at them."""
    machine.now_ms += RETENTION_MS


def names(machine: Machine) -> set[str]:
    return {key.name for key in machine.znodes if isinstance(key, NameKey)}


def claims_one_more(machine: Machine) -> ErrorCode:
    return ErrorCode(machine.client("newcomer").claim(NameKey("app", "more"), -1).error_code)


def test_a_claim_of_a_new_name_has_the_names_forgotten_that_are_free_for_long() -> None:
    machine = a_machine()
    for number in range(5):
        use(machine, name(number))
    assert claims_one_more(machine) == ErrorCode.POLICY_VIOLATION
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.NONE
    assert names(machine) == {"more"}
    assert any("forgotten: 'n0' in group 'app'" in line for line in machine.audit)


def test_a_refused_claim_names_the_bound_and_the_retention() -> None:
    machine = a_machine(1)
    use(machine, name(0))
    standing = machine.client("anna").claim(name(1), -1)
    assert "own.names.max=1 " in (standing.error_message or "")
    assert f"own.names.retention.ms={RETENTION_MS}" in (standing.error_message or "")


def test_those_free_for_longest_are_forgotten_first_and_100_at_a_time() -> None:
    machine = a_machine(250)
    for number in range(250):
        use(machine, name(number))
    use(machine, name(0))
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.NONE
    assert names(machine) == {"n0", "more", *(f"n{number}" for number in range(101, 250))}


def test_only_names_whose_retention_has_passed_are_forgotten() -> None:
    machine = a_machine()
    for number in range(3):
        use(machine, name(number))
    grow_old(machine)
    for number in range(3, 5):
        use(machine, name(number))
    assert claims_one_more(machine) == ErrorCode.NONE
    assert names(machine) == {"n3", "n4", "more"}


def owned(machine: Machine, client: Client) -> None:
    pass


def detached(machine: Machine, client: Client) -> None:
    """Its connection has closed a moment ago, and it may resume."""
    client.close()


def resumed(machine: Machine, client: Client) -> None:
    """It was lost to silence, and resumed after that."""
    machine.advance(10_000)
    client.reconnect()
    assert client.resume(name(0)).error_code == ErrorCode.NONE


def waiting(machine: Machine, client: Client) -> None:
    """It is free, but the grant to its waiter could not be written."""
    ben = machine.client("ben")
    assert ben.claim(name(0), -1, wait_ms=-1).position == 1
    machine.holds_writes = True
    ticket = client.ask_release(name(0))
    machine.settle_writes()
    machine.settle_writes(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    machine.holds_writes = False
    assert machine.is_answered(ticket)
    assert machine.entry(name(0)).grant is None


def unwritten(machine: Machine, client: Client) -> None:
    """Its owner has left, which its record does not say yet."""
    machine.advance(10_000)
    assert machine.entry(name(0)).grant is None


@pytest.mark.parametrize("state", [owned, detached, resumed, waiting, unwritten])
def test_a_name_in_use_is_never_forgotten(state: object) -> None:
    assert callable(state)
    machine = a_machine(1, grace_ms=10_000_000 if state is detached else 0)
    client = machine.client("anna")
    client.claim(name(0), -1)
    state(machine, client)
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.POLICY_VIOLATION
    assert names(machine) == {"n0"}


def test_a_name_is_not_forgotten_while_a_request_about_it_is_under_way() -> None:
    machine = a_machine(1)
    use(machine, name(0))
    grow_old(machine)
    machine.holds_writes = True
    ticket = machine.client("anna").ask_claim((name(0), -1))
    assert claims_one_more(machine) == ErrorCode.POLICY_VIOLATION
    machine.settle_writes()
    (standing,) = machine.answer(ticket)
    assert (standing.error_code, standing.generation) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("moves", [False, True])
def test_the_tokens_of_a_forgotten_name_rise_and_its_generations_begin_again(moves: bool) -> None:
    machine = a_machine(2)
    tokens = [use(machine, name(0)).incarnation for _ in range(7)]
    use(machine, name(1))
    grow_old(machine)
    assert use(machine, name(2)).generation == 1
    assert names(machine) == {"n2"}
    if moves:
        machine.fail_over()
    again = use(machine, name(0))
    assert (again.generation, again.incarnation > tokens[-1]) == (1, True)


def test_a_new_decider_counts_the_retention_from_its_beginning() -> None:
    machine = a_machine(1)
    use(machine, name(0))
    grow_old(machine)
    machine.fail_over()
    assert claims_one_more(machine) == ErrorCode.POLICY_VIOLATION
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.NONE


def test_the_last_owner_of_a_forgotten_name_cannot_resume_it() -> None:
    machine = a_machine(1)
    anna = machine.client("anna")
    anna.claim(name(0), -1)
    machine.advance(10_000)
    machine.flush()
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.NONE
    anna.reconnect()
    refused = anna.resume(name(0))
    assert refused.error_code == ErrorCode.OWNERSHIP_FENCED
    assert "nobody has owned it for long" in (refused.error_message or "")


def forgets(write: Write) -> set[str]:
    return {item.key.name for item in write.items if isinstance(item.key, NameKey) and is_gone(item.record)}


def is_gone(record: OwnershipRecord | Forgotten) -> bool:
    return isinstance(record, Forgotten)


def a_full_machine() -> Machine:
    """A machine with five names that may be forgotten, and no room. Writes are held."""
    machine = a_machine()
    for number in range(5):
        use(machine, name(number))
    grow_old(machine)
    machine.holds_writes = True
    return machine


def test_claims_wait_until_there_is_room() -> None:
    machine = a_full_machine()
    clients = [machine.client(f"owner-{number}") for number in range(7)]
    tickets = [client.ask_claim((name(10 + number), -1)) for number, client in enumerate(clients)]
    (write,) = machine.writes
    assert forgets(write) == {f"n{number}" for number in range(5)}
    machine.settle_writes()
    machine.settle_writes()
    codes = [machine.answer(ticket)[0].error_code for ticket in tickets]
    assert codes == [0] * 5 + [ErrorCode.POLICY_VIOLATION] * 2


def test_a_name_claimed_while_it_is_forgotten_is_granted_anew() -> None:
    machine = a_full_machine()
    before = machine.resource(name(0)).incarnation
    more = machine.client("anna").ask_claim((name(10), -1))
    again = machine.client("ben").ask_claim((name(0), -1))
    machine.settle_writes()
    machine.settle_writes()
    (granted,) = machine.answer(again)
    assert (granted.generation, granted.incarnation > before) == (1, True)
    assert machine.answer(more)[0].error_code == ErrorCode.NONE


def test_a_claim_for_which_no_room_could_be_made_may_be_repeated() -> None:
    machine = a_full_machine()
    anna, ben = machine.client("anna"), machine.client("ben")
    tickets = [anna.ask_claim((name(10), -1)), ben.ask_claim((name(11), -1))]
    ben.close()
    machine.settle_writes(BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    for ticket in tickets[: 1 + machine.is_answered(tickets[1])]:
        with pytest.raises(BrokerError) as failed:
            machine.answer(ticket)
        assert failed.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    machine.holds_writes = False
    assert names(machine) == {f"n{number}" for number in range(5)}
    grow_old(machine)
    assert claims_one_more(machine) == ErrorCode.NONE


def test_a_name_unloaded_while_it_is_forgotten_is_left_to_its_new_decider() -> None:
    machine = a_full_machine()
    ticket = machine.client("anna").ask_claim((name(10), -1))
    for number in range(5):
        machine.unload(name(number))
    machine.holds_writes = False
    machine.settle_writes()
    assert machine.answer(ticket)[0].error_code == ErrorCode.NONE


def test_names_are_forgotten_before_a_claim_needs_the_room() -> None:
    machine = a_machine(10)
    for number in range(10):
        use(machine, name(number))
    machine.client("anna").claim(name(1), -1)
    machine.advance(RETENTION_MS)
    assert len(names(machine)) == 10 - 1, "one tenth of the room is kept free"
    assert names(machine) == {f"n{number}" for number in range(1, 10)}


def test_a_broker_with_few_names_forgets_none() -> None:
    machine = a_machine(10)
    for number in range(9):
        use(machine, name(number))
    machine.advance(10 * RETENTION_MS)
    assert len(names(machine)) == 9


def test_a_record_written_after_the_name_was_forgotten_replaces_the_one_before() -> None:
    """Another broker has forgotten the name and granted it again: the versions of its znode begin at 0."""
    here, elsewhere = a_machine(), a_machine()
    use(here, name(0))
    use(here, name(0))
    before = here.resource(name(0))
    elsewhere.table.count_from(before.incarnation)
    use(elsewhere, name(0))
    data, version = elsewhere.znodes[name(0)]
    assert version < before.version
    here.znodes[name(0)] = (data, version)
    here.load(name(0))
    assert here.resource(name(0)).incarnation == elsewhere.resource(name(0)).incarnation
    here.table.load(name(0), elsewhere.record(name(0)), version, here.now_ms)
    assert here.resource(name(0)).version == version


@pytest.mark.parametrize("moves", [False, True])
def test_a_broker_with_room_for_three_names_serves_any_number(tmp_path: Path, moves: bool) -> None:
    world = OwnershipWorld(tmp_path, **{"own.names.max": 3, "own.names.retention.ms": 0})
    world.lead("__consumer_offsets")
    tokens: list[int] = []
    for number in range(30):
        owner = world.owner("anna", group=f"g{number % 5}")
        standing = owner.claim(f"n{number % 10}", -1, partition=-1)
        assert standing.error_code == ErrorCode.NONE
        tokens.append(standing.incarnation)
        owner.client.call(owner.release_request(f"n{number % 10}", partition=-1))
        if moves and number % 7 == 6:
            world.assign("__consumer_offsets", leader=2, leader_epoch=number, replicas=(1, 2))
            world.lead("__consumer_offsets", leader_epoch=number + 1)
    for number in range(10):
        assert tokens[number] < tokens[number + 10] < tokens[number + 20]
    kept = [path for path in world.zookeeper.znodes if path.startswith(f"{OWNED_NAMES}/")]
    if not moves:
        assert len([path for path in kept if path.count("/") == 5]) <= 3
    assert decode_mark(world.zookeeper.znodes[OWNED_NAMES][0]) > 0
