"""Administrators' requests: the refusals of the handlers, and the answers of the controller."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.create_partitions import CreatePartitionsHandler
from holdfast_log.broker.handlers.create_topics import CreateTopicsHandler
from holdfast_log.broker.handlers.delete_topics import DeleteTopicsHandler, TopicDeletionSettings
from holdfast_log.broker.handlers.describe_cluster import DescribeClusterHandler
from holdfast_log.broker.handlers.init_producer_id import InitProducerIdHandler
from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.coordinator.cluster.producer_ids import ProducerIds
from holdfast_log.coordinator.controller.events import MorePartitions, TopicCreation, TopicResult
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.broker.test_metadata import ID, state
from tests.models.orders import broker_metadata, update_metadata
from tests.models.quotas import no_mutation_quotas

VIEW = SettingsView(SettingsInForce(broker_settings({"zookeeper.connect": "z:1"})))
FREE = no_mutation_quotas()

NO_TRANSACTIONS = cast(TransactionService, None)
"""Producers without a transactional id need no coordinator."""


class Controller:
    """Records requests and succeeds, or fails as not the controller."""

    def __init__(self, *, is_active: bool = True) -> None:
        self.is_active = is_active
        self.created: list[TopicCreation] = []
        self.deleted: list[str] = []
        self.grown: list[MorePartitions] = []

    def create_topics(
        self, topics: Sequence[TopicCreation], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        self.created.extend(topics)
        return self._done({topic.name: TopicResult(topic.name, topic_id=ID) for topic in topics})

    def delete_topics(self, names: Sequence[str], timeout_ms: int) -> Deferred[dict[str, TopicResult]]:
        self.deleted.extend(names)
        return self._done({name: TopicResult(name) for name in names})

    def create_partitions(
        self, topics: Sequence[MorePartitions], timeout_ms: int, *, validate_only: bool = False
    ) -> Deferred[dict[str, TopicResult]]:
        self.grown.extend(topics)
        return self._done({topic.name: TopicResult(topic.name) for topic in topics})

    def _done(self, results: dict[str, TopicResult]) -> Deferred[dict[str, TopicResult]]:
        if not self.is_active:
            return fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        return succeed(results)


def answers() -> LongAnswers:
    """Where answers are made; those of a test are short."""
    return LongAnswers(Clock())


def as_service(controller: Controller) -> ControllerService:
    return cast(ControllerService, controller)


def producer_ids(outcome: Deferred[int]) -> ProducerIds:
    """A source of producer ids with this outcome."""
    return cast(ProducerIds, SimpleNamespace(next=lambda: outcome))


def ask(handler: Handler[Any, Any], request: Request[Any]) -> Any:
    """Send a request through the dispatcher. Returns the response."""
    dispatcher = Dispatcher(RepeatedLog(Clock()))
    dispatcher.add([handler])
    answers: list[Any] = []
    dispatcher.call_local(request).addCallback(answers.append)
    (answer,) = answers
    return answer


def known_cluster() -> MetadataCache:
    cache = MetadataCache()
    cache.update(update_metadata(states=[state(0)], live=[broker_metadata(1)]))
    return cache


def topic(name: str, configs: Mapping[str, str] | None = None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=3,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


class TestCreateTopics:
    def test_a_created_topic_is_answered_with_its_id_and_settings(self) -> None:
        controller = Controller()
        request = CreateTopicsRequest(topics=[topic("t", {"retention.ms": "5"})])
        (result,) = ask(CreateTopicsHandler(as_service(controller), VIEW, FREE, answers()), request).topics
        assert (result.name, result.error_code, result.topic_id) == ("t", 0, ID)
        values = {config.name: (config.value, config.config_source) for config in result.configs}
        assert values["retention.ms"] == ("5", 1)
        assert values["cleanup.policy"] == ("delete", 5)
        (made,) = controller.created
        assert (made.name, made.partition_count, made.configs) == ("t", 3, {"retention.ms": "5"})

    def test_a_topic_named_twice_is_refused_and_the_others_are_created(self) -> None:
        controller = Controller()
        request = CreateTopicsRequest(topics=[topic("a"), topic("a"), topic("b")])
        results = ask(CreateTopicsHandler(as_service(controller), VIEW, FREE, answers()), request).topics
        codes = {result.name: result.error_code for result in results}
        assert codes == {"a": ErrorCode.INVALID_REQUEST, "b": 0}
        assert [made.name for made in controller.created] == ["b"]

    def test_creation_at_another_broker_is_refused_as_not_controller(self) -> None:
        handler = CreateTopicsHandler(as_service(Controller(is_active=False)), VIEW, FREE, answers())
        (result,) = ask(handler, CreateTopicsRequest(topics=[topic("t")])).topics
        assert (result.name, result.error_code) == ("t", ErrorCode.NOT_CONTROLLER)


class TestDeleteTopics:
    def ask(self, *topics: DeleteTopicState, is_enabled: bool = True) -> tuple[Any, Controller]:
        controller = Controller()
        handler = DeleteTopicsHandler(
            as_service(controller),
            known_cluster(),
            TopicDeletionSettings(is_enabled),
            FREE,
            answers(),
        )
        return ask(handler, DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)), controller

    def test_topics_are_deleted_by_name_and_by_id(self) -> None:
        response, controller = self.ask(
            DeleteTopicState(name=None, topic_id=ID),
            DeleteTopicState(name="other", topic_id=uuid.UUID(int=0)),
        )
        assert controller.deleted == ["t", "other"]
        first, second = response.responses
        assert (first.name, first.topic_id, first.error_code) == ("t", ID, 0)
        assert (second.name, second.error_code) == ("other", 0)

    def test_deleting_an_unknown_topic_id_is_an_error(self) -> None:
        response, controller = self.ask(DeleteTopicState(name=None, topic_id=uuid.UUID(int=9)))
        assert response.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert controller.deleted == []

    def test_deletion_can_be_disabled(self) -> None:
        response, controller = self.ask(DeleteTopicState(name="t", topic_id=ID), is_enabled=False)
        (refused,) = response.responses
        assert refused.error_code == ErrorCode.TOPIC_DELETION_DISABLED
        assert "delete.topic.enable" in refused.error_message
        assert controller.deleted == []

    @pytest.mark.parametrize(
        ("version", "error"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    def test_disabled_deletion_has_an_older_error_code_for_old_clients(
        self, version: int, error: ErrorCode
    ) -> None:
        handler = DeleteTopicsHandler(
            as_service(Controller()),
            known_cluster(),
            TopicDeletionSettings(False),
            FREE,
            answers(),
        )
        with pytest.raises(BrokerError) as raised:
            handler.handle(
                RequestContext(version, "", None), DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
            )
        assert raised.value.code == error


class TestCreatePartitions:
    def test_partition_counts_and_assignments_reach_the_controller(self) -> None:
        controller = Controller()
        wanted = CreatePartitionsTopic(name="t", count=5, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
        (result,) = ask(CreatePartitionsHandler(as_service(controller), FREE, answers()), request).results
        assert (result.name, result.error_code) == ("t", 0)
        assert controller.grown == [MorePartitions("t", 5)]

    def test_adding_partitions_to_a_topic_named_twice_is_refused(self) -> None:
        wanted = CreatePartitionsTopic(name="t", count=5, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted, wanted], timeout_ms=1000, validate_only=False)
        (result,) = ask(CreatePartitionsHandler(as_service(Controller()), FREE, answers()), request).results
        assert result.error_code == ErrorCode.INVALID_REQUEST


class TestOthers:
    def test_the_cluster_is_described(self) -> None:
        cluster = known_cluster()
        first_update = FirstUpdate(cluster, Clock())
        handler = DescribeClusterHandler(cluster, BrokerIdentity(1, "cluster", "PLAINTEXT"), first_update)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        response = ask(handler, request)
        assert (response.cluster_id, response.controller_id) == ("cluster", 1)
        assert [(node.broker_id, node.port) for node in response.brokers] == [(1, 9001)]
        controllers = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        assert ask(handler, controllers).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    def test_a_producer_gets_an_id_and_an_empty_transactional_id_is_refused(self) -> None:
        handler = InitProducerIdHandler(producer_ids(succeed(77)), NO_TRANSACTIONS)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        response = ask(handler, request)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 77, 0)
        refused = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=0)
        assert ask(handler, refused).error_code == ErrorCode.INVALID_REQUEST

    def test_an_id_that_waits_for_a_repair_is_asked_for_again(self) -> None:
        handler = InitProducerIdHandler(producer_ids(fail(BadZnode("garbage"))), NO_TRANSACTIONS)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert ask(handler, request).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    def test_a_failed_request_for_a_producer_id_is_answered_with_an_error(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = InitProducerIdHandler(
            producer_ids(fail(RuntimeError("ZooKeeper is gone"))), NO_TRANSACTIONS
        )
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert ask(handler, request).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "ZooKeeper is gone" in caplog.text

    def test_a_broker_without_zookeeper_sends_producers_to_another_broker(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = InitProducerIdHandler(
            producer_ids(fail(SessionExpired("/latest_producer_id_block"))), NO_TRANSACTIONS
        )
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert ask(handler, request).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "Handling a" not in caplog.text


class TestAutoCreation:
    @staticmethod
    def create(answer: Deferred[CreateTopicsResponse]) -> dict[str, ErrorCode]:
        outcomes: list[dict[str, ErrorCode]] = []
        AutoCreation(lambda request: answer, RepeatedLog(Clock())).create(["a"]).addCallback(outcomes.append)
        (outcome,) = outcomes
        return outcome

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            (ErrorCode.NONE, ErrorCode.NONE),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        ],
    )
    def test_automatic_creation_returns_the_controllers_error(
        self, code: ErrorCode, expected: ErrorCode
    ) -> None:
        result = CreatableTopicResult(name="a", error_code=code, configs=None)
        response = CreateTopicsResponse(throttle_time_ms=0, topics=[result])
        assert self.create(succeed(response)) == {"a": expected}

    def test_an_internal_topic_is_created_with_its_settings(self) -> None:
        asked: list[CreateTopicsRequest] = []
        special = CreatableTopic(
            name="s", num_partitions=50, replication_factor=3, assignments=[], configs=[]
        )

        def note(request: CreateTopicsRequest) -> Deferred[CreateTopicsResponse]:
            asked.append(request)
            return succeed(CreateTopicsResponse(throttle_time_ms=0, topics=[]))

        AutoCreation(note, RepeatedLog(Clock()), [special]).create(["s", "a"])
        assert [(t.name, t.num_partitions, t.replication_factor) for t in asked[0].topics] == [
            ("s", 50, 3),
            ("a", -1, -1),
        ]

    @pytest.mark.parametrize(("names_clients", "told"), [(True, "User:alice"), (False, None)])
    def test_the_controller_learns_for_whom_only_if_the_protocol_has_it(
        self, names_clients: bool, told: str | None
    ) -> None:
        asked: list[CreateTopicsRequest] = []

        def note(request: CreateTopicsRequest) -> Deferred[CreateTopicsResponse]:
            asked.append(request)
            return succeed(CreateTopicsResponse(throttle_time_ms=0, topics=[]))

        AutoCreation(note, RepeatedLog(Clock()), names_clients=names_clients).create(["a"], "User:alice")
        assert [request.on_behalf_of for request in asked] == [told]

    def test_an_unreachable_controller_is_a_retriable_error(self) -> None:
        unreachable: Deferred[CreateTopicsResponse] = fail(ChannelLost("no controller"))
        assert self.create(unreachable) == {"a": ErrorCode.LEADER_NOT_AVAILABLE}
