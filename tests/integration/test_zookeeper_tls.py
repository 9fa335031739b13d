"""Brokers and the migration script reach a real ZooKeeper over TLS, with certificates on both sides."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import javaproperties
import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast_log.broker.process.zookeeper_identity import make_digest_file
from holdfast_log.coordinator.tools.zookeeper_jars import find_jars
from holdfast_log.coordinator.tools.zookeeper_process import ZooKeeperProcess, free_port
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration import clients
from tests.integration.waiting import until_created

HOME = Path(__file__).parents[2]
TIMEOUT_S = 60.0
NO_NETTY = "the jars of the ZooKeeper server have no Netty, which it needs for TLS: install PySpark"


@dataclass(frozen=True)
class Secure:
    """A ZooKeeper server with a secure port, and stores for those that connect to it."""

    server: ZooKeeperProcess
    port: int
    directory: Path

    def properties(self, name: str = "broker", trusted: str = "authority") -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": str(self.directory / f"{name}.pem"),
            "zookeeper.ssl.truststore.location": str(self.directory / f"{trusted}.pem"),
        }

    def cluster(self, directory: Path, host: str = "localhost") -> Cluster:
        directory.mkdir()
        return Cluster(directory, f"{host}:{self.port}/{directory.parent.name}")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    if not any("netty-handler" in jar for jar in find_jars()):
        pytest.skip(NO_NETTY)
    directory = tmp_path_factory.mktemp("secure-zookeeper")
    authority, strangers = Authority(), Authority("Strangers")
    authority.write(directory / "authority.pem")
    strangers.write(directory / "strangers.pem")
    authority.issue("zookeeper", ("localhost",)).write(directory / "zookeeper.pem")
    authority.issue("broker", BOTH_NAMES).write(directory / "broker.pem")
    strangers.issue("stranger", BOTH_NAMES).write(directory / "stranger.pem")
    port = free_port()
    server = ZooKeeperProcess(
        directory / "server",
        config={
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(directory / "zookeeper.pem"),
            "ssl.trustStore.location": str(directory / "authority.pem"),
            "ssl.clientAuth": "need",
        },
    )
    server.start()
    try:
        server.wait_ready()
        yield Secure(server, port, directory)
    finally:
        server.stop()
        print(server.log_path.read_text(errors="replace")[-4000:])


@pytest.fixture
def cluster(secure: Secure, tmp_path: Path) -> Iterator[Cluster]:
    brokers = secure.cluster(tmp_path / "cluster")
    try:
        yield brokers
    finally:
        brokers.stop()
        brokers.show()


def test_brokers_work_over_tls_and_after_the_server_has_been_away(secure: Secure, cluster: Cluster) -> None:
    cluster.start(2, secure.properties())
    clients.create_topic(cluster.bootstrap, "orders", 2, 2)
    secure.server.restart()
    until_created(cluster.bootstrap, "later", replicas=2)
    clients.produce(cluster.bootstrap, "later", [b"one", b"two"], acks="all")
    assert clients.consume(cluster.bootstrap, "later", 2) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("name", "trusted", "host", "why"),
    [
        ("broker", "strangers", "localhost", "certificate verify failed"),
        ("broker", "authority", "127.0.0.1", "certificate verify failed: IP address mismatch"),
        ("stranger", "authority", "localhost", "did not answer within 4000 ms"),
    ],
)
def test_a_broker_that_does_not_fit_does_not_start_and_says_why(
    secure: Secure, tmp_path: Path, name: str, trusted: str, host: str, why: str
) -> None:
    brokers = secure.cluster(tmp_path / "cluster", host)
    broker = brokers.add({**secure.properties(name, trusted), "zookeeper.connection.timeout.ms": "4000"})
    broker.start()
    try:
        assert broker.wait() == 1
        assert re.search(why, broker.log), broker.log
        assert "ZooKeeper" in broker.log
    finally:
        brokers.stop()


def test_a_setting_that_cannot_work_is_named(secure: Secure, cluster: Cluster) -> None:
    broker = cluster.add({**secure.properties(), "zookeeper.ssl.keystore.location": "/nowhere.pem"})
    broker.start()
    assert broker.wait() == 1
    assert "zookeeper.ssl.keystore.location='/nowhere.pem' cannot be read" in broker.log


def test_a_cluster_is_closed_and_opened_over_tls(secure: Secure, cluster: Cluster, tmp_path: Path) -> None:
    digest_file = tmp_path / "digest"
    make_digest_file(digest_file)
    cluster.start(1, {**secure.properties(), "zookeeper.digest.file": str(digest_file)})
    config = tmp_path / "tls.properties"
    with open(config, "w", encoding="latin-1") as file:
        javaproperties.dump(secure.properties(), file, timestamp=False)

    for acl, is_open in (("secure", False), ("unsecure", True)):
        done = subprocess.run(
            [
                HOME / "scripts" / "zookeeper-security-migration.sh",
                f"--zookeeper.acl={acl}",
                f"--zookeeper.connect={cluster.zookeeper_connect}",
                f"--zookeeper.digest.file={digest_file}",
                f"--zk-tls-config-file={config}",
            ],
            env={**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with_tls = KazooClient(
            cluster.zookeeper_connect,
            use_ssl=True,
            ca=str(secure.directory / "authority.pem"),
            certfile=str(secure.directory / "broker.pem"),
            keyfile=str(secure.directory / "broker.pem"),
        )
        with_tls.start(TIMEOUT_S)
        try:
            assert (with_tls.get_acls("/controller")[0] == OPEN_ACL_UNSAFE) is is_open
        finally:
            with_tls.stop()
            with_tls.close()


def test_the_port_speaks_nothing_but_tls(secure: Secure) -> None:
    """So brokers that work here have TLS."""
    client = KazooClient(f"localhost:{secure.port}")
    with pytest.raises(client.handler.timeout_exception):
        client.start(2)
    client.stop()
    client.close()
    context = ssl.create_default_context(cafile=str(secure.directory / "authority.pem"))
    context.load_cert_chain(str(secure.directory / "broker.pem"))
    with (
        socket.create_connection(("127.0.0.1", secure.port), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        assert (encrypted.version() or "").startswith("TLSv1.")
