"""Requests that move leadership and replicas: they reach the controller, and its results reach the client."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.alter_partition_reassignments import AlterPartitionReassignmentsHandler
from holdfast_log.broker.handlers.elect_leaders import ElectLeadersHandler
from holdfast_log.broker.handlers.list_partition_reassignments import ListPartitionReassignmentsHandler
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.cluster_rights import ClusterRights
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast_log.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast_log.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.test_administration import ask


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The lines of the audit log."""
    caplog.set_level(logging.INFO, "holdfast_log.broker.requests.audit")
    return caplog


class Controller:
    """Records requests and returns the test's results, or fails as not the controller."""

    def __init__(self, *, is_active: bool = True) -> None:
        self.is_active = is_active
        self.elections: list[tuple[Sequence[TopicPartition] | None, bool]] = []
        self.targets: dict[TopicPartition, Sequence[int] | None] = {}
        self.results: dict[TopicPartition, Any] = {}

    @property
    def service(self) -> ControllerService:
        return cast(ControllerService, self)

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None, timeout_ms: int, *, unclean: bool = False
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        self.elections.append((partitions, unclean))
        return self._done()

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
    ) -> Deferred[dict[TopicPartition, BrokerError | None]]:
        self.targets = dict(targets)
        return self._done()

    def list_reassignments(self, timeout_ms: int) -> Deferred[dict[TopicPartition, ReplicaAssignment]]:
        return self._done()

    def _done(self) -> Deferred[Any]:
        return succeed(self.results) if self.is_active else fail(BrokerError(ErrorCode.NOT_CONTROLLER))


class TestElectLeaders:
    def ask(self, controller: Controller, election_type: int, *partitions: int) -> Any:
        topics = [TopicPartitions(topic="t", partitions=list(partitions))] if partitions else None
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)
        return ask(ElectLeadersHandler(controller.service, ClusterRights(), LongAnswers(Clock())), request)

    def test_an_election_returns_a_result_for_each_partition(self) -> None:
        controller = Controller()
        controller.results = {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
        response = self.ask(controller, 0, 0, 1)
        assert response.error_code == ErrorCode.NONE
        (topic,) = response.replica_election_results
        rows = [(row.partition_id, row.error_code, bool(row.error_message)) for row in topic.partition_result]
        assert rows == [(0, ErrorCode.NONE, False), (1, ErrorCode.ELECTION_NOT_NEEDED, True)]
        assert controller.elections == [([("t", 0), ("t", 1)], False)]

    def test_an_election_may_name_all_partitions_and_be_unclean(self) -> None:
        controller = Controller()
        self.ask(controller, 1)
        assert controller.elections == [(None, True)]

    @pytest.mark.parametrize(("election_type", "kind"), [(0, "preferred"), (1, "unclean")])
    def test_an_election_is_one_line_of_the_audit_log_with_the_partitions_that_got_a_leader(
        self, election_type: int, kind: str, audit: pytest.LogCaptureFixture
    ) -> None:
        controller = Controller()
        controller.results = {
            TopicPartition("t", 0): ErrorCode.NONE,
            TopicPartition("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            TopicPartition("t", 2): ErrorCode.NONE,
        }
        self.ask(controller, election_type)
        assert audit.messages == [f"Elected {kind} leaders of 2 partitions: ['t-0', 't-2'], by this broker"]

    def test_an_election_that_changes_nothing_is_not_logged(self, audit: pytest.LogCaptureFixture) -> None:
        controller = Controller()
        controller.results = {TopicPartition("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
        self.ask(controller, 0)
        self.ask(Controller(is_active=False), 0)
        assert audit.messages == []

    def test_an_election_of_an_unknown_type_is_refused(self) -> None:
        controller = Controller()
        assert self.ask(controller, 2, 0).error_code == ErrorCode.INVALID_REQUEST
        assert controller.elections == []

    def test_an_election_at_another_broker_fails_as_a_whole_and_for_each_partition(self) -> None:
        response = self.ask(Controller(is_active=False), 0, 0)
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        (row,) = response.replica_election_results[0].partition_result
        assert row.error_code == ErrorCode.NOT_CONTROLLER


class TestReassignments:
    def alter(self, controller: Controller, *rows: tuple[int, list[int] | None]) -> Any:
        partitions = [ReassignablePartition(partition_index=number, replicas=to) for number, to in rows]
        topics = [ReassignableTopic(name="t", partitions=partitions)]
        handler = AlterPartitionReassignmentsHandler(controller.service, ClusterRights())
        return ask(handler, AlterPartitionReassignmentsRequest(topics=topics))

    def test_moves_and_cancellations_return_their_results(self) -> None:
        controller = Controller()
        refused = BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing moves")
        controller.results = {("t", 0): None, ("t", 1): refused}
        response = self.alter(controller, (0, [2, 3]), (1, None))
        assert controller.targets == {("t", 0): [2, 3], ("t", 1): None}
        assert response.error_code == ErrorCode.NONE
        rows = [
            (row.partition_index, row.error_code, row.error_message)
            for row in response.responses[0].partitions
        ]
        assert rows == [
            (0, ErrorCode.NONE, None),
            (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing moves"),
        ]

    def test_each_partition_that_moves_or_stops_moving_is_one_line_of_the_audit_log(
        self, audit: pytest.LogCaptureFixture
    ) -> None:
        controller = Controller()
        refused = BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing moves")
        controller.results = {("t", 0): None, ("t", 1): refused, ("t", 2): None}
        self.alter(controller, (0, [2, 3]), (1, None), (2, None))
        assert audit.messages == [
            "Began to reassign t-0 to brokers [2, 3], by this broker",
            "Stopped the reassignment of t-2, by this broker",
        ]

    def test_a_reassignment_that_names_a_partition_twice_is_refused(self) -> None:
        assert self.alter(Controller(), (0, [1]), (0, [2])).error_code == ErrorCode.INVALID_REQUEST

    def test_running_reassignments_are_listed_in_the_order_in_which_they_are_named(self) -> None:
        controller = Controller()
        moves = ReplicaAssignment((2, 1), adding=(2,), removing=(1,))
        running = [("t", 4), ("u", 0), ("t", 1), ("v", 0)]
        controller.results = dict.fromkeys(running, moves)
        handler = ListPartitionReassignmentsHandler(controller.service, LongAnswers(Clock()))

        def listed(*named: tuple[str, list[int]]) -> list[tuple[str, list[int]]]:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=each) for name, each in named
            ]
            response = ask(handler, ListPartitionReassignmentsRequest(topics=topics or None))
            for topic in response.topics:
                for row in topic.partitions:
                    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([2, 1], [2], [1])
            return [(each.name, [row.partition_index for row in each.partitions]) for each in response.topics]

        assert listed(("x", [0]), ("v", [0]), ("t", [5, 1, 4, 1]), ("u", [1])) == [("v", [0]), ("t", [1, 4])]
        assert listed(("t", [4]), ("u", [0]), ("t", [1])) == [("t", [4, 1]), ("u", [0])]
        assert listed() == [("t", [4, 1]), ("u", [0]), ("v", [0])]

    def test_a_reassignment_at_another_broker_is_refused_as_not_controller(self) -> None:
        controller = Controller(is_active=False)
        assert self.alter(controller, (0, [1])).error_code == ErrorCode.NOT_CONTROLLER
        handler = ListPartitionReassignmentsHandler(controller.service, LongAnswers(Clock()))
        response = ask(handler, ListPartitionReassignmentsRequest(topics=None))
        assert response.error_code == ErrorCode.NOT_CONTROLLER
