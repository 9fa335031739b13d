"""A leader's proposals of in-sync sets to the controller: batching, retries and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.replication.isr_proposals import PROPOSED_TOGETHER, IsrProposals
from holdfast_log.broker.replication.leadership import IsrProposal
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tests.models.orders import TOPIC_ID, partition_metadata, update_metadata


class Controller:
    """A controller whose answers the test releases."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.answers: list[Deferred[AlterPartitionResponse]] = []

    def send(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        self.asked.append(request)
        self.answers.append(Deferred())
        return self.answers[-1]

    def answer(self, error: int = 0, partition_error: int = 0) -> None:
        request = self.asked[-1]
        partitions = [
            AlteredPartition(
                partition_index=partition.partition_index,
                error_code=partition_error,
                leader_id=1,
                leader_epoch=partition.leader_epoch,
                isr=[member.broker_id for member in partition.new_isr_with_epochs],
                partition_epoch=partition.partition_epoch + 1,
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        topics = [] if error else [AlteredTopic(topic_id=TOPIC_ID, partitions=partitions)]
        self.answers[-1].callback(AlterPartitionResponse(throttle_time_ms=0, error_code=error, topics=topics))


class Outcome:
    def __init__(self) -> None:
        self.settled: list[tuple[int, tuple[int, ...], int]] = []
        self.withdrawn: list[int] = []
        self.pending: dict[int, tuple[int, ...]] = {}
        """The in-sync set that each partition proposed last."""
        self.decided: set[int] = set()
        """Partitions whose pending proposals a LeaderAndIsr or StopReplica request has decided."""

    def is_isr_pending(self, proposal: IsrProposal) -> bool:
        is_decided = proposal.partition in self.decided
        return not is_decided and self.pending[proposal.partition] == proposal.isr

    def settle_isr(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        isr: Sequence[int],
        partition_epoch: int,
        eligible: Sequence[int],
    ) -> None:
        self.settled.append((proposal.partition, tuple(isr), partition_epoch))

    def withdraw_isr(self, proposal: IsrProposal) -> None:
        self.withdrawn.append(proposal.partition)


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.controller = Controller()
        self.outcome = Outcome()
        metadata = MetadataCache()
        metadata.update(update_metadata(states=[partition_metadata(leader_epoch=2)]))
        self.proposals = IsrProposals(1, self.clock, metadata, lambda: 77, self.controller.send)
        self.proposals.add_listener(self.outcome)

    def propose(self, partition: int, *isr: int) -> None:
        self.outcome.pending[partition] = isr
        self.proposals.propose(IsrProposal("t", partition, 2, 5, isr, tuple(900 + member for member in isr)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_proposals_of_one_reactor_turn_share_one_request(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.propose(1, 1)
    scene.clock.advance(0)
    (request,) = scene.controller.asked
    assert (request.broker_id, request.broker_epoch) == (1, 77)
    assert [partition.partition_index for partition in request.topics[0].partitions] == [0, 1]
    members = request.topics[0].partitions[0].new_isr_with_epochs
    assert [(member.broker_id, member.broker_epoch) for member in members] == [(1, 901), (2, 902)]
    scene.controller.answer()
    assert scene.outcome.settled == [(0, (1, 2), 6), (1, (1,), 6)]


def test_proposals_made_during_a_request_are_sent_in_the_next_request(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.propose(1, 1)
    scene.clock.advance(1)
    assert len(scene.controller.asked) == 1
    scene.controller.answer()
    scene.clock.advance(0)
    assert len(scene.controller.asked) == 2


def test_many_proposals_are_sent_some_at_a_time(scene: Scene) -> None:
    count = 2 * PROPOSED_TOGETHER + 7
    for partition in range(count):
        scene.propose(partition, 1)
    scene.clock.advance(0)
    scene.outcome.decided.update(range(PROPOSED_TOGETHER, 2 * PROPOSED_TOGETHER))
    sizes = []
    for _ in range(2):
        sizes.append(len(scene.controller.asked[-1].topics[0].partitions))
        scene.controller.answer()
        scene.clock.pump([0, 0])
    assert sizes == [PROPOSED_TOGETHER, 7] and len(scene.controller.asked) == 2
    settled = [partition for partition, *_ in scene.outcome.settled]
    assert settled == [*range(PROPOSED_TOGETHER), *range(2 * PROPOSED_TOGETHER, count)]


def test_refused_proposals_do_not_hold_up_the_others(scene: Scene) -> None:
    for partition in range(PROPOSED_TOGETHER + 1):
        scene.propose(partition, 1)
    scene.clock.advance(0)
    scene.controller.answers[-1].errback(ChannelLost("the controller went away"))
    seen: set[int] = set()
    for _ in range(2):
        scene.clock.advance(0.05)
        partitions = scene.controller.asked[-1].topics[0].partitions
        assert len(partitions) <= PROPOSED_TOGETHER
        seen.update(each.partition_index for each in partitions)
        scene.controller.answer()
    assert seen == set(range(PROPOSED_TOGETHER + 1))


def test_a_request_without_a_response_is_repeated(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.controller.answers[-1].errback(ChannelLost("the controller went away"))
    assert scene.outcome.settled == []
    scene.clock.advance(0.05)
    scene.controller.answer()
    assert scene.outcome.settled == [(0, (1, 2), 6)]


def test_a_refusal_by_a_broker_that_is_not_the_controller_is_retried(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.controller.answer(error=ErrorCode.NOT_CONTROLLER)
    scene.clock.advance(0.05)
    assert len(scene.controller.asked) == 2
    assert scene.outcome.withdrawn == []


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_was_certainly_not_written_is_withdrawn(scene: Scene, error: ErrorCode) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.controller.answer(partition_error=error)
    assert scene.outcome.withdrawn == [0]
    scene.clock.advance(1)
    assert len(scene.controller.asked) == 1


def test_a_proposal_with_an_outdated_version_is_sent_again_because_its_first_copy_may_be_written(
    scene: Scene,
) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.controller.answer(partition_error=ErrorCode.INVALID_UPDATE_VERSION)
    scene.clock.advance(0.05)
    assert len(scene.controller.asked) == 2
    scene.controller.answer()
    assert scene.outcome.withdrawn == []
    assert scene.outcome.settled == [(0, (1, 2), 6)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_proposal_that_an_error_does_not_decide_stays_pending_and_is_sent_once_a_second(
    scene: Scene, error: ErrorCode
) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    for times in (1, 2):
        scene.controller.answer(partition_error=error)
        scene.clock.advance(0.9)
        assert len(scene.controller.asked) == times
        scene.clock.advance(0.1)
        scene.clock.advance(0)
        assert len(scene.controller.asked) == times + 1
    assert scene.outcome.withdrawn == []


def test_a_proposal_that_was_decided_meanwhile_is_not_sent_again(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.propose(1, 1, 2)
    scene.clock.advance(0)
    scene.outcome.decided.add(0)
    scene.controller.answers[-1].errback(ChannelLost("the controller went away"))
    scene.clock.advance(0.05)
    assert [row.partition_index for row in scene.controller.asked[-1].topics[0].partitions] == [1]
    scene.controller.answer(partition_error=ErrorCode.FENCED_LEADER_EPOCH)
    scene.outcome.decided.add(1)
    scene.clock.advance(1)
    scene.clock.advance(1)
    assert len(scene.controller.asked) == 2


def test_an_undecided_proposal_does_not_replace_a_later_one_whose_request_fails(scene: Scene) -> None:
    """The later one would never be sent again, and so stay pending: the in-sync set could not change."""
    scene.propose(0, 1)
    scene.clock.advance(0)
    scene.controller.answer(partition_error=ErrorCode.FENCED_LEADER_EPOCH)
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.clock.advance(1)  # The time at which the undecided proposal would be sent again.
    scene.controller.answers[-1].errback(ChannelLost("the controller stopped"))

    scene.clock.advance(0.1)

    proposed = [
        [member.broker_id for member in request.topics[0].partitions[0].new_isr_with_epochs]
        for request in scene.controller.asked
    ]
    assert proposed == [[1], [1, 2], [1, 2]]


def test_an_undecided_proposal_is_not_sent_after_the_stop(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.clock.advance(0)
    scene.controller.answer(partition_error=ErrorCode.FENCED_LEADER_EPOCH)
    scene.proposals.stop()
    scene.clock.advance(2)
    assert len(scene.controller.asked) == 1


def test_no_proposal_is_sent_after_the_stop(scene: Scene) -> None:
    scene.propose(0, 1, 2)
    scene.proposals.stop()
    scene.clock.advance(1)
    assert scene.controller.asked == []
