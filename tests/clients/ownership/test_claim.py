"""The state machine of a claim for one resource: its requests, and its reactions to the answers."""

from __future__ import annotations

from holdfast_log.clients.connection.link import Reply
from holdfast_log.clients.errors import ConnectionFailedError, UnsupportedRequestError
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError, OwnershipRefusedError
from holdfast_log.protocol.messages.ownership import (
    LossReason,
    OwnRequest,
    OwnResponse,
    ReleaseRequest,
    RenewRequest,
    ResourceStanding,
    ResumeRequest,
)
from tests.clients.ownership.claim_world import LOG, SESSION_MS, World


def test_a_held_claim_is_renewed_three_times_in_each_session_timeout() -> None:
    world = World(generation=110)
    call = world.call()
    assert isinstance(call.request, OwnRequest)
    assert call.request.resources[0].generation == 110

    world.answer(call, generation=110, incarnation=7, fence_offset=40)

    assert world.claim.is_held and world.claim.grant is not None
    assert world.claim.grant.fence_offset == 40
    assert world.next_event_ms() == 4000
    assert world.claims.calls(3999) == []
    world.now_ms = 4000
    renewal = world.call()
    assert isinstance(renewal.request, RenewRequest)
    assert renewal.request.resources[0].incarnation == 7
    assert world.claim.valid_until_ms == 1000 + SESSION_MS
    world.answer(renewal, generation=110, incarnation=7)
    assert world.claim.valid_until_ms == 4000 + SESSION_MS
    assert world.states() == [ClaimState.HELD]


def test_a_claim_whose_answer_was_lost_is_sent_again() -> None:
    world = World()
    world.lose(world.call(), ConnectionFailedError("cut"))
    assert world.calls() == []
    world.now_ms += 100

    world.grant()

    assert world.claim.is_held and world.lines.renewals == 1


def test_a_claim_whose_connection_broke_is_not_held_until_it_is_resumed() -> None:
    world = World()
    world.grant()
    was_held = world.claim.is_held
    world.lines.connect(1)
    assert (was_held, world.claim.is_held) == (True, False)

    resume = world.call()

    assert isinstance(resume.request, ResumeRequest)
    named = resume.request.resources[0]
    assert (named.generation, named.incarnation) == (1, 7)
    world.answer(resume, generation=1, incarnation=7, fence_offset=40)
    assert world.claim.is_held
    assert world.states() == [ClaimState.HELD, ClaimState.DETACHED, ClaimState.HELD]


def test_a_grant_on_a_connection_that_has_broken_is_resumed() -> None:
    world = World()
    call = world.call()
    response = OwnResponse(
        group="app",
        error_code=0,
        resources=[ResourceStanding(name="log", partition=0, error_code=0, generation=1, incarnation=7)],
    )
    old = world.lines.conversations[1]
    world.lines.connect(1)

    world.reply(Reply(call, response, conversation=old))

    assert not world.claim.is_held
    assert isinstance(world.call().request, ResumeRequest)


def test_a_claim_is_resumed_at_the_next_leader() -> None:
    world = World()
    world.grant()
    world.lines.leaders[LOG] = 2
    world.lines.connect(2)

    resume = world.call()

    assert resume.node == 2 and isinstance(resume.request, ResumeRequest)
    world.answer(resume, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.calls() == [] and world.lines.renewals == 1
    world.now_ms += 100
    world.answer(world.call(), generation=1, incarnation=7)
    assert world.claim.is_held


def test_a_fenced_claim_is_lost_and_sends_nothing_more() -> None:
    world = World()
    world.grant()
    world.lines.connect(1)

    world.answer(
        world.call(), ErrorCode.OWNERSHIP_FENCED, generation=2, reason=LossReason.STOLEN, owner_id="ben"
    )

    assert world.claim.state is ClaimState.LOST
    assert isinstance(world.claim.error, OwnershipFencedError)
    lost = world.claim.events[-1]
    assert (lost.reason, lost.generation, lost.owner_id) == (LossReason.STOLEN, 2, "ben")
    assert world.claims.calls(world.now_ms + 60_000) == []
    assert world.next_event_ms() is None


def test_a_refusal_names_the_owner() -> None:
    world = World()
    world.answer(world.call(), ErrorCode.RESOURCE_OWNED, generation=4, owner_id="ben")
    refused = world.claim.events[-1]
    assert (refused.state, refused.generation, refused.owner_id) == (ClaimState.REFUSED, 4, "ben")
    assert isinstance(refused.error, OwnershipRefusedError)


def test_a_queued_claim_renews_until_it_is_granted() -> None:
    world = World(wait_ms=FOR_EVER)
    claim = world.call()
    assert isinstance(claim.request, OwnRequest) and claim.request.wait_timeout_ms == -1
    world.answer(claim, ErrorCode.CLAIM_QUEUED, position=2)
    world.now_ms += 100
    renewal = world.call()
    assert isinstance(renewal.request, RenewRequest)
    assert (renewal.request.max_wait_ms, renewal.request.resources[0].incarnation) == (1000, -1)

    world.answer(renewal, ErrorCode.CLAIM_QUEUED, position=1)
    world.now_ms += 100
    world.answer(world.call(), generation=5, incarnation=9)

    assert world.states() == [ClaimState.QUEUED, ClaimState.QUEUED, ClaimState.HELD]
    assert world.claim.is_held


def test_a_queued_claim_pauses_if_the_broker_answers_renewals_at_once() -> None:
    world = World(wait_ms=FOR_EVER)
    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
    assert world.calls() == []
    assert world.next_event_ms() == world.now_ms + 100
    world.now_ms += 100

    renewal = world.call()

    world.now_ms += 1000
    world.answer(renewal, ErrorCode.CLAIM_QUEUED, position=1)
    assert world.next_event_ms() == world.now_ms


def test_a_claim_that_timed_out_at_the_broker_is_renewed() -> None:
    world = World()
    world.answer(world.call(), ErrorCode.REQUEST_TIMED_OUT)
    world.now_ms += 100
    renewal = world.call()
    assert isinstance(renewal.request, RenewRequest)
    world.answer(renewal, generation=1, incarnation=7)
    assert world.claim.is_held


def test_a_release_does_not_wait_for_the_answer_to_a_renewal() -> None:
    world = World()
    world.grant()
    world.now_ms += 3000
    renewal = world.call()

    world.claims.release()

    release = world.call()
    assert isinstance(release.request, ReleaseRequest)
    assert release.request.resources[0].incarnation == 7
    world.answer(renewal, ErrorCode.OWNERSHIP_FENCED, reason=LossReason.RELEASED)
    world.answer(release)
    assert world.claim.state is ClaimState.RELEASED


def test_a_release_waits_for_the_answer_to_the_claim() -> None:
    world = World()
    claim = world.call()
    world.claims.release()
    assert world.calls() == []
    world.answer(claim, generation=1, incarnation=7)

    release = world.call()

    assert isinstance(release.request, ReleaseRequest)
    assert release.request.resources[0].incarnation == 7


def test_a_claim_granted_while_its_release_is_under_way_is_released() -> None:
    world = World(wait_ms=FOR_EVER)
    world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
    world.claims.release()
    world.answer(world.call(), ErrorCode.OWNERSHIP_FENCED)
    look = world.call()
    assert isinstance(look.request, RenewRequest)
    world.answer(look, generation=2, incarnation=9)

    release = world.call()

    assert isinstance(release.request, ReleaseRequest)
    assert release.request.resources[0].incarnation == 9
    world.answer(release)
    assert world.claim.state is ClaimState.RELEASED


def test_a_claim_is_refused_if_the_broker_does_not_know_the_request() -> None:
    world = World()
    world.lose(world.call(), UnsupportedRequestError("Own"))
    assert world.claim.state is ClaimState.REFUSED


def test_a_doubted_claim_is_resumed() -> None:
    world = World()
    world.grant()
    world.claim.doubt()
    assert not world.claim.is_held
    assert isinstance(world.call().request, ResumeRequest)


def test_a_name_is_claimed_at_the_coordinator_even_after_it_moved() -> None:
    world = World("leader")
    world.find_coordinator(1)
    claim = world.call()
    assert claim.node == 1
    world.answer(claim, ErrorCode.NOT_COORDINATOR)
    world.now_ms += 200
    world.find_coordinator(2)
    world.lines.connect(2)

    claim = world.call()

    assert claim.node == 2
    world.answer(claim, generation=1, incarnation=7)
    assert world.claim.is_held
