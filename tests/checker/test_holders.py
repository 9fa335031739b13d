"""At most one confirmed owner at a time: which histories violate it, and which only look as if they did."""

from __future__ import annotations

from holdfast_log.checker.calls import NO_GRANT, Action, Outcome, OwnershipCall
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
) -> OwnershipCall:
    return OwnershipCall(
        client, resource, action, asked_s, answered_s, outcome, grant, session_s, is_taking=is_taking
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
