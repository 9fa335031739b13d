"""A coordinator's reader claims reach leaders that are slow, dead or replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.groups.reader_claims import RETRY_S, ReaderClaims
from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.coordinator.groups.effects import GroupReader, ReaderClaim
from holdfast_log.coordinator.shards.effects import Decision
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.group_readers import (
    AssignReadersRequest,
    AssignReadersResponse,
    PartitionNotAssigned,
)
from holdfast_log.protocol.topic_partition import TopicPartition

TIMEOUT_MS = 1_000


class World:
    """Partitions t-0 and t-1 with leaders 1 and 2, who answer when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.leaders: dict[int, int | None] = {0: 1, 1: 2}
        self.sent: list[tuple[int, AssignReadersRequest, Deferred[Any]]] = []
        self.claims = ReaderClaims(
            self.clock, lambda topic, index: self.leaders.get(index), self.send, TIMEOUT_MS
        )

    def send(self, broker_id: int, request: Any, timeout_ms: int | None = None) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.sent.append((broker_id, request, done))
        return done

    def claim(self, *partitions: int, member: str = "m", generation: int = 1, offset: int = 10) -> list[bool]:
        """Claim partitions. The returned list gets an element once the claims have ended."""
        told: list[bool] = []
        claims = [
            ReaderClaim("g", GroupReader(member), generation, TopicPartition("t", index))
            for index in partitions
        ]
        self.claims.claim(claims, Decision(0, offset)).addCallback(lambda _: told.append(True))
        return told

    @property
    def asked(self) -> list[tuple[int, list[tuple[str, int]]]]:
        """The requests by leader, as (member, partition)."""
        return [
            (
                broker_id,
                [
                    (row.member_id, index)
                    for row in request.readers
                    for topic in row.topics
                    for index in topic.partitions
                ],
            )
            for broker_id, request, _ in self.sent
        ]

    def answer(self, number: int, refused: Sequence[PartitionNotAssigned] = ()) -> None:
        self.sent[number][2].callback(AssignReadersResponse(error_code=0, refused=list(refused)))

    def fail(self, number: int) -> None:
        self.sent[number][2].errback(ChannelLost("gone"))


@pytest.fixture
def world() -> World:
    return World()


def refusal(index: int, code: ErrorCode) -> PartitionNotAssigned:
    return PartitionNotAssigned(group="g", topic="t", partition=index, error_code=code)


def test_each_leader_gets_all_its_claims_in_one_request(world: World) -> None:
    world.leaders = {0: 1, 1: 2, 2: 1}
    told = world.claim(0, 1, 2)
    assert world.asked == [(1, [("m", 0), ("m", 2)]), (2, [("m", 1)])]
    world.answer(0)
    assert told == []
    world.answer(1)
    assert told == [True]
    assert world.claims.pending == 0


def test_claims_made_during_a_request_go_in_the_next_one(world: World) -> None:
    world.leaders = {0: 1, 1: 1, 2: 1}
    world.claim(0)
    world.claim(1)
    world.claim(2)
    assert len(world.sent) == 1
    world.answer(0)
    assert world.asked[1] == (1, [("m", 1), ("m", 2)])


def test_an_unreachable_leader_delays_members_for_a_limited_time(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    told = world.claim(0, 1)
    world.answer(0)
    world.fail(1)
    world.clock.advance(TIMEOUT_MS / 1000)
    assert told == [True]
    assert "The leaders of 1 partitions have not accepted their reader claims in time" in caplog.text
    assert "t-1 for g (broker 2: " in caplog.text and "gone" in caplog.text
    assert world.claims.pending == 1, "it is told once it can be"
    assert [leader for leader, _ in world.asked[2:]] == [2]

    world.answer(-1)

    assert world.claims.pending == 0


def test_a_failed_claim_is_retried_after_a_pause(world: World) -> None:
    world.claim(0)
    world.answer(0, [refusal(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    assert len(world.sent) == 1
    world.clock.advance(RETRY_S)
    assert len(world.sent) == 2


def test_the_next_leader_gets_a_claim_that_the_last_one_has_not_answered(world: World) -> None:
    told = world.claim(0)
    world.leaders[0] = 2
    world.clock.advance(RETRY_S)
    assert world.asked == [(1, [("m", 0)]), (2, [("m", 0)])]
    world.fail(0)
    assert told == []
    world.answer(1)
    assert told == [True]


def test_a_claim_without_a_leader_is_sent_to_the_next_leader(world: World) -> None:
    world.leaders[0] = -1
    told = world.claim(0)
    assert world.sent == []
    world.leaders[0] = 3
    world.clock.advance(RETRY_S)
    world.answer(0)
    assert told == [True]


def test_a_claim_of_a_deleted_partition_ends(world: World) -> None:
    world.leaders[0] = None
    assert world.claim(0) == [True]
    assert world.claims.pending == 0


def test_a_later_decision_replaces_a_claim_not_yet_sent(world: World) -> None:
    first = world.claim(0, 1, member="a", offset=10)
    second = world.claim(0, member="b", generation=2, offset=11)
    assert first == [], "t-1 is its own still"
    world.answer(0)
    assert second == [], "that was the answer to the first"
    world.answer(2)
    assert second == [True]
    assert world.asked[2] == (1, [("b", 0)])
    world.answer(1)
    assert first == [True]


def test_a_claim_refused_as_outdated_is_not_repeated(world: World) -> None:
    told = world.claim(0)
    world.answer(0, [refusal(0, ErrorCode.STALE_GENERATION)])
    assert told == [True]
    assert world.claims.pending == 0


def test_after_closing_no_claim_is_sent(world: World) -> None:
    told = world.claim(0)
    world.claims.close()
    assert told == [True]
    world.fail(0)
    world.clock.advance(60)
    assert len(world.sent) == 1
    assert world.clock.getDelayedCalls() == []
