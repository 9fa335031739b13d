"""Expired waits always end in RequestTimeoutError, whether the client or the broker notices first."""

from __future__ import annotations

import pytest

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.errors import ConnectionFailedError, RequestTimeoutError
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import OwnRequest, ReleaseRequest, RenewRequest
from tests.clients.ownership.claim_world import LOG, SESSION_MS, World


def waiting(wait_ms: int) -> World:
    """A claim that the broker has queued."""
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


def test_a_wait_expires_when_the_client_s_clock_is_ahead_of_the_broker_s() -> None:
    world = waiting(500)
    renewal = world.call()
    world.now_ms += 501

    world.answer(renewal, ErrorCode.REQUEST_TIMED_OUT)

    assert_waited_in_vain(world)
    cause = world.claim.error.__cause__ if world.claim.error is not None else None
    assert isinstance(cause, BrokerError) and cause.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("left_ms", [1, 99, 100, 101])
def test_a_wait_continues_when_the_broker_s_clock_is_ahead_of_the_client_s(left_ms: int) -> None:
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


def test_a_wait_expires_without_a_leader_to_ask() -> None:
    world = World(wait_ms=500)
    world.lines.leaders[LOG] = NO_NODE
    assert world.calls() == []
    assert world.next_event_ms() == world.now_ms + 500
    world.now_ms += 500

    assert world.calls() == []

    assert_waited_in_vain(world)


def test_a_queued_claim_is_sent_again_after_a_break_for_the_rest_of_its_wait() -> None:
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


def test_a_claim_without_a_wait_limit_queues_again_after_losing_its_place() -> None:
    world = waiting(FOR_EVER)
    world.now_ms += 60_000
    world.answer(world.call(), ErrorCode.REQUEST_TIMED_OUT)
    world.now_ms += 100

    again = world.call()

    assert isinstance(again.request, OwnRequest) and again.request.wait_timeout_ms == FOR_EVER
    world.answer(again, generation=2, incarnation=9)
    assert world.claim.is_held


def test_a_released_claim_whose_wait_expired_at_the_broker_has_nothing_to_release() -> None:
    world = waiting(500)
    world.claims.release()
    release = world.call()
    assert isinstance(release.request, ReleaseRequest)
    world.answer(release, ErrorCode.OWNERSHIP_FENCED)
    look = world.call()
    assert isinstance(look.request, RenewRequest)

    world.answer(look, ErrorCode.REQUEST_TIMED_OUT)

    assert world.claim.state is ClaimState.RELEASED


def test_a_release_without_an_answer_ends_after_a_session_timeout() -> None:
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


def test_a_release_waits_until_the_grant_is_committed() -> None:
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
