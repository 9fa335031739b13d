"""A running broker's settings, altered by the script and by a stock client, take effect."""

from __future__ import annotations

import subprocess

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource

from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, create_topic, produce
from tests.integration.programs import run_module
from tests.integration.waiting import until


def configs(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_module("holdfast_log.clients.tools.configs", "--bootstrap-server", bootstrap, *arguments)


def is_taken(bootstrap: str, value: bytes) -> bool:
    """Whether the broker accepts a record of this size."""
    try:
        produce(bootstrap, "events", [value])
    except AssertionError as refusal:
        assert "MSG_SIZE_TOO_LARGE" in str(refusal)
        return False
    return True


def test_settings_are_altered_for_one_broker_and_for_all(cluster: Cluster) -> None:
    (broker,) = cluster.start(1)
    bootstrap = cluster.bootstrap
    create_topic(bootstrap, "events")
    produce(bootstrap, "events", [bytes(5000)])

    defaults = ("--entity-type", "brokers", "--entity-default")
    altered = configs(bootstrap, *defaults, "--alter", "--add-config", "message.max.bytes=2000")
    assert altered.returncode == 0, altered.stderr
    until(lambda: not is_taken(bootstrap, bytes(5000)))

    admin = AdminClient({"bootstrap.servers": bootstrap})
    more = ConfigEntry("message.max.bytes", "9000", incremental_operation=AlterConfigOpType.SET)
    mine = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[more])
    admin.incremental_alter_configs([mine])[mine].result(TIMEOUT_S)
    until(lambda: is_taken(bootstrap, bytes(5000)))

    broker.kill()
    broker.start()
    broker.wait_ready()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until(lambda: 1 in admin.list_topics(timeout=TIMEOUT_S).brokers)
    described = admin.describe_configs([mine])[mine].result(TIMEOUT_S)["message.max.bytes"]
    assert (described.value, described.source) == ("9000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    shown = configs(bootstrap, "--entity-type", "brokers", "--describe").stdout
    assert "message.max.bytes=2000 sensitive=false source=DYNAMIC_DEFAULT_BROKER" in shown
    assert "message.max.bytes=9000 sensitive=false source=DYNAMIC_BROKER" in shown

    deleted = configs(bootstrap, "--broker", "1", "--alter", "--delete-config", "message.max.bytes")
    assert deleted.returncode == 0, deleted.stderr
    until(lambda: not is_taken(bootstrap, bytes(5000)))

    unknown = configs(bootstrap, *defaults, "--alter", "--add-config", "num.network.threads=9")
    assert unknown.returncode == 0, unknown.stderr
    assert "Warning: brokers have no setting num.network.threads, so it has no effect" in unknown.stderr
    fixed = configs(bootstrap, *defaults, "--alter", "--add-config", "num.partitions=9")
    assert fixed.returncode != 0
    assert "Cannot update these configs dynamically: Set(num.partitions)" in fixed.stderr
