"""Waits that are over, whoever notices first: they come out as RequestTimeoutError, and as nothing else."""

from __future__ import annotations

import pytest

from clients.connection.metadata import NO_NODE
from clients.errors import ConnectionFailedError, RequestTimeoutError
from clients.ownership.claim import FOR_EVER
from clients.ownership.events import ClaimState
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import OwnRequest, ReleaseRequest, RenewRequest
from tests.clients.ownership.claim_world import LOG, SESSION_MS, World


def waiting(wait_ms: int) -> World:
    """One that has been put in the queue."""
    world = World(wait_ms=wait_ms)
    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
    return world


def assert_waited_in_vain(world: World) -> None:
    claim = world.claim
    assert claim.state is ClaimState.REFUSED
    assert isinstance(claim.error, RequestTimeoutError)
    assert "log-0" in str(claim.error) and "500 ms" in str(claim.error)
    assert claim.events[-1].error is claim.error
    assert world.claims.calls(world.now_ms + 60_000) == []


def test_the_server_notices_after_the_client() -> None:
    world = waiting(500)
    renewal = world.call()
    world.now_ms += 501

    world.answer(renewal, ErrorCode.REQUEST_TIMED_OUT)

    assert_waited_in_vain(world)
    cause = world.claim.error.__cause__ if world.claim.error is not None else None
    assert isinstance(cause, BrokerError) and cause.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("left_ms", [1, 99, 100, 101])
def test_the_server_notices_before_the_client(left_ms: int) -> None:
    world = waiting(500)
    renewal = world.call()
    world.now_ms += 500 - left_ms
    world.answer(renewal, ErrorCode.REQUEST_TIMED_OUT)
    assert world.claim.state is ClaimState.CLAIMING and world.calls() == []

    due_ms = world.next_event_ms()

    assert due_ms == world.now_ms + min(left_ms, 100)
    world.now_ms = due_ms
    for call in world.calls():
        assert isinstance(call.request, OwnRequest) and call.request.wait_timeout_ms == left_ms - 100
        world.answer(call, ErrorCode.CLAIM_QUEUED, position=1)
        renewal = world.call()
        world.now_ms += 2
        world.answer(renewal, ErrorCode.REQUEST_TIMED_OUT)
    assert_waited_in_vain(world)


def test_nobody_can_be_asked_till_the_wait_is_over() -> None:
    world = World(wait_ms=500)
    world.lines.leaders[LOG] = NO_NODE
    assert world.calls() == []
    assert world.next_event_ms() == world.now_ms + 500
    world.now_ms += 500

    assert world.calls() == []

    assert_waited_in_vain(world)


def test_one_that_waits_claims_anew_on_another_connection_for_the_rest_of_its_time() -> None:
    world = waiting(500)
    world.lines.connect(1)
    world.now_ms += 200
    again = world.call()
    assert isinstance(again.request, OwnRequest) and again.request.wait_timeout_ms == 300
    cut = ConnectionFailedError("cut")
    world.lose(again, cut)
    world.now_ms += 300

    assert world.calls() == []

    assert_waited_in_vain(world)
    assert world.claim.error is not None and world.claim.error.__cause__ is cut


def test_one_that_waits_for_ever_is_not_put_off_by_losing_its_place() -> None:
    world = waiting(FOR_EVER)
    world.now_ms += 60_000
    world.answer(world.call(), ErrorCode.REQUEST_TIMED_OUT)
    world.now_ms += 100

    again = world.call()

    assert isinstance(again.request, OwnRequest) and again.request.wait_timeout_ms == FOR_EVER
    world.answer(again, generation=2, incarnation=9)
    assert world.claim.is_held


def test_a_claim_that_is_given_up_when_its_wait_is_over_too_has_nothing_to_release() -> None:
    world = waiting(500)
    world.claims.release()
    release = world.call()
    assert isinstance(release.request, ReleaseRequest)
    world.answer(release, ErrorCode.OWNERSHIP_FENCED)
    look = world.call()
    assert isinstance(look.request, RenewRequest)

    world.answer(look, ErrorCode.REQUEST_TIMED_OUT)

    assert world.claim.state is ClaimState.RELEASED


def test_what_nobody_takes_back_is_given_up_when_the_session_is_over() -> None:
    world = World()
    world.grant()
    world.claims.release()
    cut = ConnectionFailedError("cut")
    world.lose(world.call(), cut)
    while not world.claims.has_ended:
        assert world.now_ms < 1000 + SESSION_MS
        due_ms = world.next_event_ms()
        assert due_ms is not None
        world.now_ms = due_ms
        for call in world.calls():
            assert isinstance(call.request, ReleaseRequest)
            world.lose(call, cut)
    assert world.now_ms >= 1000 + SESSION_MS
    assert world.claim.state is ClaimState.RELEASED


def test_one_that_is_promoted_before_all_is_committed_is_released_without_haste() -> None:
    world = waiting(FOR_EVER)
    world.claims.release()
    world.answer(world.call(), ErrorCode.OWNERSHIP_FENCED)

    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=0)

    assert world.calls() == []
    world.now_ms += 100
    world.answer(world.call(), generation=2, incarnation=9)
    release = world.call()
    assert isinstance(release.request, ReleaseRequest)
    assert release.request.resources[0].incarnation == 9
