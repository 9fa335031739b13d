"""What clients cannot do to the topics in which brokers keep the state of groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.create_topics import replicas_of
from holdfast_log.broker.settings.alterations import (
    INDEX_INTERVAL_BYTES_MAX,
    INDEX_INTERVAL_BYTES_MIN,
    Alteration,
)
from holdfast_log.broker.settings.changes import SettingChanges
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.controller.events import TopicCreation
from holdfast_log.protocol.configs import ConfigOperation, ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.world import World
from tests.models.orders import broker_metadata, partition_metadata, update_metadata

OFFSETS = "__consumer_offsets"


def test_nobody_deletes_records_of_an_internal_topic(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.assign(OFFSETS)
    wanted = [
        DeleteRecordsTopic(name=OFFSETS, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    ]
    (topic,) = world.client().call(DeleteRecordsRequest(topics=wanted, timeout_ms=1000)).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


class Topics:
    """One broker's settings, and the own settings of topics in ZooKeeper."""

    def __init__(self, *topics: str) -> None:
        metadata = MetadataCache()
        (topic,) = topics
        metadata.update(update_metadata(topic, states=[partition_metadata()], live=[broker_metadata(1)]))
        self.own: dict[str, dict[str, str]] = {OFFSETS: {"cleanup.policy": "compact"}}
        in_force = SettingsInForce(broker_settings({"zookeeper.connect": "z:1"}))
        dynamic = SimpleNamespace(update=self._update, get=lambda kind, name: self.own.get(name, {}))
        self.view = SettingsView(in_force)
        self.changes = SettingChanges(1, self.view, in_force, cast(Any, dynamic), metadata)

    def _update(self, kind: str, name: str, change: Any) -> Deferred[None]:
        def updated() -> None:
            self.own[name] = change(dict(self.own.get(name, {})))

        return maybeDeferred(updated)

    def set(
        self, topic: str, name: str, value: str | None, *, validate_only: bool = False
    ) -> BrokerError | None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        return self._outcome(
            self.changes.alter(
                ResourceType.TOPIC, topic, [Alteration(name, operation, value)], validate_only=validate_only
            )
        )

    def replace(self, topic: str, **configs: str) -> BrokerError | None:
        values = {name.replace("_", "."): value for name, value in configs.items()}
        return self._outcome(self.changes.replace(ResourceType.TOPIC, topic, values, validate_only=False))

    @staticmethod
    def _outcome(done: Deferred[BrokerError | None]) -> BrokerError | None:
        outcomes: list[BrokerError | None] = []
        done.addCallback(outcomes.append)
        (outcome,) = outcomes
        return outcome


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", None),
        ("max.message.bytes", "100"),
        ("max.message.bytes", "14"),
        ("min.insync.replicas", "100"),
        ("min.cleanable.dirty.ratio", "1"),
        ("max.compaction.lag.ms", "1"),
        ("message.timestamp.before.max.ms", "0"),
        ("message.timestamp.after.max.ms", "0"),
        ("message.timestamp.type", "LogAppendTime"),
        ("check.expected.offsets", "true"),
        ("delete.retention.ms", "0"),
        ("min.compaction.lag.ms", "1000"),
        ("file.delete.delay.ms", "1"),
        ("index.interval.bytes", "0"),
        ("segment.index.bytes", "4"),
        ("segment.ms", "1"),
        ("segment.bytes", "14"),
        ("key.versions", "true"),
        ("single.writer", "required"),
        ("single.reader", "required"),
    ],
)
def test_an_internal_topic_is_not_given_settings_with_which_brokers_lose_their_state(
    name: str, value: str | None
) -> None:
    topics = Topics(OFFSETS)
    for validate_only in (True, False):
        refused = topics.set(OFFSETS, name, value, validate_only=validate_only)
        assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
        assert name in str(refused.message)
    assert topics.own[OFFSETS] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.message.bytes", "2000000"),
        ("min.insync.replicas", "1"),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("max.compaction.lag.ms", "60000"),
        ("retention.ms", "1"),
        ("segment.bytes", "104857600"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_other_settings_of_an_internal_topic_can_be_altered(name: str, value: str) -> None:
    topics = Topics(OFFSETS)
    assert topics.set(OFFSETS, name, value) is None
    assert topics.own[OFFSETS] == {"cleanup.policy": "compact", name: value}


def test_a_setting_that_an_internal_topic_has_already_does_not_prevent_other_changes() -> None:
    topics = Topics(OFFSETS)
    topics.own[OFFSETS]["min.insync.replicas"] = "3"
    assert topics.set(OFFSETS, "max.message.bytes", "2000000") is None
    assert topics.set(OFFSETS, "min.insync.replicas", None) is None


def test_replacing_all_settings_of_an_internal_topic_must_keep_it_compacted() -> None:
    topics = Topics(OFFSETS)
    assert topics.replace(OFFSETS) is not None
    assert topics.replace(OFFSETS, cleanup_policy="compact") is None


def test_a_client_sets_no_tiny_segments_but_may_keep_those_that_a_topic_has() -> None:
    topics = Topics("t")
    refused = topics.set("t", "segment.bytes", "14")
    assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
    assert "log.segment.bytes.min" in str(refused.message)
    assert topics.set("t", "segment.bytes", "1048576") is None
    topics.own["t"]["segment.bytes"] = "14"
    assert topics.set("t", "retention.ms", "5") is None
    shared = topics.changes.alter(
        ResourceType.BROKER,
        "",
        [Alteration("log.segment.bytes", ConfigOperation.SET, "14")],
        validate_only=False,
    )
    assert topics._outcome(shared) is not None


@pytest.mark.parametrize(
    ("of_topic", "of_brokers", "value"),
    [
        ("segment.ms", "log.roll.ms", "999"),
        ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", "999"),
        ("segment.index.bytes", "log.index.size.max.bytes", "999"),
    ],
)
def test_a_client_makes_no_log_begin_a_segment_with_each_append(
    of_topic: str, of_brokers: str, value: str
) -> None:
    topics = Topics("t")
    refused = topics.set("t", of_topic, value)
    assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
    assert topics.set("t", of_topic, "1000") is None
    topics.own["t"][of_topic] = value
    assert topics.set("t", "retention.ms", "5") is None
    with pytest.raises(SettingError, match="expected at least"):
        topics.view.check_new_topic("new", {of_topic: value}, None)
    shared = topics.changes.alter(
        ResourceType.BROKER, "", [Alteration(of_brokers, ConfigOperation.SET, value)], validate_only=True
    )
    assert topics._outcome(shared) is not None


@pytest.mark.parametrize("of_brokers", [False, True])
def test_a_client_makes_no_index_so_sparse_that_looking_for_an_offset_walks_through_a_segment(
    *, of_brokers: bool
) -> None:
    topics = Topics("t")
    kind, name, resource = (
        (ResourceType.BROKER, "", "log.index.interval.bytes")
        if of_brokers
        else (ResourceType.TOPIC, "t", "index.interval.bytes")
    )

    def set_to(value: int) -> BrokerError | None:
        alteration = Alteration(resource, ConfigOperation.SET, str(value))
        return topics._outcome(topics.changes.alter(kind, name, [alteration], validate_only=True))

    refused = set_to(INDEX_INTERVAL_BYTES_MAX + 1)
    assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
    assert f"at most {INDEX_INTERVAL_BYTES_MAX}" in str(refused.message)
    assert set_to(INDEX_INTERVAL_BYTES_MAX) is None


def test_a_client_makes_no_index_so_dense_that_it_does_not_fit_into_memory() -> None:
    topics = Topics("t")
    refused = topics.set("t", "index.interval.bytes", str(INDEX_INTERVAL_BYTES_MIN - 1))
    assert refused is not None and refused.code is ErrorCode.INVALID_CONFIG
    assert f"at least {INDEX_INTERVAL_BYTES_MIN}" in str(refused.message)
    assert topics.set("t", "index.interval.bytes", str(INDEX_INTERVAL_BYTES_MIN)) is None


def test_a_topic_keeps_a_sparse_index_that_it_has_and_none_is_created_with_one() -> None:
    topics = Topics("t")
    sparse = {"index.interval.bytes": str(INDEX_INTERVAL_BYTES_MAX + 1)}
    topics.own["t"] = dict(sparse)
    assert topics.set("t", "retention.ms", "5") is None
    assert "at most" in refusal_of_new_topic(topics.view, "new", sparse, None)


def refusal_of_new_topic(
    view: SettingsView, topic: str, configs: Mapping[str, str], replicas: int | None
) -> str:
    """Why a client may not create a topic; empty if it may."""
    try:
        view.check_new_topic(topic, configs, replicas)
    except SettingError as error:
        return str(error)
    return ""


def refusal_of_offsets_topic(configs: Mapping[str, str], replicas: int | None, **of_file: str) -> str:
    """Why a client may not create `__consumer_offsets` at a broker with these settings in its file."""
    in_file = {name.replace("_", "."): value for name, value in of_file.items()}
    view = SettingsView(SettingsInForce(broker_settings({"zookeeper.connect": "z:1", **in_file})))
    return refusal_of_new_topic(view, OFFSETS, {"cleanup.policy": "compact", **configs}, replicas)


def test_a_client_that_creates_the_offsets_topic_cannot_stop_groups_by_its_replicas() -> None:
    assert refusal_of_offsets_topic({"min.insync.replicas": "3"}, 3) == ""
    assert refusal_of_offsets_topic({}, None) == ""
    assert refusal_of_offsets_topic({"min.insync.replicas": "1"}, 1, min_insync_replicas="2") == ""
    for refusal in (
        refusal_of_offsets_topic({}, 1, min_insync_replicas="2"),
        refusal_of_offsets_topic({"min.insync.replicas": "4"}, 3),
        refusal_of_offsets_topic({"min.insync.replicas": "2"}, None),
    ):
        assert "must be at most" in refusal


def test_a_client_that_creates_the_offsets_topic_makes_no_tiny_segments() -> None:
    assert "at least" in refusal_of_offsets_topic({"segment.bytes": "14"}, 3)
    assert refusal_of_offsets_topic({"segment.bytes": "4096"}, 3, offsets_topic_segment_bytes="4096") == ""


@pytest.mark.parametrize(("assignments", "replicas"), [({0: [1, 2], 1: [1]}, -1), ({}, 1)])
def test_create_topics_counts_the_replicas_that_a_client_asks_for(
    assignments: dict[int, list[int]], replicas: int
) -> None:
    topic = TopicCreation(OFFSETS, -1, replicas, assignments, {})
    assert replicas_of(topic) == 1
    assert replicas_of(TopicCreation(OFFSETS)) is None
