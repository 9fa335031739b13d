"""Changes of settings in ZooKeeper whose present values cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import fail

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.settings.changes import SettingChanges
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from tests.models.orders import broker_metadata, partition_metadata, update_metadata


def test_settings_that_cannot_be_read_are_not_altered_and_the_answer_names_the_znode() -> None:
    metadata = MetadataCache()
    metadata.update(update_metadata(states=[partition_metadata()], live=[broker_metadata(1)]))
    garbage = BadZnode("/config/topics/t does not hold JSON")
    dynamic = SimpleNamespace(update=lambda kind, name, change: fail(garbage))
    changes = SettingChanges(1, cast(Any, None), cast(Any, None), cast(Any, dynamic), metadata)
    answers: list[BrokerError | None] = []
    changes.alter(ResourceType.TOPIC, "t", [], validate_only=False).addCallback(answers.append)
    (refused,) = answers
    assert refused is not None and refused.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "/config/topics/t does not hold JSON" in str(refused.message)
