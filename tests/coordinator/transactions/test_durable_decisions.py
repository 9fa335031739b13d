"""Nothing depends on a decision about a transaction before all in-sync replicas have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.effects import Decision
from holdfast_log.coordinator.shards.hosted_shard import HostedShard
from holdfast_log.coordinator.transactions.effects import MarkersToWrite
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.settings import TransactionSettings
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.groups.test_hosted_shard import FakeLog
from tests.coordinator.transactions.world import A0, ID, TIMEOUT_MS


class Markers:
    """The markers that were claimed."""

    def __init__(self) -> None:
        self.claimed: list[MarkersToWrite] = []

    def claim(self, claims: Sequence[MarkersToWrite], decision: Decision) -> Deferred[None]:
        self.claimed += claims
        return succeed(None)

    def close(self) -> None:
        pass


class Hosted:
    """A shard of transactions on a log whose commits the test controls."""

    def __init__(self) -> None:
        clock = Clock()
        self.log, self.markers = FakeLog(), Markers()
        self.hosted: HostedShard[TransactionShard] = HostedShard(
            "transactions-0",
            TransactionShard(TransactionSettings()),
            self.log,
            clock,
            lambda: int(clock.seconds() * 1000),
            commit_timeout_ms=5_000,
            repeated_log=RepeatedLog(clock),
            claimer=self.markers,
        )
        self.hosted.load()
        self.log.reading.callback(None)

    def ask(self, event: Any) -> list[Any]:
        """The answer so far."""
        done: Deferred[Any] = Deferred()
        outcomes: list[Any] = []
        done.addCallbacks(outcomes.append, lambda failure: outcomes.append(failure.value.code))
        self.hosted.ask(event, done)
        return outcomes

    def begin(self) -> ProducerName:
        self.ask(
            lambda shard, waiting, now: shard.init_producer_id(
                waiting, ID, TIMEOUT_MS, now_ms=now, new_producer_id=7
            )
        )
        producer = ProducerName(7, 0)
        (added,) = self.ask(
            lambda shard, waiting, now: shard.add_partitions(waiting, ID, producer, (A0,), now_ms=now)
        )
        assert added.error is ErrorCode.NONE
        return producer

    def end(self, producer: ProducerName, is_commit: bool = True) -> list[Any]:
        return self.ask(
            lambda shard, waiting, now: shard.end(waiting, ID, producer, is_commit=is_commit, now_ms=now)
        )


def test_no_marker_is_sent_before_the_decision_is_committed() -> None:
    for is_commit in (True, False):
        world = Hosted()
        producer = world.begin()
        world.log.commits_at_once = False
        answered = world.end(producer, is_commit)
        assert not world.markers.claimed
        assert not answered, "the producer waits as well"
        world.log.commit()
        (markers,) = world.markers.claimed
        assert markers.is_commit is is_commit
        assert markers.partitions == {A0}
        assert answered[0].error is ErrorCode.NONE


def test_a_state_is_described_only_once_it_is_committed() -> None:
    world = Hosted()
    producer = world.begin()
    world.log.commits_at_once = False
    world.end(producer)
    described = world.ask(lambda shard, waiting, now: shard.describe(waiting, ID))
    assert not described
    world.log.commit()
    assert described[0].transaction.state.is_ending


def test_a_decision_that_the_log_refuses_writes_no_marker() -> None:
    world = Hosted()
    producer = world.begin()
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    (refused,) = world.end(producer)
    assert ErrorCode.NONE not in (refused, getattr(refused, "error", None))
    assert not world.markers.claimed
    world.log.error = None
    (answer,) = world.end(producer)
    assert answer.error is ErrorCode.NONE
    assert len(world.markers.claimed) == 1
