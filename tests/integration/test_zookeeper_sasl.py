"""Brokers and the migration script prove to a real ZooKeeper who they are by SASL (DIGEST-MD5)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast_log.coordinator.tools.zookeeper_process import ZooKeeperProcess
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.waiting import until_created

pytest.importorskip("puresasl", reason="the extra zookeeper-sasl is not installed")

HOME = Path(__file__).parents[2]
TIMEOUT_S = 120.0
JAAS = """\
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_broker="of-brokers" user_other="of-others";
};
"""


def login(directory: Path, name: str, line: str) -> str:
    path = directory / name
    path.write_text(line + "\n")
    path.chmod(0o600)
    return str(path)


@dataclass(frozen=True)
class WithUsers:
    """A ZooKeeper server that knows two users."""

    server: ZooKeeperProcess
    directory: Path

    def properties(self, line: str = "broker:of-brokers") -> dict[str, str]:
        return {
            "zookeeper.sasl.file": login(self.directory, "login", line),
            "zookeeper.set.acl": "true",
        }


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithUsers]:
    directory = tmp_path_factory.mktemp("zookeeper-with-users")
    jaas = directory / "server.jaas"
    jaas.write_text(JAAS)
    server = ZooKeeperProcess(
        directory / "server",
        config={"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
        java_options=[f"-Djava.security.auth.login.config={jaas}"],
    )
    server.start()
    try:
        server.wait_ready()
        yield WithUsers(server, directory)
    finally:
        server.stop()
        print(server.log_path.read_text(errors="replace")[-4000:])


@pytest.fixture
def cluster(users: WithUsers, tmp_path: Path) -> Iterator[Cluster]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    brokers = Cluster(directory, f"{users.server.connect}/{tmp_path.name}")
    try:
        yield brokers
    finally:
        brokers.stop()
        brokers.show()


def refused(connect: str, path: str, options: dict[str, str] | None) -> bool:
    """Whether a client of ZooKeeper may not write a znode."""
    client = KazooClient(connect, sasl_options=options)
    client.start(TIMEOUT_S)
    try:
        client.set(path, client.get(path)[0])
    except NoAuthError:
        return True
    finally:
        client.stop()
        client.close()
    return False


def user(name: str, password: str) -> dict[str, str]:
    return {"mechanism": "DIGEST-MD5", "username": name, "password": password}


def test_brokers_work_with_sasl_and_nobody_else_may_write(users: WithUsers, cluster: Cluster) -> None:
    cluster.start(2, users.properties())
    clients.create_topic(cluster.bootstrap, "orders", 2, 2)
    path = "/brokers/topics/orders"
    assert refused(cluster.zookeeper_connect, path, None)
    assert refused(cluster.zookeeper_connect, path, user("other", "of-others"))
    assert not refused(cluster.zookeeper_connect, path, user("broker", "of-brokers"))
    users.server.restart()
    until_created(cluster.bootstrap, "later", replicas=2)
    clients.produce(cluster.bootstrap, "later", [b"one", b"two"], acks="all")
    assert clients.consume(cluster.bootstrap, "later", 2) == [b"one", b"two"]
    assert not any("of-brokers" in broker.log for broker in cluster.brokers)


def test_a_broker_with_a_wrong_password_does_not_start_and_says_why(
    users: WithUsers, cluster: Cluster
) -> None:
    properties = {**users.properties("broker:wrong"), "zookeeper.connection.timeout.ms": "5000"}
    broker = cluster.add(properties)
    broker.start()
    assert broker.wait() == 1
    assert "has not accepted this broker's user by SASL" in broker.log
    assert "did not answer within 5000 ms" in broker.log
    assert broker.log.count("SASL") < 200, "it waits before it tries again"


def test_the_script_opens_and_closes_a_cluster(users: WithUsers, cluster: Cluster) -> None:
    properties = users.properties()
    cluster.start(1, properties)
    for acl, is_open in (("unsecure", True), ("secure", False)):
        done = subprocess.run(
            [
                HOME / "scripts" / "zookeeper-security-migration.sh",
                f"--zookeeper.acl={acl}",
                f"--zookeeper.connect={cluster.zookeeper_connect}",
                f"--zookeeper.sasl.file={properties['zookeeper.sasl.file']}",
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOLDFAST_VENV": sys.prefix},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        client = KazooClient(cluster.zookeeper_connect, sasl_options=user("broker", "of-brokers"))
        client.start(TIMEOUT_S)
        try:
            assert (client.get_acls("/controller")[0] == OPEN_ACL_UNSAFE) is is_open
        finally:
            client.stop()
            client.close()
