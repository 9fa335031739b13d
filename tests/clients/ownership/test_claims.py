"""Claims of several resources by one owner: all or none are granted, and they are renewed together."""

from __future__ import annotations

import pytest

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.claim_requests import ProducerAccessDialect
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource
from holdfast_log.protocol.errors import ErrorCode, OwnershipRefusedError
from holdfast_log.protocol.messages.ownership import OwnRequest, ReleaseRequest, RenewRequest, ResumeRequest
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode, ProducerAccessRequest
from tests.clients.ownership.claim_world import (
    LOG,
    OTHER,
    SESSION_MS,
    THIRD,
    World,
    claims_of,
    named_in,
    standing,
)


def two_brokers(wait_ms: int = 0) -> World:
    """Three partitions; another broker leads the one in the middle."""
    world = World(LOG, OTHER, THIRD, wait_ms=wait_ms)
    world.lines.leaders[OTHER] = 2
    world.lines.connect(2)
    return world


def test_resources_of_one_broker_are_claimed_by_one_request_in_ascending_order() -> None:
    """ "Issuing this request will attempt to claim ownership of a given set of topic/partitions" (own
    API): granted all or none."""
    world = World(THIRD, LOG, OTHER)

    claim = world.call()

    assert isinstance(claim.request, OwnRequest) and claim.request.wait_timeout_ms == 0
    assert named_in(claim) == [LOG, OTHER, THIRD]
    world.answer_all(claim, *(standing(each, generation=1, incarnation=7) for each in named_in(claim)))
    assert world.claims.is_held
    assert world.states() == [ClaimState.HELD] * 3


def test_resources_of_several_brokers_are_claimed_one_broker_after_the_other() -> None:
    world = two_brokers()
    first = world.call()
    assert (first.node, named_in(first)) == (1, [LOG, THIRD])
    world.answer_all(first, *(standing(each, generation=1, incarnation=7) for each in named_in(first)))
    assert not world.claims.is_held

    second = world.call()

    assert (second.node, named_in(second)) == (2, [OTHER])
    world.answer(second, generation=1, incarnation=7)
    assert world.claims.is_held


def test_nothing_is_claimed_before_it_is_known_which_brokers_decide() -> None:
    world = World(LOG, "z-leader")
    world.find_coordinator(1)
    assert named_in(world.call()) == [LOG, "z-leader"]


def test_nothing_is_claimed_while_a_partition_has_no_leader() -> None:
    world = World(LOG, OTHER)
    world.lines.leaders[OTHER] = NO_NODE
    assert world.calls() == []
    world.lines.leaders[OTHER] = 1
    assert named_in(world.call()) == [LOG, OTHER]


def test_a_refused_request_leaves_nothing_to_release() -> None:
    world = World(LOG, OTHER)

    world.answer_all(
        world.call(),
        standing(LOG, ErrorCode.OPERATION_NOT_ATTEMPTED),
        standing(OTHER, ErrorCode.RESOURCE_OWNED, generation=4, owner_id="ben"),
    )

    assert isinstance(world.claims.error, OwnershipRefusedError)
    assert world.states() == [ClaimState.RELEASED, ClaimState.REFUSED]
    assert world.claims.has_ended and world.calls() == []


def test_a_refusal_releases_what_other_brokers_have_granted() -> None:
    world = two_brokers()
    world.grant()
    world.answer(world.call(), ErrorCode.RESOURCE_OWNED)

    release = world.call()

    assert isinstance(release.request, ReleaseRequest)
    assert (release.node, named_in(release)) == (1, [LOG, THIRD])
    world.answer_all(release, standing(LOG), standing(THIRD))
    assert world.claims.has_ended


def test_a_claim_sent_to_the_wrong_broker_is_sent_again_whole() -> None:
    world = World(LOG, OTHER)
    world.answer_all(
        world.call(),
        standing(LOG, ErrorCode.OPERATION_NOT_ATTEMPTED),
        standing(OTHER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    )
    assert world.calls() == [] and world.next_event_ms() == world.now_ms + 100
    world.now_ms += 100
    assert named_in(world.call()) == [LOG, OTHER]


def test_resources_of_one_broker_share_a_renewal_and_a_resumption() -> None:
    world = World(LOG, OTHER)
    world.grant()
    world.now_ms += SESSION_MS // 3
    renewal = world.call()
    assert isinstance(renewal.request, RenewRequest) and named_in(renewal) == [LOG, OTHER]

    world.lines.connect(1)

    resume = world.call()
    assert isinstance(resume.request, ResumeRequest) and named_in(resume) == [LOG, OTHER]
    world.answer_all(
        resume, standing(LOG, generation=1, incarnation=7), standing(OTHER, ErrorCode.OWNERSHIP_FENCED)
    )
    states = [claim.state for claim in world.claims.by_resource.values()]
    assert states == [ClaimState.HELD, ClaimState.LOST]


def test_a_resource_missing_in_a_response_is_an_unknown_server_error() -> None:
    world = World(LOG, OTHER)
    world.answer_all(world.call(), standing(LOG, generation=1, incarnation=7))
    assert getattr(world.claims.error, "code", None) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "log-1" in str(world.claims.error)


def test_more_resources_than_one_request_may_name_are_claimed_by_several() -> None:
    world = World(*(f"name-{number:03}" for number in range(150)))
    world.find_coordinator(1)
    counts = []
    for _ in range(2):
        claim = next(call for call in world.calls() if isinstance(call.request, OwnRequest))
        counts.append(len(named_in(claim)))
        world.answer_all(claim, *(standing(each, generation=1, incarnation=7) for each in named_in(claim)))
    assert counts == [100, 50] and world.claims.is_held


class TestWaiting:
    def test_free_resources_are_claimed_without_the_queue(self) -> None:
        world = World(LOG, OTHER, wait_ms=FOR_EVER)
        claim = world.call()
        assert isinstance(claim.request, OwnRequest) and claim.request.wait_timeout_ms == 0
        assert named_in(claim) == [LOG, OTHER]

    def test_a_queued_claim_holds_only_resources_before_its_own(self) -> None:
        world = World(LOG, OTHER, THIRD, wait_ms=FOR_EVER)
        world.answer_all(
            world.call(),
            standing(LOG, ErrorCode.OPERATION_NOT_ATTEMPTED),
            standing(OTHER, ErrorCode.RESOURCE_OWNED, owner_id="ben"),
            standing(THIRD, ErrorCode.OPERATION_NOT_ATTEMPTED),
        )
        first = world.call()
        assert named_in(first) == [LOG]
        world.answer(first, generation=1, incarnation=7)
        second = world.call()
        assert isinstance(second.request, OwnRequest) and second.request.wait_timeout_ms == FOR_EVER
        assert named_in(second) == [OTHER]
        world.answer(second, ErrorCode.CLAIM_QUEUED, position=1)
        renewal = world.call()
        assert isinstance(renewal.request, RenewRequest) and named_in(renewal) == [LOG, OTHER]
        world.answer_all(renewal, *(standing(each, generation=1, incarnation=7) for each in (LOG, OTHER)))

        third = next(call for call in world.calls() if isinstance(call.request, OwnRequest))

        assert named_in(third) == [THIRD]
        world.answer(third, generation=1, incarnation=7)
        assert world.claims.is_held

    def test_resources_are_granted_in_ascending_order_even_if_a_broker_decides_about_later_ones(self) -> None:
        """Otherwise two owners that wait for the same resources could wait for each other."""
        world = two_brokers(wait_ms=FOR_EVER)
        claimed: list[list[OwnedResource]] = []
        while not world.claims.is_held:
            (claim,) = (call for call in world.calls() if isinstance(call.request, OwnRequest))
            claimed += [named_in(claim)]
            world.answer(claim, generation=1, incarnation=7)
        assert claimed == [[LOG], [OTHER], [THIRD]]

    def test_a_release_interrupts_a_renewal_that_the_broker_holds_back(self) -> None:
        """A broker answers the requests of a connection in order."""
        world = World(LOG, OTHER, THIRD, wait_ms=FOR_EVER)
        for partition in (OTHER, THIRD):
            world.lines.leaders[partition] = 2
        world.lines.connect(2)
        world.answer(world.call(), generation=1, incarnation=7)
        claim = next(call for call in world.calls() if isinstance(call.request, OwnRequest))
        world.answer_all(claim, *(standing(each, ErrorCode.RESOURCE_OWNED) for each in (OTHER, THIRD)))
        world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
        waiting = world.call()
        assert isinstance(waiting.request, RenewRequest) and waiting.request.max_wait_ms > 0

        world.claims.release()

        calls = world.calls()
        assert [(call.node, type(call.request)) for call in calls] == [
            (1, ReleaseRequest), (2, RenewRequest), (2, ReleaseRequest)
        ]  # fmt: skip
        assert isinstance(calls[1].request, RenewRequest) and calls[1].request.max_wait_ms == 0
        world.answer(waiting, ErrorCode.CLAIM_QUEUED, position=1)
        world.answer(calls[1], ErrorCode.REQUEST_TIMED_OUT)
        for call in calls[::2]:
            world.answer(call)
        assert world.claims.has_ended

    def test_the_wait_limit_is_for_all_resources_together(self) -> None:
        world = two_brokers(wait_ms=500)
        world.answer(world.call(), ErrorCode.CLAIM_QUEUED, position=1)
        world.now_ms += 400
        world.answer(world.call(), generation=1, incarnation=7)

        requests = [call.request for call in world.calls()]

        waits = [request.wait_timeout_ms for request in requests if isinstance(request, OwnRequest)]
        assert waits == [100]


def test_a_claim_that_names_a_generation_does_not_wait() -> None:
    """The queue is only for claims that do not take a resource from its owner."""
    world = World(generation=4, wait_ms=FOR_EVER)
    claim = world.call()
    assert isinstance(claim.request, OwnRequest) and claim.request.wait_timeout_ms == 0


def test_producer_access_is_claimed_one_partition_at_a_time() -> None:
    dialect = ProducerAccessDialect("anna", SESSION_MS, ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
    world = World(OTHER, LOG, wait_ms=FOR_EVER, dialect=dialect)
    claim = world.call()
    assert isinstance(claim.request, ProducerAccessRequest)
    assert (claim.request.partition, claim.request.wait_timeout_ms) == (0, FOR_EVER)


def test_claims_without_a_resource_are_an_error() -> None:
    with pytest.raises(ValueError, match="no resource"):
        claims_of({})
