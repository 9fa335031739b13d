"""At most one confirmed owner at a time: which histories violate it, and which only look as if they did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.checker.calls import NO_CONNECTION, NO_GRANT, Action, Outcome, OwnershipCall
from holdfast_log.checker.holders import holder_violations

NAME = "group/leader"


def call(
    client: str,
    action: Action,
    asked_s: float,
    answered_s: float,
    grant: int,
    outcome: Outcome = Outcome.DONE,
    *,
    session_s: float = 0.0,
    is_taking: bool = False,
    resource: str = NAME,
    is_stale: bool = False,
    connection: int = NO_CONNECTION,
) -> OwnershipCall:
    return OwnershipCall(
        client,
        resource,
        action,
        asked_s,
        answered_s,
        outcome,
        grant,
        session_s,
        is_taking=is_taking,
        is_stale=is_stale,
        connection=connection,
    )


def rules(*calls: OwnershipCall) -> list[str]:
    """The names of the violated rules."""
    return [text.partition(":")[0] for text in holder_violations(calls)]


def test_an_owner_confirmed_after_its_successor_was_is_a_second_holder() -> None:
    first = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    second = call("ben", Action.CLAIM, 2.0, 3.0, 2)
    for action in (Action.RENEW, Action.RESUME, Action.READ, Action.WRITE):
        assert rules(first, second, call("anna", action, 3.1, 4.0, 1)) == ["two holders"]


def test_an_earlier_grant_that_is_answered_after_a_later_one_was_is_a_second_holder() -> None:
    assert rules(call("ben", Action.CLAIM, 0.0, 1.0, 2), call("anna", Action.CLAIM, 1.5, 2.0, 1)) == [
        "two holders"
    ]


def test_a_confirmation_that_overlaps_the_successors_claim_may_have_come_first() -> None:
    first = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    second = call("ben", Action.CLAIM, 2.0, 3.0, 2)

    assert rules(first, second, call("anna", Action.RENEW, 2.9, 9.0, 1)) == []


def test_two_owners_of_different_resources_do_not_exclude_each_other() -> None:
    first = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    other = call("ben", Action.CLAIM, 2.0, 3.0, 2, resource="group/other")

    assert rules(first, other, call("anna", Action.RENEW, 4.0, 5.0, 1)) == []


def test_a_confirmation_after_the_loss_was_answered_confirms_an_ended_grant() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    lost = call("anna", Action.RENEW, 2.0, 3.0, 1, Outcome.REFUSED)

    assert rules(grant, lost, call("anna", Action.WRITE, 3.1, 4.0, 1)) == ["ended grant"]


def test_a_confirmation_after_the_release_was_answered_confirms_an_ended_grant() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    release = call("anna", Action.RELEASE, 2.0, 3.0, 1)

    assert rules(grant, release, call("anna", Action.RENEW, 3.1, 4.0, 1)) == ["ended grant"]


def test_a_release_without_an_answer_may_not_have_happened() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 1.0, 1)
    release = call("anna", Action.RELEASE, 2.0, 3.0, 1, Outcome.UNKNOWN)

    assert rules(grant, release, call("anna", Action.RESUME, 3.1, 4.0, 1)) == []


def test_a_late_refusal_of_a_former_owner_confirms_nothing() -> None:
    calls = [
        call("anna", Action.CLAIM, 0.0, 1.0, 1),
        call("ben", Action.CLAIM, 2.0, 3.0, 2),
        call("anna", Action.RENEW, 4.0, 5.0, 1, Outcome.REFUSED),
        call("anna", Action.CLAIM, 6.0, 7.0, NO_GRANT, Outcome.REFUSED),
        call("ben", Action.RENEW, 8.0, 9.0, 2),
    ]
    assert rules(*calls) == []


def test_one_grant_that_two_clients_are_given_is_found_although_the_calls_overlap() -> None:
    assert rules(call("anna", Action.CLAIM, 0.0, 2.0, 1), call("ben", Action.CLAIM, 1.0, 3.0, 1)) == [
        "one grant, two owners"
    ]


def test_a_grant_within_the_session_of_the_former_owner_cuts_it_short() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 0.5, 1, session_s=3.0)
    renewal = call("anna", Action.RENEW, 2.0, 2.1, 1, session_s=3.0)

    assert rules(grant, renewal, call("ben", Action.CLAIM, 3.0, 4.9, 2)) == ["a session cut short"]


def test_a_grant_that_may_have_come_after_the_session_does_not_cut_it_short() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 0.5, 1, session_s=3.0)

    assert rules(grant, call("ben", Action.CLAIM, 1.0, 3.1, 2)) == []


def test_an_owner_that_may_have_ended_its_session_itself_does_not_keep_others_out() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 0.5, 1, session_s=9.0)
    successor = call("ben", Action.CLAIM, 2.0, 3.0, 2)
    for action, outcome in (
        (Action.RELEASE, Outcome.DONE),
        (Action.RELEASE, Outcome.UNKNOWN),
        (Action.RENEW, Outcome.UNKNOWN),
        (Action.RENEW, Outcome.REFUSED),
    ):
        assert rules(grant, call("anna", action, 1.0, 2.5, 1, outcome), successor) == []


def test_a_claim_by_force_may_end_any_session_even_if_its_answer_is_lost() -> None:
    grant = call("anna", Action.CLAIM, 0.0, 0.5, 1, session_s=9.0)
    forced = call("ben", Action.CLAIM, 1.0, 2.0, 2, is_taking=True)
    lost = call("ben", Action.CLAIM, 1.0, 2.0, NO_GRANT, Outcome.UNKNOWN, is_taking=True)
    later = call("carla", Action.CLAIM, 3.0, 4.0, 3)

    assert rules(grant, forced) == []
    assert rules(grant, lost, later) == []
    assert rules(grant, later) == ["a session cut short"]


def test_a_claim_that_names_an_outdated_generation_is_not_granted() -> None:
    first = call("anna", Action.CLAIM, 0.0, 1.0, 5)
    stale = call("ben", Action.CLAIM, 2.0, 3.0, 6, is_stale=True)
    refused = call("ben", Action.CLAIM, 2.0, 3.0, NO_GRANT, Outcome.REFUSED, is_stale=True)

    assert rules(first, stale) == ["stale claim"]
    assert rules(first, refused) == []


def stay(
    action: Action, asked_s: float, connection: int = 1, outcome: Outcome = Outcome.DONE
) -> OwnershipCall:
    """A call of the owner, whose session is three seconds."""
    return call("anna", action, asked_s, asked_s + 0.1, 1, outcome, session_s=3.0, connection=connection)


def intrusion(asked_s: float, answered_s: float, outcome: Outcome = Outcome.DONE) -> OwnershipCall:
    return call("stranger", Action.INTRUDE, asked_s, answered_s, NO_GRANT, outcome)


CLAIM, RENEWALS = stay(Action.CLAIM, 0.0), (stay(Action.RENEW, 2.0), stay(Action.RENEW, 4.0))


def test_nobody_else_writes_or_reads_during_the_stay_of_an_owner() -> None:
    assert rules(CLAIM, *RENEWALS, intrusion(1.0, 3.5)) == ["intruder"]
    assert rules(CLAIM, *RENEWALS, intrusion(1.0, 3.5, Outcome.REFUSED)) == []


@pytest.mark.parametrize(("asked_s", "answered_s"), [(0.05, 1.0), (3.5, 4.05), (5.0, 6.0)])
def test_what_overlaps_the_ends_of_a_stay_may_have_come_before_or_after_it(
    asked_s: float, answered_s: float
) -> None:
    assert rules(CLAIM, *RENEWALS, intrusion(asked_s, answered_s)) == []


@pytest.mark.parametrize(
    "between",
    [
        (),
        (stay(Action.RENEW, 2.0, connection=2),),
        (stay(Action.RESUME, 2.0),),
        (stay(Action.RENEW, 2.0, outcome=Outcome.UNKNOWN),),
    ],
    ids=["silent for a session", "on another connection", "resumed", "without an answer"],
)
def test_an_owner_that_may_have_been_detached_in_between_did_not_stay(
    between: tuple[OwnershipCall, ...],
) -> None:
    assert rules(CLAIM, *between, stay(Action.RENEW, 4.0), intrusion(1.0, 1.5)) == []


def test_a_read_at_another_broker_than_the_owners_is_no_intrusion() -> None:
    here = [replace(each, broker=1) for each in (CLAIM, *RENEWALS)]

    assert rules(*here, replace(intrusion(1.0, 3.5), broker=1)) == ["intruder"]
    assert rules(*here, replace(intrusion(1.0, 3.5), broker=2)) == []


def test_an_intruder_confirms_no_ownership() -> None:
    assert rules(intrusion(0.0, 1.0), call("ben", Action.INTRUDE, 2.0, 3.0, NO_GRANT)) == []
