"""The broker's log has one line for each change that a client makes, with its sender."""

from __future__ import annotations

import pytest

from clients.admin.admin import Admin
from clients.admin.configs import ConfigChange, ConfigResource
from clients.admin.topics import NewTopic
from protocol.configs import ResourceType
from tests.cluster import Cluster

BY = "by User:ANONYMOUS, client 'operator', at 127.0.0.1 (broker.audit)"


def lines_with(log: str, text: str) -> list[str]:
    return [line for line in log.splitlines() if text in line]


def test_each_change_of_a_topic_has_one_line_with_its_sender(cluster: Cluster) -> None:
    (broker,) = cluster.start()
    with Admin({"bootstrap.servers": cluster.bootstrap, "client.id": "operator"}) as admin:
        admin.create_topics([NewTopic("orders", 2, 1, {"retention.ms": "5000"})])
        admin.create_topics([NewTopic("only-checked", 1, 1)], validate_only=True)
        admin.create_partitions({"orders": 4})
        change = ConfigChange("max.message.bytes", "54321")
        admin.alter_configs({ConfigResource(ResourceType.TOPIC, "orders"): [change]})
        admin.delete_topics(["orders"])

    log = broker.log
    for told in (
        "INFO Created topic orders with 2 partitions, 1 replicas each, settings {'retention.ms': '5000'}",
        "INFO Topic orders now has 4 partitions",
        "INFO Altered settings of topic orders: {'max.message.bytes': '54321'}",
        "INFO Deleted topic orders with all its records",
    ):
        (line,) = lines_with(log, told)
        assert line.endswith(f"{told[5:]}, {BY}")
    assert lines_with(log, "only-checked") == []


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_a_setting_without_effect_is_logged_as_such_when_it_is_set(cluster: Cluster, name: str) -> None:
    (broker,) = cluster.start()
    with Admin({"bootstrap.servers": cluster.bootstrap, "client.id": "operator"}) as admin:
        admin.create_topics([NewTopic("created", 1, 1, {name: "5000"})])
        admin.create_topics([NewTopic("altered", 1, 1)])
        resource = ConfigResource(ResourceType.TOPIC, "altered")
        admin.alter_configs({resource: [ConfigChange(name, "5000")]})
        admin.alter_configs({resource: [ConfigChange("max.message.bytes", "54321")]})

    warnings = lines_with(broker.log, "have no effect in this version")
    assert [
        f"WARNING The settings {name} of topic {topic} " in line
        for topic, line in zip(("created", "altered"), warnings, strict=True)
    ] == [True, True]
