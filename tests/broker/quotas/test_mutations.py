"""Clients that create and delete many partitions are refused or throttled (KIP-599)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.create_partitions import CreatePartitionsHandler
from holdfast_log.broker.handlers.create_topics import CreateTopicsHandler
from holdfast_log.broker.handlers.delete_topics import DeleteTopicsHandler, TopicDeletionSettings
from holdfast_log.broker.handlers.metadata import AutoCreationSettings, MetadataHandler
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.quotas.limits import QuotaLimits
from holdfast_log.broker.quotas.settings import QuotaSettings
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.mutations import MutationQuotas
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.test_administration import VIEW, Controller, as_service
from tests.models.orders import broker_metadata, partition_metadata, update_metadata
from tests.models.quotas import client_quotas
from tests.models.wires import FakeWire

OVER = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Broker:
    """A controller's handlers, with a quota of 1 partition per second: 11 may come at once."""

    def __init__(
        self, *, is_active: bool = True, settings: QuotaSettings | None = None, is_limited: bool = True
    ) -> None:
        self.clock = Clock()
        self.controller = Controller(is_active=is_active)
        service, metadata = as_service(self.controller), MetadataCache()
        self.metadata = metadata
        states = [partition_metadata(index) for index in range(4)]
        metadata.update(update_metadata(states=states, live=[broker_metadata(1)]))
        limits = QuotaLimits(settings or QuotaSettings())
        self.quotas = client_quotas(limits, self.clock)
        if is_limited:
            limits.configs_changed("clients", "app", {"controller_mutation_rate": "1"})
        mutations = self.mutations = MutationQuotas(self.quotas, metadata, 2, 5_000)
        self.dispatcher = Dispatcher(RepeatedLog(self.clock), quotas=self.quotas)
        answers = LongAnswers(self.clock)
        self.dispatcher.add(
            [
                CreateTopicsHandler(service, VIEW, mutations, answers),
                CreatePartitionsHandler(service, mutations, answers),
                DeleteTopicsHandler(service, metadata, TopicDeletionSettings(True), mutations, answers),
            ]
        )

    def ask(
        self, request: Request[Any], version: int, client_id: str = "app"
    ) -> tuple[Any, ServerConnection]:
        wire = FakeWire()
        limits = ConnectionLimits(1 << 20, 1 << 20, 100)
        connection = ServerConnection(1, "PLAINTEXT", wire.peer, self.dispatcher.dispatch, limits, self.clock)
        connection.connected(wire)
        frame = join_parts(encode_request(request, version, 1, client_id))[4:]
        connection.frames_received([memoryview(bytearray(frame))])
        (answer,) = wire.frames()
        return decode_response(type(request), version, answer), connection

    def create(self, *partitions: int, version: int = 7, **wanted: Any) -> tuple[list[int], int]:
        """Create topics with these numbers of partitions. Returns their error codes and the throttle time."""
        topics = [
            CreatableTopic(
                name=f"new{number}", num_partitions=count, replication_factor=1, assignments=[], configs=[]
            )
            for number, count in enumerate(partitions)
        ]
        answer, connection = self.ask(CreateTopicsRequest(topics=topics, **wanted), version)
        assert connection.is_muted == (answer.throttle_time_ms > 0)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        return [codes[topic.name] for topic in topics], answer.throttle_time_ms


def test_a_strict_request_is_refused_topic_by_topic_once_the_quota_is_used_up() -> None:
    broker = Broker()
    assert broker.create(11) == ([0], 0)
    assert broker.create(5) == ([0], 0), "the quota may be overdrawn once"
    assert broker.create(1, 1) == ([OVER, OVER], 5000)
    assert [topic.name for topic in broker.controller.created] == ["new0", "new0"]
    broker.clock.advance(5)
    assert broker.create(1, 1) == ([0, OVER], 1000)


def test_a_request_of_an_older_version_is_carried_out_and_throttled() -> None:
    broker = Broker()
    assert broker.create(11, version=5) == ([0], 0)
    assert broker.create(5, version=5) == ([0], 5000)
    assert broker.create(1, version=5) == ([0], 6000)
    assert len(broker.controller.created) == 3


def test_the_default_limits_clients_without_a_quota_and_costs_other_requests_nothing() -> None:
    broker = Broker(settings=QuotaSettings(mutation_default=1), is_limited=False)
    assert not broker.quotas.is_enforced
    assert broker.create(11) == ([0], 0)
    broker.create(5)
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    )
    answer, connection = broker.ask(request, 7)
    assert answer.topics[0].error_code == OVER
    assert connection.is_muted


def test_the_default_number_of_partitions_is_charged() -> None:
    broker = Broker()
    broker.create(11, -1)
    assert broker.create(1) == ([OVER], 2000)


def test_validation_and_topics_that_exist_cost_nothing() -> None:
    broker = Broker()
    assert broker.create(1000, validate_only=True) == ([0], 0)
    exists = CreatableTopic(name="t", num_partitions=100, replication_factor=1, assignments=[], configs=[])
    broker.ask(CreateTopicsRequest(topics=[exists]), 7)
    assert broker.create(12) == ([0], 0)


def test_another_broker_than_the_controller_charges_nothing() -> None:
    broker = Broker(is_active=False)
    assert broker.create(1000) == ([ErrorCode.NOT_CONTROLLER], 0)
    assert broker.create(1) == ([ErrorCode.NOT_CONTROLLER], 0)


def test_added_partitions_are_charged() -> None:
    broker = Broker()
    wanted = CreatePartitionsTopic(name="t", count=20, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
    answer, _ = broker.ask(request, 3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (0, 0)
    answer, _ = broker.ask(request, 3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (OVER, 5000)
    answer, _ = broker.ask(request, 2)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (0, 21_000)


def test_deleted_partitions_are_charged() -> None:
    broker = Broker()
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    found = [broker.ask(request, 5)[0] for _ in range(4)]
    assert [answer.responses[0].error_code for answer in found] == [0, 0, 0, OVER]
    assert found[-1].throttle_time_ms == 1000
    assert broker.controller.deleted == ["t"] * 3


@pytest.mark.parametrize("client_id", ["other", "replica-fetcher-2-0"])
def test_clients_without_the_quota_are_not_charged(client_id: str) -> None:
    broker = Broker()
    topic = CreatableTopic(name="new", num_partitions=99, replication_factor=1, assignments=[], configs=[])
    for _ in range(3):
        answer, connection = broker.ask(CreateTopicsRequest(topics=[topic]), 7, client_id)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
        assert not connection.is_muted


def test_topics_that_are_created_for_their_metadata_are_charged_to_the_client_that_asked() -> None:
    broker = Broker()
    created: list[str] = []

    def create(names: list[str], on_behalf_of: str | None) -> Deferred[dict[str, ErrorCode]]:
        created.extend(names)
        return succeed(dict.fromkeys(names, ErrorCode.NONE))

    broker.dispatcher.add(
        [
            MetadataHandler(
                broker.metadata,
                BrokerIdentity(1, "cluster", "PLAINTEXT"),
                cast(AutoCreation, SimpleNamespace(create=create)),
                AutoCreationSettings(True),
                FirstUpdate(broker.metadata, broker.clock),
                broker.mutations,
                LongAnswers(broker.clock),
            )
        ]
    )
    topics = [MetadataRequestTopic(name=f"new{number}") for number in range(8)]
    answer, connection = broker.ask(MetadataRequest(topics=topics), 12)
    assert len(created) == 8
    assert answer.throttle_time_ms == 5000, "8 topics of 2 partitions, of which 11 partitions come at once"
    assert connection.is_muted
