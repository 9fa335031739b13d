"""Which broker coordinates a group, and the topic that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.offsets_topic import offsets_topic
from holdfast_log.broker.groups.settings import OffsetsTopicSettings
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC, partition_of_group
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.groups.group_broker import GroupBroker


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


@pytest.mark.parametrize(
    ("group", "partition"),
    # The hash codes are Java's; of a character beyond 16 bits they count the two halves
    [
        ("", 0),
        ("abc", 96354 % 50),
        ("hello", 99162322 % 50),
        ("polygenelubricants", 0),
        ("\U0001f600", (0xD83D * 31 + 0xDE00) % 50),
    ],
)
def test_a_groups_partition_is_computed_as_in_kafka(group: str, partition: int) -> None:
    # "polygenelubricants" hashes to the smallest number there is, whose sign cannot be turned
    assert partition_of_group(group, 50) == partition


def test_the_first_lookup_creates_the_offsets_topic(broker: GroupBroker) -> None:
    (found,) = broker.client().call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators

    assert broker.created == [OFFSETS_TOPIC]
    assert (found.error_code, found.node_id, found.port) == (0, 1, 9001)
    broker.client().call(FindCoordinatorRequest(coordinator_keys=["h"]))
    assert broker.created == [OFFSETS_TOPIC], "once"


def test_the_offsets_topic_is_created_by_the_settings() -> None:
    settings = broker_settings(
        {
            "zookeeper.connect": "z:1",
            "offsets.topic.num.partitions": 7,
            "offsets.topic.replication.factor": 2,
            "offsets.topic.segment.bytes": 4096,
        }
    )
    topic = offsets_topic(read_group(OffsetsTopicSettings, settings))

    assert (topic.num_partitions, topic.replication_factor) == (7, 2)
    configs = {config.name: config.value for config in topic.configs}
    assert configs == {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "4096"}


def test_several_groups_are_looked_up_at_once(broker: GroupBroker) -> None:
    broker.make_offsets_topic()
    broker.hand_over("elsewhere", leader=2, leader_epoch=1)
    here = next(g for g in "abc" if broker.partition_of(g) != broker.partition_of("elsewhere"))

    response = broker.client().call(FindCoordinatorRequest(coordinator_keys=[here, "elsewhere"]))

    assert [(each.key, each.node_id) for each in response.coordinators] == [(here, 1), ("elsewhere", 2)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_older_versions_look_up_one_group(broker: GroupBroker, version: int) -> None:
    response = broker.client().call(FindCoordinatorRequest(key="g"), version)
    assert (response.error_code, response.node_id, response.host, response.port) == (0, 1, "127.0.0.1", 9001)


@pytest.mark.parametrize("version", [1, 4])
def test_the_first_lookup_of_a_transactional_id_creates_its_topic(broker: GroupBroker, version: int) -> None:
    request = FindCoordinatorRequest(key="x", key_type=1, coordinator_keys=["x"])

    response = broker.client().call(request, version)

    found = response if version < 4 else response.coordinators[0]
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.created == [TRANSACTIONS_TOPIC]


def test_keys_of_another_type_are_refused(broker: GroupBroker) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])
    assert broker.client().call(request).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_failed_creation_of_the_offsets_topic_is_answered_with_the_reason(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.creation_error = ErrorCode.INVALID_REPLICATION_FACTOR
    client = broker.client()
    for _ in range(3):
        (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "INVALID_REPLICATION_FACTOR" in (found.error_message or "")
    assert caplog.text.count("offsets.topic.replication.factor") == 1, "one line, however many ask"

    broker.creation_error = ErrorCode.NONE
    (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
    assert found.error_code == ErrorCode.NONE


def test_without_a_controller_a_lookup_is_answered_at_once(broker: GroupBroker) -> None:
    broker.controller = Deferred()
    client = broker.client()

    for _ in range(2):
        (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    client.call(ApiVersionsRequest())
    assert broker.created == [OFFSETS_TOPIC], "the topic is requested once for all lookups"

    broker.controller.callback(None)
    (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)


def test_a_partition_without_leader_has_no_coordinator(broker: GroupBroker) -> None:
    broker.make_offsets_topic()
    broker.hand_over("g", leader=-1, leader_epoch=1)

    (found,) = broker.client().call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators

    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
