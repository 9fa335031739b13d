"""The levels of a broker's loggers are shown and altered while it runs, by our admin client and script."""

from __future__ import annotations

import pytest

from holdfast_log import Admin
from holdfast_log.clients.admin import ConfigChange, ConfigResource, ConfigSource, ResourceType
from tests.cluster import Cluster
from tests.integration.clients import create_topic
from tests.integration.waiting import until

AUDIT = "holdfast_log.broker.requests.audit"


def test_a_level_is_altered_at_once_on_one_broker(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    loggers = ConfigResource(ResourceType.BROKER_LOGGER, "1")
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        levels = {entry.name: entry for entry in admin.describe_configs([loggers])[loggers]}
        assert levels["root"].value == levels[AUDIT].value == "INFO"
        assert levels[AUDIT].source is ConfigSource.DYNAMIC_BROKER_LOGGER
        admin.alter_configs({loggers: [ConfigChange("root", "DEBUG"), ConfigChange(AUDIT, "ERROR")]})
        levels = {entry.name: entry for entry in admin.describe_configs([loggers])[loggers]}
        assert (levels["root"].value, levels[AUDIT].value) == ("DEBUG", "ERROR")
        other = ConfigResource(ResourceType.BROKER_LOGGER, "2")
        levels = {entry.name: entry for entry in admin.describe_configs([other])[other]}
        assert levels["root"].value == "INFO"
        with pytest.raises(Exception, match="does not exist"):
            admin.alter_configs({loggers: [ConfigChange("no.such.logger", "DEBUG")]})
        with pytest.raises(Exception, match="Valid log levels"):
            admin.alter_configs({loggers: [ConfigChange("root", "LOUD")]})
        admin.alter_configs({loggers: [ConfigChange("root", "ERROR")]})
    before = first.log
    create_topic(cluster.bootstrap, "quiet", partitions=2, replicas=2)
    assert "quiet" not in first.log.removeprefix(before)
    until(lambda: "quiet" in second.log)
