"""The numbered fencing cases of docs/design-sources.md that the ownership table decides.

Cases 11 to 15 and 18 are about conditional appends: tests/broker/replication/test_conditions.py. Where a case
needs sockets, logs and ZooKeeper it is also in test_enforcement.py and tests/integration/test_ownership.py.
"""

from __future__ import annotations

import pytest

from holdfast_log.broker.ownership.rules import check_generation
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.ownership.records import GROUPS_MAX, HISTORY_MAX
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import GENERATION_RAISE_MAX, Access, LossReason
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.broker.ownership.machine import NAME, P0, P1, SESSION_MS, Client, Machine

ZOOKEEPER_DOWN = BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def anna(machine: Machine) -> Client:
    """The owner of P0."""
    anna = machine.client("anna")
    anna.claim(P0)
    return anna


def test_case_1_a_claim_is_answered_once_it_is_persisted(machine: Machine) -> None:
    """ "Persist before success. Concurrent claims wait for the write"."""
    anna, ben = machine.client("anna"), machine.client("ben")
    machine.holds_writes = True
    first = anna.ask_claim((P0, 1))
    second = ben.ask_claim((P0, 1))
    assert not machine.is_answered(first)
    assert machine.owner_of(P0) is None
    assert len(machine.writes) == 1, "the second waits for the first"

    machine.settle_writes()
    assert machine.answer(first)[0].generation == 1
    assert not machine.is_answered(second)
    machine.settle_writes()

    assert machine.answer(second)[0].generation == 2
    assert machine.owner_of(P0) == "ben"


def test_case_1_a_failed_write_uses_up_no_generation(machine: Machine, anna: Client) -> None:
    """ "A failed persist must not keep raising the number (kafka#8239 ran out of epochs)"."""
    ben = machine.client("ben")
    machine.holds_writes = True
    for _ in range(5):
        ticket = ben.ask_claim((P0, 1))
        machine.settle_writes(ZOOKEEPER_DOWN)
        with pytest.raises(BrokerError):
            machine.answer(ticket)
    assert machine.owner_of(P0) == "anna"
    assert machine.severed == []
    machine.holds_writes = False

    assert ben.claim(P0).generation == 2


def test_case_2_the_fence_is_the_log_end_when_the_grant_comes_into_force(
    machine: Machine, anna: Client
) -> None:
    """ "A claim returns a fence offset past which no older writer can land"."""
    ben = machine.client("ben")
    machine.grow(P0, 7)
    machine.holds_writes = True
    ticket = ben.ask_claim((P0, 1))
    assert machine.owner_of(P0) == "anna", "the old owner may write until the grant is durable"
    machine.grow(P0, 3)

    machine.settle_writes()

    assert machine.answer(ticket)[0].fence_offset == 10
    assert machine.owner_of(P0) == "ben"


def test_case_2_a_claim_is_answered_once_everything_before_its_fence_is_committed(
    machine: Machine, anna: Client
) -> None:
    ben = machine.client("ben")
    machine.grow(P0, 5, committed=False)

    ticket = ben.ask_claim((P0, 1))

    assert machine.owner_of(P0) == "ben"
    assert not machine.is_answered(ticket)
    assert ben.renew(P0).error_code == ErrorCode.CLAIM_QUEUED
    machine.commit(P0)
    assert machine.answer(ticket)[0].fence_offset == 5
    assert ben.renew(P0).error_code == 0


def test_case_2_a_fence_beyond_the_new_leaders_log_is_lowered(machine: Machine) -> None:
    """An unclean election has lost records. Waiting for their offsets would never end, since only the owner
    may write."""
    anna = machine.client("anna")
    machine.grow(P0, 15)
    anna.claim(P0)
    machine.flush()
    assert machine.record(P0).histories["app"][-1].fence_offset == 15
    machine.end_offsets[P0] = machine.high_watermarks[P0] = 12

    machine.fail_over()

    anna.reconnect()
    again = anna.claim(P0)
    assert (again.error_code, again.generation, again.fence_offset) == (0, 1, 12)


def test_case_2_a_fence_is_written_once_it_is_settled(machine: Machine) -> None:
    """The next leader may have records of an earlier owner that this one lacks. A fence that this leader
    wrote too early would lie before them."""
    anna = machine.client("anna")
    machine.grow(P0, 5, committed=False)
    anna.ask_claim((P0, 1))
    anna.close()
    machine.advance(120_000)
    machine.flush()
    written, known = machine.record(P0).histories["app"][-1], machine.entry(P0).last
    assert written.has_ended and known is not None
    assert (written.fence_offset, known.fence_offset) == (-1, 5)
    machine.end_offsets[P0] = 7

    machine.fail_over()
    machine.commit(P0)
    machine.flush()

    assert machine.record(P0).histories["app"][-1].fence_offset == 7


def test_case_2_fences_of_two_groups_are_each_written_once_they_are_settled(machine: Machine) -> None:
    ben = machine.client("ben", "other", Access.READ)
    machine.grow(P0, 5, committed=False)
    machine.client("anna").ask_claim((P0, 1))
    machine.grow(P0, 3, committed=False)
    ben.ask_claim((P0, 1))

    machine.high_watermarks[P0] = 5
    machine.perform()
    machine.flush()
    assert written_fences(machine) == {"app": 5, "other": -1}
    machine.commit(P0)
    machine.flush()

    assert written_fences(machine) == {"app": 5, "other": 8}


def test_case_2_a_settled_fence_stays_in_the_record_that_a_new_leader_writes(machine: Machine) -> None:
    """The new leader has to settle the fence again before it answers the owner, but the fence is exact."""
    machine.client("anna").claim(P0)
    machine.flush()
    assert written_fences(machine) == {"app": 0}
    machine.grow(P0, 7, committed=False)
    machine.high_watermarks[P0] = -1
    machine.fail_over()
    assert not machine.entry(P0).is_complete

    machine.client("ben", "other", Access.READ).ask_claim((P0, 1))

    assert written_fences(machine) == {"app": 0, "other": -1}


@pytest.mark.parametrize("is_attached", [False, True])
def test_case_2_a_record_that_is_loaded_again_raises_no_fence_that_an_owner_knows(
    machine: Machine, is_attached: bool
) -> None:
    """The record changed before the leader could write the fence that is settled."""
    anna = machine.client("anna")
    machine.grow(P0, 5)
    anna.claim(P0)
    assert written_fences(machine) == {"app": -1}
    machine.grow(P0, 2)
    data, version = machine.znodes[P0]
    machine.znodes[P0] = (data, version + 1)
    if not is_attached:
        anna.close()

    machine.load(P0)
    machine.flush()

    if not is_attached:
        anna.reconnect()
        anna.resume(P0)
    assert anna.renew(P0).fence_offset == 5
    assert written_fences(machine) == {"app": 5}


def written_fences(machine: Machine) -> dict[str, int]:
    """The fence of the latest grant of each group, as the record in ZooKeeper has it."""
    return {group: history[-1].fence_offset for group, history in machine.record(P0).histories.items()}


def test_case_2_an_owner_that_resumes_an_ended_grant_waits_for_its_fence_too(machine: Machine) -> None:
    anna = machine.client("anna")
    anna.claim(P0)
    machine.grow(P0, 3, committed=False)
    ben = machine.client("ben")
    ben.ask_claim((P0, 2))
    ben.close()
    machine.advance(120_000)
    assert machine.owner_of(P0) is None
    machine.flush()

    machine.fail_over()

    ben.reconnect()
    ben.incarnations[P0] = machine.resource(P0).incarnation
    ticket = ben.ask_resume(P0)
    assert not machine.is_answered(ticket)
    machine.commit(P0)
    assert machine.answer(ticket)[0].error_code == 0


def test_case_3_a_late_close_does_not_clear_the_new_owner(machine: Machine, anna: Client) -> None:
    """ "A disconnect callback compares (owner, generation) before it clears anything"."""
    ben = machine.client("ben")
    old = anna.connection
    ben.claim(P0)

    machine.table.connection_closed(old, machine.now_ms)
    machine.perform()

    assert machine.owner_of(P0) == "ben"
    assert machine.entry(P0).generation == 2


def test_case_3_a_close_while_the_steal_is_being_written_changes_nothing(
    machine: Machine, anna: Client
) -> None:
    ben = machine.client("ben")
    machine.holds_writes = True
    ben.ask_claim((P0, 1))
    anna.close()

    machine.settle_writes()

    assert machine.owner_of(P0) == "ben"
    assert [grant.reason for grant in machine.entry(P0).history] == [
        LossReason.DISCONNECTED,
        LossReason.NONE,
    ]


@pytest.mark.parametrize("outcome", ["refused", "not written"])
def test_case_4_no_owner_is_evicted_for_a_claim_that_fails(
    machine: Machine, anna: Client, outcome: str
) -> None:
    """ "Never close the incumbent before the claimant's epoch has been accepted"."""
    ben = machine.client("ben")
    anna.claim(P0, 5)
    machine.holds_writes = True

    ben.ask_claim((P0, 3 if outcome == "refused" else 5))
    machine.settle_writes(ZOOKEEPER_DOWN)

    assert machine.severed == []
    assert anna.is_open
    assert anna.renew(P0).error_code == 0


def test_case_4_no_owner_is_evicted_for_a_claimant_that_has_left(machine: Machine, anna: Client) -> None:
    """The claimant leaves while its claim waits for another."""
    ben, cleo = machine.client("ben"), machine.client("cleo")
    machine.holds_writes = True
    ben.ask_claim((P0, 1))
    cleo.ask_claim((P0, 2))
    cleo.close()
    machine.settle_writes()
    machine.settle_writes()
    assert machine.owner_of(P0) == "ben"
    assert machine.severed == [anna.connection]


def test_case_5_a_waking_zombie_cannot_steal_back(machine: Machine) -> None:
    """ "a steal names the generation last seen"."""
    zombie, ben = machine.client("zombie"), machine.client("ben")
    seen = zombie.claim(P0).generation
    ben.claim(P0, seen)
    zombie.reconnect()

    assert zombie.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    assert zombie.claim(P0, seen).error_code == ErrorCode.STALE_GENERATION
    assert machine.owner_of(P0) == "ben"


def test_case_6_every_grant_raises_the_generation(machine: Machine) -> None:
    """ "Event Hubs keeps it: two epoch-0 readers took each other's place 15 times in 86 s". One of two
    claimants that have seen the same generation wins."""
    first = machine.client("first")
    assert first.claim(P0).generation == 1
    anna, ben = machine.client("anna"), machine.client("ben")

    outcomes = [anna.claim(P0, 1), ben.claim(P0, 1)]

    assert [outcome.error_code for outcome in outcomes] == [0, ErrorCode.STALE_GENERATION]
    assert machine.owner_of(P0) == "anna"


def test_case_7_an_owner_that_resumes_keeps_its_generation(machine: Machine, anna: Client) -> None:
    """ "Same owner reconnecting resumes without a raise; the old connection's queued writes are refused"."""
    old = anna.connection
    anna.reconnect()

    resumed = anna.resume(P0)

    assert (resumed.error_code, resumed.generation) == (0, 1)
    assert machine.severed == [old]
    assert machine.owner_of(P0) == "anna"
    assert machine.entry(P0).connection == anna.connection


def test_case_7_an_owner_may_resume_until_another_owner_is_granted_the_resource(
    machine: Machine, anna: Client
) -> None:
    ben = machine.client("ben")
    anna.close()
    assert machine.owner_of(P0) is None
    anna.reconnect()
    assert anna.resume(P0).generation == 1
    anna.close()
    ben.claim(P0, 1)
    ben.close()
    anna.reconnect()
    assert anna.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_case_7_an_owner_may_not_resume_after_a_writer_of_another_group(machine: Machine) -> None:
    anna, ben = machine.client("anna", "left"), machine.client("ben", "right")
    anna.claim(P0)
    anna.close()
    ben.claim(P0)
    ben.close()
    anna.reconnect()
    assert anna.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_case_7_a_writer_of_another_group_is_remembered_beyond_the_history(machine: Machine) -> None:
    """Later grants to readers have displaced the writer from the bounded history."""
    anna = machine.client("anna", "left")
    anna.claim(P0)
    anna.close()
    machine.client("ben", "right").claim(P0, -1)
    for number in range(HISTORY_MAX):
        machine.client(f"reader-{number}", "right", Access.READ).claim(P0, 0)
    machine.flush()
    machine.fail_over()
    anna.reconnect()
    assert anna.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_case_7_a_claim_whose_answer_was_lost_is_sent_again(machine: Machine) -> None:
    """ "A claim whose reply was lost can be retried naming the previous generation"."""
    ben = machine.client("ben")
    ben.claim(P0)
    anna = machine.client("anna")
    anna.claim(P0, 1)
    old = anna.connection
    anna.reconnect()

    again = anna.claim(P0, 1)

    assert (again.error_code, again.generation) == (0, 2)
    assert machine.entry(P0).counts.claims == 2
    assert old in machine.severed


def test_case_8_silence_ends_an_ownership_by_the_servers_clock(machine: Machine, anna: Client) -> None:
    """ "ownership is bounded by the session timeout": the connection never closes."""
    ben = machine.client("ben")
    machine.advance(SESSION_MS - 1)
    assert machine.owner_of(P0) == "anna"
    anna.heard()
    machine.advance(SESSION_MS - 1)
    assert machine.owner_of(P0) == "anna"

    machine.advance(1)

    assert machine.owner_of(P0) is None
    assert machine.severed == [anna.connection]
    assert ben.claim(P0, -1).generation == 2
    anna.reconnect()
    assert anna.resume(P0).reason is LossReason.SESSION_TIMED_OUT


def test_case_8_on_contention_the_owner_is_pinged() -> None:
    """ "on contention the incumbent is pinged with a deadline"."""
    machine = Machine(OwnershipSettings(ping_timeout_ms=500))
    anna, ben = machine.client("anna"), machine.client("ben")
    anna.claim(P0)
    machine.advance(1)
    assert ben.claim(P0, -1, wait_ms=-1).position == 1
    assert machine.pings == [anna.connection]
    machine.table.pinged(anna.connection, machine.now_ms)

    machine.advance(499, ben)
    assert machine.owner_of(P0) == "anna"
    machine.advance(1, ben)

    assert machine.owner_of(P0) == "ben"


def test_case_8_an_owner_that_answers_a_ping_keeps_its_resource() -> None:
    machine = Machine(OwnershipSettings(ping_timeout_ms=500))
    anna, ben = machine.client("anna"), machine.client("ben")
    anna.claim(P0)
    ben.claim(P0, -1, wait_ms=-1)
    machine.table.pinged(anna.connection, machine.now_ms)
    machine.advance(400, ben)
    anna.heard()

    machine.advance(5000, ben)

    assert machine.owner_of(P0) == "anna"
    assert anna.renew(P0).is_contended


def test_case_8_an_answer_to_a_ping_in_the_same_millisecond_counts() -> None:
    """An owner on the same machine may answer that fast, and then send nothing until its next Renew."""
    machine = Machine(OwnershipSettings(ping_timeout_ms=500))
    anna, ben = machine.client("anna"), machine.client("ben")
    anna.claim(P0)
    machine.advance(1)
    ben.claim(P0, -1)
    machine.table.pinged(anna.connection, machine.now_ms)
    anna.heard()

    machine.advance(600, ben)

    assert machine.owner_of(P0) == "anna"


def test_case_9_a_restart_restores_owners_as_detached(machine: Machine, anna: Client) -> None:
    """ "Restart restores owners as detached with a grace, never at 1 (xtdb#5904: a term fell from 111 to 1
    and ingestion stopped)"."""
    anna.claim(P0, 111)

    machine.fail_over()

    entry = machine.entry(P0)
    assert (entry.generation, entry.connection) == (111, None)
    ben = machine.client("ben")
    assert ben.claim(P0, -1).error_code == ErrorCode.RESOURCE_OWNED
    anna.reconnect()
    assert anna.resume(P0).generation == 111


def test_case_9_after_the_grace_the_resource_is_free(machine: Machine, anna: Client) -> None:
    anna.claim(P0, 111)
    machine.fail_over()
    ben = machine.client("ben")

    machine.advance(SESSION_MS, ben)

    assert ben.claim(P0, -1).generation == 112


def test_case_9_a_grant_that_was_never_answered_holds_after_a_restart(machine: Machine, anna: Client) -> None:
    """The leader fails between the write and the answer. The next leader loads the grant and fences
    earlier owners."""
    ben = machine.client("ben")
    machine.grow(P0, 4)
    machine.holds_writes = True
    ben.ask_claim((P0, 1))
    machine.land(machine.writes.pop())
    machine.holds_writes = False

    machine.fail_over()

    anna.reconnect()
    assert anna.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED
    ben.reconnect()
    again = ben.claim(P0, 1)
    assert (again.error_code, again.generation, again.fence_offset) == (0, 2, 4)


def test_case_9_a_resumed_grant_holds_after_a_restart(machine: Machine) -> None:
    """A successful Resume promises that other clients wait for the owner's session. A grant that had ended
    must therefore be durable again before the answer."""
    anna = machine.client("anna")
    anna.claim(NAME)
    anna.close()
    machine.flush()
    anna.reconnect()
    assert anna.resume(NAME).error_code == 0

    machine.fail_over()

    ben = machine.client("ben")
    assert ben.claim(NAME, -1).error_code == ErrorCode.RESOURCE_OWNED
    machine.advance(SESSION_MS, ben)
    assert ben.claim(NAME, -1).generation == 2


def test_case_9_the_access_of_a_resumed_exclusive_producer_holds_after_a_restart(
    machine: Machine,
) -> None:
    anna = machine.client("anna")
    anna.access_to(P0, ProducerAccessMode.EXCLUSIVE)
    anna.close()
    machine.flush()
    anna.reconnect()
    assert anna.access_to(P0, ProducerAccessMode.EXCLUSIVE, epoch=1).error_code == 0

    machine.fail_over()

    ben = machine.client("ben")
    assert ben.access_to(P0, ProducerAccessMode.EXCLUSIVE).error_code == ErrorCode.RESOURCE_OWNED


def test_case_9_an_owner_that_leaves_during_the_write_of_its_resume_owns_nothing(
    machine: Machine, anna: Client
) -> None:
    ben = machine.client("ben")
    anna.close()
    machine.flush()
    anna.reconnect()
    machine.holds_writes = True
    with pytest.raises(KeyError):
        anna.resume(P0)
    anna.close()
    machine.holds_writes = False
    machine.settle_writes()
    machine.flush()

    assert machine.record(P0).histories["app"][-1].reason is LossReason.DISCONNECTED
    assert ben.claim(P0, -1).generation == 2


def test_loading_a_record_again_undoes_no_release(machine: Machine, anna: Client) -> None:
    """A new leader epoch begins before the release is written."""
    ben = machine.client("ben")
    machine.flush()
    anna.release(P0)

    machine.load(P0)

    assert ben.claim(P0, -1).generation == 2


def test_a_grant_that_is_loaded_before_its_write_is_answered_is_granted_once(machine: Machine) -> None:
    """ZooKeeper's answer is lost, and a new leader epoch begins before the leader reads the outcome."""
    anna = machine.client("anna")
    machine.holds_writes = True
    ticket = anna.ask_claim((P0, 1))
    (write,) = machine.writes
    machine.writes = []
    versions = machine.land(write)
    machine.load(P0)
    machine.holds_writes = False

    machine.table.written(write.number, versions, machine.now_ms)
    machine.perform()

    with pytest.raises(BrokerError) as raised:
        machine.answer(ticket)
    assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [grant.incarnation for grant in machine.entry(P0).history] == [1]
    assert anna.claim(P0).incarnation == 1, "the repeated claim finds its own grant"
    assert machine.entry(P0).connection == anna.connection


def test_case_10_generations_outlive_idleness(machine: Machine, anna: Client) -> None:
    """ "Generations outlive retention and idleness"."""
    anna.claim(NAME)
    anna.close()
    machine.flush()
    machine.advance(10 * 365 * 24 * 3600 * 1000)
    machine.fail_over()

    ben = machine.client("ben")
    assert ben.claim(P0, -1).generation == 2
    assert ben.claim(NAME, -1).generation == 2


def test_case_10_a_forgotten_group_keeps_its_generation(machine: Machine) -> None:
    """The groups free for longest are dropped, and the record keeps their highest generation as a floor."""
    first = machine.client("first", "g")
    assert [first.claim(P0, number).generation for number in (1, 5, 7)] == [1, 5, 7]
    first.release(P0)
    for number in range(GROUPS_MAX + 50):
        client = machine.client("c", f"g{number}")
        assert client.claim(P0, -1).error_code == 0
        client.release(P0)
    machine.flush()
    machine.fail_over()

    assert len(machine.record(P0).histories) == GROUPS_MAX
    late = machine.client("late", "g")
    assert (late.claim(P0, 1).error_code, late.claim(P0, -1).generation) == (ErrorCode.STALE_GENERATION, 8)


def test_case_16_several_resources_are_granted_together_or_not_at_all(machine: Machine) -> None:
    """ "Several resources: atomic within one broker; the rest get OPERATION_NOT_ATTEMPTED"."""
    anna, ben = machine.client("anna"), machine.client("ben")
    anna.claim(P1)
    anna.claim(P1, 5)

    standings = ben.claim_all((P0, 1), (P1, 4), (NAME, 1))

    assert [standing.error_code for standing in standings] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.STALE_GENERATION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert machine.owner_of(P0) is None
    assert machine.table.resource(P0) is None, "no record is kept of a resource that was never owned"
    assert [each.error_code for each in ben.claim_all((P0, 1), (P1, 5))] == [0, 0]


def test_case_16_claims_of_overlapping_resources_wait_for_one_another(machine: Machine) -> None:
    anna, ben, cleo = machine.client("anna"), machine.client("ben"), machine.client("cleo")
    machine.holds_writes = True
    tickets = [
        anna.ask_claim((P0, 1)),
        ben.ask_claim((P0, 1), (P1, 1)),
        cleo.ask_claim((P1, 1)),
    ]
    while machine.writes:
        assert len(machine.writes) == 1, "consecutive claims share a resource"
        machine.settle_writes()

    assert [[each.generation for each in machine.answer(ticket)] for ticket in tickets] == [[1], [2, 1], [2]]


def test_case_17_deleting_a_topic_fences_its_owner(machine: Machine, anna: Client) -> None:
    """ "Ownership is keyed by topic id; deletion fences"."""
    machine.unload(P0, LossReason.DELETED)

    assert machine.severed == [anna.connection]
    assert any("DELETED" in line for line in machine.audit)
    again = type(P0)(type(P0.topic_id)(int=8), 0, "events")
    assert machine.client("ben").claim(again).generation == 1


def test_case_19_a_waiter_is_promoted_when_the_last_sharer_leaves(machine: Machine) -> None:
    """ "Waiters are promoted when the last shared writer leaves, too (pulsar#24516 is still open)"."""
    sharers = [machine.client(f"shared {number}") for number in range(2)]
    for sharer in sharers:
        assert sharer.access_to(P0, ProducerAccessMode.SHARED).error_code == 0
    waiter = machine.client("waiter")
    queued = waiter.access_to(P0, ProducerAccessMode.WAIT_FOR_EXCLUSIVE, wait_ms=-1)
    assert (queued.error_code, queued.position) == (ErrorCode.CLAIM_QUEUED, 1)

    sharers[0].release(P0, -1)
    assert machine.owner_of(P0, "") is None
    sharers[1].close()

    assert machine.owner_of(P0, "") == "waiter"


def test_case_20_generations_are_64_bits_wide(machine: Machine, anna: Client) -> None:
    """ "Generations are int64; absurd requests are refused"."""
    ben = machine.client("ben")
    assert anna.claim(P0, 2**62).generation == 1
    assert ben.claim(P0, 1 + GENERATION_RAISE_MAX).generation == 1 + GENERATION_RAISE_MAX
    with pytest.raises(BrokerError):
        check_generation(-2)


@pytest.mark.parametrize("absurd", [2 + GENERATION_RAISE_MAX, 2**62, 2**63 - 1])
def test_a_claim_cannot_raise_the_generation_so_far_that_nobody_can_claim_after_it(
    machine: Machine, anna: Client, absurd: int
) -> None:
    ben = machine.client("ben")
    assert anna.claim(P0, 1).generation == 1

    refused = ben.claim(P0, absurd)

    assert (refused.error_code, refused.generation) == (ErrorCode.INVALID_GENERATION, 1)
    assert "name 1" in (refused.error_message or "")
    assert machine.owner_of(P0, anna.group) == "anna"
    assert ben.claim(P0, refused.generation).generation == 2


def test_a_reset_revives_no_old_owner(machine: Machine) -> None:
    """The incarnation never falls: it tells generation 1 before the reset from generation 1 after it."""
    zombie, ben = machine.client("anna"), machine.client("ben")
    zombie.claim(P0)
    old = dict(zombie.incarnations)
    ben.claim(P0, 0)
    again = machine.client("anna")
    assert again.claim(P0, 0).generation == 1
    zombie.incarnations = old
    zombie.reconnect()
    assert zombie.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_readers_do_not_fence_writers(machine: Machine) -> None:
    reader, writer = machine.client("reader", "r", Access.READ), machine.client("writer", "w")
    assert reader.claim(P0).error_code == writer.claim(P0).error_code == 0
    assert machine.severed == []
    resource = machine.resource(P0)
    assert resource.writer is not None
    assert resource.writer.group == "w"


def test_the_history_is_written_and_bounded(machine: Machine) -> None:
    clients = [machine.client(f"owner {number}") for number in range(HISTORY_MAX + 4)]
    for generation, client in enumerate(clients):
        machine.grow(P0)
        client.claim(P0, max(generation, 1))
    machine.flush()

    history = machine.record(P0).histories["app"]

    assert len(history) == HISTORY_MAX
    assert [grant.generation for grant in history] == list(range(5, HISTORY_MAX + 5))
    assert [grant.fence_offset for grant in history] == list(range(5, HISTORY_MAX + 5))
    assert all(grant.reason is LossReason.STOLEN for grant in history[:-1])
    assert machine.record(P0) == machine.resource(P0).record()


def test_every_change_of_owner_is_one_line_of_the_audit_log(machine: Machine) -> None:
    anna, ben = machine.client("anna"), machine.client("ben")
    other = machine.client("cleo", "other")
    anna.claim(P0)
    ben.claim(P0)
    ben.claim(P0, 2)
    other.claim(P0, 0)
    other.release(P0)
    machine.force_release(P0, "other")
    ben.reconnect()
    ben.claim(P0, -1)
    ben.close()
    ben.reconnect()
    ben.resume(P0)
    machine.force_release(P0)
    events = [line.partition(", incarnation")[0].replace("events-0 in group ", "") for line in machine.audit]
    assert events == [
        "granted: 'app', generation 1",
        "granted, taken from 'anna' (STOLEN): 'app', generation 2",
        "granted: 'app', generation 3",
        "lost (RESET): 'app', generation 3",
        "granted: 'other', generation 1",
        "lost (RELEASED): 'other', generation 1",
        "granted: 'app', generation 4",
        "lost (DISCONNECTED): 'app', generation 4",
        "resumed: 'app', generation 4",
        "lost (FORCED): 'app', generation 4",
    ]
    totals = machine.table.totals()
    assert (totals.claims, totals.steals) == (5, 2)
