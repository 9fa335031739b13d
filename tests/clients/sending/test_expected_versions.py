"""Messages that expect a version of their key, against brokers in memory."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.clients.errors import ConfigError, TopicRecreatedError, UnsupportedRequestError
from holdfast_log.clients.message import NO_VERSION, Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.conditions import FEATURE, KEY_VERSIONS_FEATURE
from holdfast_log.protocol.errors import KeyVersionMismatchError
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle

LOG = "log"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.brokers[1].features[KEY_VERSIONS_FEATURE] = 1
    cluster.add_topic(LOG, 2)
    return cluster


def producer_on(cluster: FakeCluster, **properties: Any) -> Producer:
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **properties}
    return Producer(given, network=cluster.network(), rng=random.Random(1), is_threaded=False)


def message(key: str | None, version: int | None, value: str = "x", partition: int | None = 0) -> Message:
    return Message(LOG, key=key, value=value, partition=partition, expected_version=version)


def values_in(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics[LOG][partition].records()]


def test_a_message_is_written_if_its_key_has_the_version_that_it_expects(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    created = producer.send(message("k", NO_VERSION, "a"))
    producer.send(message("other", None, "b"))
    assert settle(producer, 10_000)
    changed = producer.send(message("k", created.offset, "c"))
    assert settle(producer, 10_000)

    assert (created.offset, changed.offset) == (0, 2)


def test_a_refused_message_has_the_present_version_and_fails_no_other(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    producer.send(message("k", None, "a"))
    settle(producer, 10_000)

    sent = [
        producer.send(message("k", NO_VERSION, "late")),
        producer.send(message("other", NO_VERSION, "b")),
        producer.send(message("plain", None, "c")),
    ]
    assert settle(producer, 10_000)

    refused, *others = sent
    assert isinstance(refused.error, KeyVersionMismatchError)
    assert (refused.error.version, refused.error.versions) == (0, ((0, 0),))
    assert [other.error for other in others] == [None, None]
    assert values_in(cluster) == [b"a", b"b", b"c"]


def test_a_message_sent_before_its_partition_is_known_keeps_its_condition(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)

    first = producer.send(message("k", NO_VERSION, partition=None))
    second = producer.send(message("k", NO_VERSION, partition=None))
    assert settle(producer, 10_000)

    assert first.error is None
    assert first.partition == second.partition
    assert isinstance(second.error, KeyVersionMismatchError)


def test_a_retry_after_a_lost_answer_succeeds_with_the_original_offset(cluster: FakeCluster) -> None:
    producer = producer_on(cluster)
    producer.send(message("k", None))
    settle(producer, 10_000)
    cluster.brokers[1].fail_next(ProduceRequest, "cut after")

    changed = producer.send(message("k", 0))
    assert settle(producer, 60_000)

    assert (changed.error, changed.offset) == (None, 1)


def test_a_broker_without_the_feature_gets_no_such_message(cluster: FakeCluster) -> None:
    del cluster.brokers[1].features[KEY_VERSIONS_FEATURE]
    producer = producer_on(cluster)

    refused = producer.send(message("k", NO_VERSION))
    assert settle(producer, 10_000)

    assert isinstance(refused.error, UnsupportedRequestError)
    assert values_in(cluster) == []


@pytest.mark.parametrize(("key", "version"), [(None, NO_VERSION), ("k", -2)])
def test_an_impossible_condition_is_refused_at_once(
    cluster: FakeCluster, key: str | None, version: int
) -> None:
    with pytest.raises(ValueError, match=r"needs a key|the expected_version of .*, not int -2"):
        producer_on(cluster).send(message(key, version))


def test_a_producer_without_idempotence_sends_no_conditions(cluster: FakeCluster) -> None:
    producer = producer_on(cluster, **{"enable.idempotence": False})

    with pytest.raises(ConfigError):
        producer.send(message("k", NO_VERSION))


@pytest.mark.parametrize("partition", [0, None])
def test_a_version_of_a_topic_that_was_created_again_is_refused_by_a_process_that_names_the_topic(
    cluster: FakeCluster, partition: int | None
) -> None:
    """A process that has kept a version from an earlier run, before or after it knows the topic's partitions.
    The new topic has another record at that offset."""
    earlier = cluster.topic_id(LOG)
    cluster.add_topic(LOG, 2)
    other = producer_on(cluster)
    other.send(message("k", None, "new", partition))
    settle(other, 10_000)

    producer = producer_on(cluster)
    kept = replace(message("k", 0, "old", partition), topic_id=earlier)
    refused = producer.send(kept)
    assert settle(producer, 10_000)
    accepted = producer.send(replace(kept, topic_id=cluster.topic_id(LOG)))
    assert settle(producer, 10_000)

    assert isinstance(refused.error, TopicRecreatedError)
    assert accepted.error is None


def test_an_offset_may_name_the_topic_that_it_belongs_to(cluster: FakeCluster) -> None:
    cluster.brokers[1].features[FEATURE] = 1
    earlier = cluster.topic_id(LOG)
    cluster.add_topic(LOG, 2)
    producer = producer_on(cluster)
    refused = producer.send(Message(LOG, value="x", partition=0, offset=0, topic_id=earlier))
    assert settle(producer, 10_000)
    assert isinstance(refused.error, TopicRecreatedError)


def test_a_topic_id_without_an_offset_means_nothing(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="an expected_version too"):
        producer_on(cluster).send(Message(LOG, value="x", topic_id=cluster.topic_id(LOG)))
