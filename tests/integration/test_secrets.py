"""Secrets of a broker come from a file and the environment, work, and are shown nowhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker, free_port
from holdfast_log.clients.admin import Admin
from holdfast_log.clients.tools import configs
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.console.served import running_console
from tests.integration import clients
from tests.integration.monitored import MonitoredAddress
from tests.integration.programs import run_module
from tests.integration.raw_socket import RawSocket

KEY_PASSWORD, OF_ALICE, OF_BROKERS = "key-4711-password", "alice-0815-password", "broker-1234-password"
SECRETS = (KEY_PASSWORD, OF_ALICE, OF_BROKERS)
VARIABLE = "HOLDFAST_TEST_OF_ALICE"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Kept:
    """A broker whose properties file has no secret, and where it is reached."""

    broker: BackgroundBroker
    port: int
    monitored: MonitoredAddress
    authority: Path

    def login(self, password: str = OF_ALICE) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def kept(cluster_of_module: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    directory, authority = tmp_path_factory.mktemp("secrets"), Authority()
    authority.write(directory / "authority.pem")
    authority.issue("broker", BOTH_NAMES).write(directory / "broker.pem", KEY_PASSWORD)
    secrets = directory / "secrets.properties"
    secrets.write_text(f"key={KEY_PASSWORD}\nbrokers={OF_BROKERS}\n")
    broker, port, monitored = cluster_of_module.add(), free_port(), MonitoredAddress()
    of_brokers = f"${{file:{secrets}:brokers}}"
    broker.properties |= {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://localhost:{port},"
            f"INTERNAL://localhost:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.key.password": f"${{file:{secrets}:key}}",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{MODULE} user_alice="${{env:{VARIABLE}}}";',
        "listener.name.internal.plain.sasl.jaas.config": (
            f'{MODULE} username="broker" password="{of_brokers}" user_broker="{of_brokers}";'
        ),
        **monitored.settings,
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, OF_ALICE)
        broker.start()
    broker.wait_ready()
    yield Kept(broker, port, monitored, directory / "authority.pem")
    cluster_of_module.show()


def without_secrets(text: str) -> str:
    assert [secret for secret in SECRETS if secret in text] == []
    return text


def test_the_broker_uses_them(kept: Kept) -> None:
    """So it has read them: the key is encrypted, and users have no other password."""
    clients.create_topic(kept.broker.address, "kept")
    with Admin(kept.login()) as admin:
        assert "kept" in admin.list_topics()
    with Admin(kept.login("wrong")) as admin, pytest.raises(Exception, match="uthentication"):
        admin.list_topics()


def test_the_properties_file_has_references_only(kept: Kept) -> None:
    files = [path for path in kept.broker.directory.rglob("*.properties") if path.is_file()]
    assert files
    assert "${file" in "".join(without_secrets(path.read_text()) for path in files)


def test_no_request_for_settings_shows_them(kept: Kept) -> None:
    name = str(kept.broker.broker_id)
    wanted = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[wanted], include_synonyms=True, include_documentation=True)
    with RawSocket(kept.broker.port) as client:
        (found,) = client.call(request).results
    shown = {each.name: each for each in found.configs}
    assert shown["ssl.key.password"].is_sensitive and shown["ssl.key.password"].value is None
    without_secrets(repr(found))
    tool = run_module(
        configs.__name__, "--bootstrap-server", kept.broker.address, "--broker", name, "--describe", "--all"
    )
    assert tool.returncode == 0, tool.stderr
    assert "ssl.key.password=" in without_secrets(tool.stdout + tool.stderr)


def test_neither_metrics_nor_logs_show_them(kept: Kept) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        status, text = kept.monitored.get(path)
        assert status == 200
        without_secrets(text)
    without_secrets(kept.broker.log)


def test_the_console_does_not_show_them(kept: Kept) -> None:
    with (
        running_console(kept.broker.address) as url,
        httpx2.Client(base_url=url, timeout=120, trust_env=False) as browser,
    ):
        settings = browser.get(f"/configs?broker={kept.broker.broker_id}&all=yes")
        first = browser.get("/")
    assert settings.status_code == first.status_code == 200
    assert "ssl.key.password" in without_secrets(settings.text)
    without_secrets(first.text)


def test_the_znodes_do_not_have_them(kept: Kept) -> None:
    """What a broker tells the cluster of itself: its listeners, and settings that were altered."""
    from kazoo.client import KazooClient

    client = KazooClient(kept.broker.properties["zookeeper.connect"])
    client.start(120)
    try:
        found = [client.get(f"/brokers/ids/{kept.broker.broker_id}")[0].decode()]
        found += [json.dumps(client.get_children("/config/users"))]
    finally:
        client.stop()
        client.close()
    for each in found:
        without_secrets(each)
