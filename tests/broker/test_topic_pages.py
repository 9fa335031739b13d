"""DescribeTopicPartitions: pages of partitions, and ListConfigResources: names of what has settings."""

from __future__ import annotations

from typing import TypeVar

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import NO_LEADER, MetadataCache
from holdfast_log.broker.handlers.describe_topic_partitions import (
    DescribeTopicPartitionsHandler,
    PageSettings,
)
from holdfast_log.broker.handlers.list_config_resources import ListConfigResourcesHandler
from holdfast_log.broker.requests.answers import AnswerLimits, LongAnswers
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicRequest,
    PageCursor,
)
from holdfast_log.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.models.orders import broker_metadata, partition_metadata, update_metadata

R = TypeVar("R")

PARTITIONS = {"a": 3, "b": 1, "c": 4}


@pytest.fixture
def cache() -> MetadataCache:
    known = MetadataCache()
    known.update(update_metadata(live=[broker_metadata(1), broker_metadata(2)]))
    for topic, count in PARTITIONS.items():
        states = [partition_metadata(index, leader=1, leader_epoch=4, offline=[2]) for index in range(count)]
        known.update(update_metadata(topic, states=states))
    return known


def result(answer: R | Deferred[R]) -> R:
    if not isinstance(answer, Deferred):
        return answer
    found: list[R] = []
    answer.addCallback(found.append)
    (response,) = found
    return response


class Broker:
    def __init__(
        self, cache: MetadataCache, partitions_max: int = 2_000, answer_bytes: int = 1 << 20
    ) -> None:
        clock = Clock()
        first_update = FirstUpdate(cache, clock)
        answers = LongAnswers(clock, AnswerLimits(answer_bytes))
        identity = BrokerIdentity(1, "cluster", "PLAINTEXT")
        self.topics = DescribeTopicPartitionsHandler(
            cache, identity, first_update, PageSettings(partitions_max), answers
        )
        self.resources = ListConfigResourcesHandler(cache, first_update, answers)

    def page(
        self, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
    ) -> DescribeTopicPartitionsResponse:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else PageCursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        return result(self.topics.handle(RequestContext(0, "", None), request))

    def names(self, *types: int, version: int = 1) -> ListConfigResourcesResponse:
        request = ListConfigResourcesRequest(resource_types=list(types))
        return result(self.resources.handle(RequestContext(version, "", None), request))


def partitions(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions]


ALL = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]


class TestPages:
    def test_a_partition_has_what_metadata_says_of_it(self, cache: MetadataCache) -> None:
        (topic,) = Broker(cache).page("b").topics
        (partition,) = topic.partitions
        assert (topic.error_code, topic.is_internal) == (ErrorCode.NONE, False)
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.NONE, 1, 4)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2], [1])
        assert (partition.offline_replicas, partition.eligible_leader_replicas) == ([2], [])

    def test_a_leader_that_is_away_is_no_leader(self, cache: MetadataCache) -> None:
        cache.update(update_metadata(live=[broker_metadata(2)]))
        partition = Broker(cache).page("b").topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)

    def test_no_names_mean_all_topics(self, cache: MetadataCache) -> None:
        response = Broker(cache).page()
        assert partitions(response) == ALL
        assert response.next_cursor is None

    @pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 8, 100])
    @pytest.mark.parametrize("is_limit_of_broker", [False, True])
    def test_the_pages_have_every_partition_once(
        self, cache: MetadataCache, limit: int, is_limit_of_broker: bool
    ) -> None:
        broker = Broker(cache, partitions_max=limit if is_limit_of_broker else 2_000)
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(len(ALL) + 1):
            response = broker.page(limit=2_000 if is_limit_of_broker else limit, cursor=cursor)
            assert len(partitions(response)) <= limit
            seen += partitions(response)
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
        assert seen == ALL
        assert response.next_cursor is None

    def test_a_page_that_the_answers_limit_ends_can_be_continued(self, cache: MetadataCache) -> None:
        broker = Broker(cache, answer_bytes=400)
        first = broker.page()
        assert partitions(first) == ALL[:4]
        assert first.next_cursor == PageCursor(topic_name="c", partition_index=0)

    @pytest.mark.parametrize("limit", [0, -1])
    def test_a_page_has_at_least_one_partition(self, cache: MetadataCache, limit: int) -> None:
        assert partitions(Broker(cache).page(limit=limit)) == [("a", 0)]

    def test_missing_and_illegal_names_have_errors(self, cache: MetadataCache) -> None:
        response = Broker(cache).page("x!", "b", "missing")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("b", ErrorCode.NONE),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("x!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]

    def test_a_topic_that_was_deleted_between_two_pages_is_passed_over(self, cache: MetadataCache) -> None:
        assert partitions(Broker(cache).page(cursor=("aa", 1))) == ALL[3:]

    def test_a_cursor_behind_the_last_partition_has_none_of_its_topic(self, cache: MetadataCache) -> None:
        assert partitions(Broker(cache).page("a", "b", cursor=("a", 7))) == [("b", 0)]

    def test_a_negative_cursor_is_refused(self, cache: MetadataCache) -> None:
        broker = Broker(cache)
        with pytest.raises(BrokerError, match="counted from 0") as raised:
            broker.page("a", cursor=("a", -1))
        assert raised.value.code == ErrorCode.INVALID_REQUEST


class TestResources:
    def test_all_types_are_listed_unless_some_are_named(self, cache: MetadataCache) -> None:
        found = [(each.resource_type, each.resource_name) for each in Broker(cache).names().config_resources]
        topics = [(ResourceType.TOPIC, name) for name in PARTITIONS]
        brokers = [(ResourceType.BROKER, "1"), (ResourceType.BROKER, "2")]
        loggers = [(ResourceType.BROKER_LOGGER, "1"), (ResourceType.BROKER_LOGGER, "2")]
        assert found == [*topics, *brokers, *loggers]

    def test_one_type(self, cache: MetadataCache) -> None:
        found = Broker(cache).names(ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP)
        assert [each.resource_name for each in found.config_resources] == list(PARTITIONS)

    def test_version_0_lists_client_metrics_of_which_there_are_none(self, cache: MetadataCache) -> None:
        assert Broker(cache).names(version=0).config_resources == []

    def test_an_unknown_type_is_refused(self, cache: MetadataCache) -> None:
        with pytest.raises(BrokerError, match="3 is not a type") as raised:
            Broker(cache).names(3)
        assert raised.value.code == ErrorCode.UNSUPPORTED_VERSION

    def test_a_list_above_the_limit_of_answers_is_refused(self, cache: MetadataCache) -> None:
        outcome = Broker(cache, answer_bytes=60).resources.handle(
            RequestContext(1, "", None), ListConfigResourcesRequest(resource_types=[ResourceType.TOPIC])
        )
        assert isinstance(outcome, Deferred)
        errors: list[BrokerError] = []
        outcome.addErrback(lambda failure: errors.append(failure.value))
        assert [error.code for error in errors] == [ErrorCode.POLICY_VIOLATION]
