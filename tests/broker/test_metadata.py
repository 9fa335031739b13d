"""A broker's cache of the cluster's metadata, and its Metadata responses."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import HELD_BACK_S_MAX, FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from holdfast_log.broker.handlers.describe_cluster import DescribeClusterHandler
from holdfast_log.broker.handlers.metadata import AutoCreationSettings, MetadataHandler
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.describe_cluster import DescribeClusterRequest
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataPartitionState
from tests.models.orders import broker_metadata, partition_metadata, update_metadata
from tests.models.quotas import no_mutation_quotas

ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


def state(index: int, leader: int = 1) -> UpdateMetadataPartitionState:
    return partition_metadata(index, leader=leader, leader_epoch=4, offline=[2])


@pytest.fixture
def cache() -> MetadataCache:
    known = MetadataCache()
    known.update(update_metadata(states=[state(0), state(1)], live=[broker_metadata(1), broker_metadata(2)]))
    return known


class TestCache:
    def test_updates_add_partitions(self, cache: MetadataCache) -> None:
        cache.update(update_metadata(states=[state(2)]))
        assert sorted(cache.topics["t"].partitions) == [0, 1, 2]
        assert sorted(cache.brokers) == [1, 2]

    def test_an_update_replaces_the_brokers(self, cache: MetadataCache) -> None:
        cache.update(update_metadata(live=[broker_metadata(2)]))
        assert not cache.is_live(1)
        assert cache.is_live(2)

    def test_a_deleted_topic_is_removed_by_name_and_id(self, cache: MetadataCache) -> None:
        assert cache.update(update_metadata(states=[state(0, LEADER_DURING_DELETE)])) == []
        assert cache.update(update_metadata(states=[state(1, LEADER_DURING_DELETE)])) == ["t"]
        assert cache.name_of(ID) is None
        assert cache.partition("t", 0) is None

    def test_a_recreated_topic_has_no_partition_of_the_old_one(self, cache: MetadataCache) -> None:
        cache.update(update_metadata(states=[state(0)], topic_id=OTHER_ID))
        assert sorted(cache.topics["t"].partitions) == [0]
        assert cache.name_of(ID) is None
        assert cache.name_of(OTHER_ID) == "t"
        assert cache.topic_id("t") == OTHER_ID

    def test_the_next_update_can_be_awaited(self, cache: MetadataCache) -> None:
        awaited = cache.next_update()
        assert not awaited.called
        cache.update(update_metadata())
        assert awaited.called


def ask(
    cache: MetadataCache, topics: list[MetadataRequestTopic] | None, version: int = 12, auto: bool = False
) -> tuple[MetadataResponse, list[str]]:
    """The response, and the topics that the request would create."""
    made: list[str] = []

    def create(names: list[str], on_behalf_of: str | None) -> Deferred[dict[str, ErrorCode]]:
        made.extend(names)
        return succeed(
            {name: ErrorCode.INVALID_TOPIC_EXCEPTION if "!" in name else ErrorCode.NONE for name in names}
        )

    handler = MetadataHandler(
        cache,
        BrokerIdentity(1, "cluster", "PLAINTEXT"),
        cast(AutoCreation, SimpleNamespace(create=create)),
        AutoCreationSettings(auto),
        FirstUpdate(cache, Clock()),
        no_mutation_quotas(),
        LongAnswers(Clock()),
    )
    answers: list[MetadataResponse] = []
    answer = handler.handle(RequestContext(version, "", None), MetadataRequest(topics=topics))
    if isinstance(answer, Deferred):
        answer.addCallback(answers.append)
    else:
        answers.append(answer)
    (response,) = answers
    return response, made


def by_name(name: str) -> MetadataRequestTopic:
    return MetadataRequestTopic(name=name)


class TestBeforeTheFirstUpdate:
    """The broker listens, and the controller has not described the cluster to it yet."""

    def setup_method(self) -> None:
        self.cache, self.clock = MetadataCache(), Clock()
        self.first_update = FirstUpdate(self.cache, self.clock)
        self.identity = BrokerIdentity(1, "cluster", "PLAINTEXT")
        self.answers: list[int] = []
        """How many brokers each answer names."""

    def ask_metadata(self) -> None:
        creation = cast(AutoCreation, SimpleNamespace(create=None))
        handler = MetadataHandler(
            self.cache,
            self.identity,
            creation,
            AutoCreationSettings(False),
            self.first_update,
            no_mutation_quotas(),
            LongAnswers(Clock()),
        )
        self.take(handler.handle(RequestContext(12, "", None), MetadataRequest(topics=None)))

    def ask_cluster(self) -> None:
        handler = DescribeClusterHandler(self.cache, self.identity, self.first_update)
        self.take(
            handler.handle(
                RequestContext(1, "", None),
                DescribeClusterRequest(include_cluster_authorized_operations=False),
            )
        )

    def take(self, answer: Any) -> None:
        if isinstance(answer, Deferred):
            answer.addCallback(lambda response: self.answers.append(len(response.brokers)))
        else:
            self.answers.append(len(answer.brokers))

    def test_answers_wait_for_the_first_update(self) -> None:
        self.ask_metadata()
        self.ask_cluster()
        self.clock.advance(HELD_BACK_S_MAX - 1)
        assert self.answers == []
        self.cache.update(update_metadata(live=[broker_metadata(1), broker_metadata(2)]))
        assert self.answers == [2, 2]
        self.ask_metadata()
        assert self.answers == [2, 2, 2]
        assert self.clock.getDelayedCalls() == []

    def test_answers_wait_no_longer_than_the_time_limit(self) -> None:
        self.ask_metadata()
        self.clock.advance(1)
        self.ask_cluster()
        self.clock.advance(HELD_BACK_S_MAX - 1)
        assert self.answers == [0, 0]
        self.ask_metadata()
        assert self.answers == [0, 0, 0]

    def test_answers_do_not_wait_after_the_first_update(self) -> None:
        self.cache.update(update_metadata(live=[broker_metadata(1)]))
        self.ask_metadata()
        self.ask_cluster()
        assert self.answers == [1, 1]


class TestAnswer:
    def test_a_response_has_brokers_controller_and_partitions(self, cache: MetadataCache) -> None:
        response, _ = ask(cache, [by_name("t")])
        assert [(node.node_id, node.host, node.port) for node in response.brokers] == [
            (1, "127.0.0.1", 9001),
            (2, "127.0.0.1", 9002),
        ]
        assert (response.controller_id, response.cluster_id) == (1, "cluster")
        (topic,) = response.topics
        assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, ID, False)
        first = topic.partitions[0]
        assert (first.leader_id, first.leader_epoch) == (1, 4)
        assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2], [1], [2])

    def test_all_topics_are_requested_by_null_or_in_version_0_by_an_empty_list(
        self, cache: MetadataCache
    ) -> None:
        assert len(ask(cache, None)[0].topics) == 1
        assert len(ask(cache, [], version=0)[0].topics) == 1
        assert ask(cache, [], version=1)[0].topics == []

    def test_topics_are_found_by_id(self, cache: MetadataCache) -> None:
        wanted = [MetadataRequestTopic(topic_id=each, name=None) for each in (ID, OTHER_ID)]
        response, _ = ask(cache, wanted)
        known, unknown = response.topics
        assert (known.name, known.error_code) == ("t", 0)
        assert (unknown.topic_id, unknown.error_code) == (OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID)

    def test_a_missing_topic_is_unknown_without_auto_creation(self, cache: MetadataCache) -> None:
        response, made = ask(cache, [by_name("other")])
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert made == []

    @pytest.mark.parametrize("name", ["bad topic!", "", ".", "x" * 250])
    def test_an_invalid_topic_name_has_its_own_error(self, cache: MetadataCache, name: str) -> None:
        """Clients wait for missing partitions."""
        response, _ = ask(cache, [by_name(name)])
        assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_missing_topic_is_created_and_answered_with_a_retriable_error(
        self, cache: MetadataCache
    ) -> None:
        response, made = ask(cache, [by_name("t"), by_name("other"), by_name("bad!")], auto=True)
        assert made == ["other", "bad!"]
        assert [topic.error_code for topic in response.topics] == [
            ErrorCode.NONE,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]

    def test_a_dead_or_unreachable_leader_has_its_own_error(self, cache: MetadataCache) -> None:
        cache.update(update_metadata(live=[broker_metadata(2)]))
        (topic,) = ask(cache, [by_name("t")])[0].topics
        assert topic.partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        cache.update(update_metadata(live=[broker_metadata(1, listener="ELSEWHERE"), broker_metadata(2)]))
        response, _ = ask(cache, [by_name("t")])
        assert response.topics[0].partitions[0].error_code == ErrorCode.LISTENER_NOT_FOUND
        assert [node.node_id for node in response.brokers] == [2]
