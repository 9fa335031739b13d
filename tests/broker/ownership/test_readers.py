"""Members of consumer groups in the ownership table: writes that are slow or fail, failovers, deletions."""

from __future__ import annotations

import pytest

from holdfast_log.broker.ownership.readers import AssignReaders, AttachReader, NewReader
from holdfast_log.broker.ownership.resources import Requester
from holdfast_log.coordinator.ownership.records import Owner, PartitionKey, ReaderAssignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.group_readers import NOBODY
from holdfast_log.protocol.messages.ownership import Access, LossReason
from tests.broker.ownership.machine import P0, P1, Client, Machine

GROUP = "billing"
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def machine() -> Machine:
    return Machine()


def assigned(key: PartitionKey, member_id: str, generation: int, offset: int) -> NewReader:
    owner = Owner(
        member_id, "c", "", "/h", 0, Access.READ, assignment=ReaderAssignment(0, offset, generation)
    )
    return NewReader(key, GROUP, owner)


def ask_assign(machine: Machine, *readers: NewReader) -> int:
    return machine.submit(AssignReaders(readers))


def assign(machine: Machine, member_id: str, generation: int, offset: int | None = None) -> int:
    """Assign P0 to a member; the error code."""
    wanted = assigned(P0, member_id, generation, generation if offset is None else offset)
    (standing,) = machine.answer(ask_assign(machine, wanted))
    return standing.error_code


def ask_attach(machine: Machine, client: Client, generation: int) -> int:
    member = Requester(GROUP, Owner(client.owner_id, "c", "", "h", 0), client.connection)
    return machine.submit(AttachReader(member, generation, [P0]))


def attach(machine: Machine, client: Client, generation: int) -> int:
    (standing,) = machine.answer(ask_attach(machine, client, generation))
    return standing.error_code


def test_an_assignment_is_in_force_only_once_it_is_written(machine: Machine) -> None:
    """Persist before success (docs/design-sources.md, case 1)."""
    anna, bert = machine.client("anna", GROUP), machine.client("bert", GROUP)
    assign(machine, "anna", 1)
    attach(machine, anna, 1)
    machine.holds_writes = True
    ticket = ask_assign(machine, assigned(P0, "bert", 2, 2))
    comes = ask_attach(machine, bert, 2)
    assert not machine.is_answered(ticket) and not machine.is_answered(comes)
    assert machine.owner_of(P0, GROUP) == "anna"

    machine.settle_writes()

    assert [machine.answer(each)[0].error_code for each in (ticket, comes)] == [0, 0]
    assert machine.owner_of(P0, GROUP) == "bert"


def test_an_assignment_that_cannot_be_written_changes_nothing(machine: Machine) -> None:
    anna = machine.client("anna", GROUP)
    assign(machine, "anna", 1)
    attach(machine, anna, 1)
    machine.holds_writes = True
    ticket = ask_assign(machine, assigned(P0, "bert", 2, 2))
    machine.settle_writes(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(BrokerError):
        machine.answer(ticket)
    assert machine.owner_of(P0, GROUP) == "anna"
    machine.holds_writes = False
    assert assign(machine, "bert", 2) == ErrorCode.NONE, "the repeated assignment succeeds"


def test_all_partitions_of_a_request_are_written_together(machine: Machine) -> None:
    machine.holds_writes = True
    ticket = ask_assign(machine, assigned(P0, "anna", 1, 1), assigned(P1, "bert", 1, 1))
    assert [len(write.items) for write in machine.writes] == [2]
    machine.settle_writes()
    assert [standing.error_code for standing in machine.answer(ticket)] == [0, 0]


def test_an_outdated_assignment_does_not_hold_back_the_others(machine: Machine) -> None:
    assign(machine, "bert", 5)
    ticket = ask_assign(machine, assigned(P0, "anna", 4, 4), assigned(P1, "anna", 4, 4))
    codes = [standing.error_code for standing in machine.answer(ticket)]
    assert codes == [ErrorCode.STALE_GENERATION, ErrorCode.NONE]


def test_a_new_assignment_severs_no_members_connection(machine: Machine) -> None:
    """A member reads other partitions on the same connection."""
    anna = machine.client("anna", GROUP)
    assign(machine, "anna", 1)
    attach(machine, anna, 1)
    assign(machine, "bert", 2)
    assign(machine, NOBODY, 3)
    machine.unload(P0, LossReason.DELETED)
    assert machine.severed == []


def test_the_next_leader_keeps_an_assignment_until_the_coordinator_changes_it(machine: Machine) -> None:
    assign(machine, "anna", 1)
    machine.fail_over()
    assert machine.table.next_deadline_ms is None
    machine.advance(DAY_MS)
    assert attach(machine, machine.client("anna", GROUP), 1) == ErrorCode.NONE


def test_a_late_close_of_the_former_members_connection_does_not_detach_the_next_member(
    machine: Machine,
) -> None:
    """A disconnect clears only its own grant (docs/design-sources.md, case 3)."""
    anna, bert = machine.client("anna", GROUP), machine.client("bert", GROUP)
    assign(machine, "anna", 1)
    attach(machine, anna, 1)
    assign(machine, "bert", 2)
    attach(machine, bert, 2)
    machine.close(anna.connection)
    assert machine.owner_of(P0, GROUP) == "bert"


def test_a_member_whose_connection_has_closed_is_not_attached(machine: Machine) -> None:
    anna = machine.client("anna", GROUP)
    machine.holds_writes = True
    ask_assign(machine, assigned(P0, "anna", 1, 1))
    ticket = ask_attach(machine, anna, 1)
    machine.close(anna.connection)
    machine.settle_writes()
    with pytest.raises(BrokerError):
        machine.answer(ticket)
    assert machine.owner_of(P0, GROUP) is None


def test_an_assignments_record_holds_its_decision_and_generation(machine: Machine) -> None:
    assign(machine, "anna", 7, offset=40)
    (grant,) = machine.record(P0).histories[GROUP]
    assert grant.owner.assignment == ReaderAssignment(0, 40, 7)
    assert grant.generation == 7
