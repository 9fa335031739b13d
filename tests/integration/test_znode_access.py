"""With `zookeeper.set.acl` only brokers change znodes, and a cluster is closed and opened while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast_log.broker.process.zookeeper_identity import make_digest_file
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.coordinator.znodes.access import restricted
from holdfast_log.coordinator.zookeeper.access import ZnodeAccess
from tests.cluster import Cluster
from tests.integration import clients

HOME = Path(__file__).parent.parent.parent
TIMEOUT_S = 60.0
SCRIPT = HOME / "scripts" / "zookeeper-security-migration.sh"
REFUSED = (NoAuthError, NoNodeError, NotEmptyError)
"""An ephemeral znode may have ended with its session since it was listed. The root of a cluster is not empty;
what is above it decides who may remove it."""


@pytest.fixture
def digest_file(tmp_path: Path) -> Path:
    make_digest_file(tmp_path / "digest")
    return tmp_path / "digest"


def closed(digest_file: Path) -> dict[str, str]:
    return {"zookeeper.digest.file": str(digest_file), "zookeeper.set.acl": "true"}


@contextmanager
def stranger(connect: str, digest: str | None = None) -> Iterator[KazooClient]:
    """A client of ZooKeeper without the brokers' password, and perhaps with another one."""
    hosts, _, chroot = connect.partition("/")
    client = KazooClient(hosts, timeout=TIMEOUT_S, auth_data=None if digest is None else [("digest", digest)])
    client.start(TIMEOUT_S)
    client.chroot = f"/{chroot}"
    try:
        yield client
    finally:
        client.stop()
        client.close()


def every_path(client: KazooClient, path: str = "/") -> Iterator[str]:
    yield path
    try:
        children = client.get_children(path)
    except REFUSED:
        return
    for name in children:
        yield from every_path(client, f"{path.rstrip('/')}/{name}")


def is_refused(client: KazooClient, path: str) -> bool:
    """Whether a client may neither write nor remove a znode, nor create one below it, nor change its list."""
    attempts = (
        lambda: client.set(path, b"{}"),
        lambda: client.create(f"{path.rstrip('/')}/mine", b""),
        lambda: client.delete(path),
        lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
    )
    for attempt in attempts:
        try:
            attempt()
        except REFUSED:
            continue
        except KazooException as error:
            raise AssertionError(f"{path}: {error!r}") from error
        return False
    return True


def test_a_stranger_changes_nothing(cluster: Cluster, digest_file: Path) -> None:
    brokers = cluster.start(2, closed(digest_file))
    clients.create_topic(cluster.bootstrap, "orders", 2, 2)
    clients.produce(cluster.bootstrap, "orders", [b"one", b"two"])
    owner = ExclusiveProducer({"bootstrap.servers": cluster.bootstrap}, "orders", session_timeout_ms=60_000)
    for digest in (None, "holdfast:guessed"):
        with stranger(cluster.zookeeper_connect, digest) as client:
            paths = list(every_path(client))
            assert {"/controller", "/brokers/ids/1", "/holdfast/log_directories", "/config/users"} <= set(
                paths
            )
            assert {"/brokers/topics/orders/partitions/0/state", "/holdfast/leases"} <= set(paths)
            for path in paths:
                access = restricted(path)
                assert is_refused(client, path) != (access is ZnodeAccess.EVERYBODY), path
                if access is ZnodeAccess.CLOSED:
                    with pytest.raises(REFUSED):
                        client.get(path)
                elif not path.startswith("/consumers"):
                    with suppress(NoNodeError):  # It may have ended since it was listed.
                        client.get(path)
    owner.send(Message("orders", value="three"))
    owner.flush(60_000)
    owner.close()

    brokers[0].restart()
    cluster.make_whole()
    clients.create_topic(cluster.bootstrap, "later", 1, 2)
    assert len(clients.consume(cluster.bootstrap, "orders", 3)) == 3


def test_a_broker_without_the_password_says_what_is_missing(cluster: Cluster, digest_file: Path) -> None:
    (broker,) = cluster.start(1, closed(digest_file))
    other = cluster.add()
    other.start()
    assert other.wait() == 1
    assert "ZooKeeper does not let this broker use /" in other.log
    assert "set zookeeper.digest.file or zookeeper.sasl.file to what the other brokers have" in other.log
    assert broker.running


def test_a_cluster_is_closed_and_opened_again_while_it_runs(cluster: Cluster, digest_file: Path) -> None:
    brokers = cluster.start(3)
    bootstrap = cluster.bootstrap
    replicated = {"min.insync.replicas": "2"}
    clients.create_topic(bootstrap, "orders", 2, 3, replicated)
    written = [b"open"]
    clients.produce(bootstrap, "orders", written)

    def write(value: bytes) -> None:
        clients.produce(bootstrap, "orders", [value], **{"enable.idempotence": True})
        written.append(value)

    roll(cluster, brokers, {"zookeeper.digest.file": str(digest_file)}, write)
    roll(cluster, brokers, {"zookeeper.set.acl": "true"}, write)
    said = migrate(cluster, "secure", digest_file)
    assert said.returncode == 0 and "are now restricted" in said.stdout, said.stderr
    with stranger(cluster.zookeeper_connect) as client:
        wrong = [path for path in every_path(client) if not is_refused(client, path)]
        assert [path for path in wrong if not path.startswith("/consumers")] == []
    clients.create_topic(bootstrap, "closed", 1, 3, replicated)
    write(b"closed")
    roll(cluster, brokers, {}, write)

    without = migrate(cluster, "unsecure", None)
    assert without.returncode == 1 and "--zookeeper.digest.file" in without.stderr
    roll(cluster, brokers, {"zookeeper.set.acl": "false"}, write)
    said = migrate(cluster, "unsecure", digest_file)
    assert said.returncode == 0 and "are now open to everybody" in said.stdout, said.stderr
    roll(cluster, brokers, {"zookeeper.digest.file": None}, write)
    with stranger(cluster.zookeeper_connect) as client:
        for path in every_path(client):
            assert client.get_acls(path)[0] == OPEN_ACL_UNSAFE, path
    clients.create_topic(bootstrap, "reopened", 1, 3, replicated)

    assert sorted(clients.consume(bootstrap, "orders", len(written))) == sorted(written)


def roll(
    cluster: Cluster, brokers: list[BackgroundBroker], changes: dict[str, str | None], write: object
) -> None:
    """Restart one broker after the other with changed settings (None: without), and write between."""
    assert callable(write)
    for broker in brokers:
        broker.stop()
        for name, value in changes.items():
            broker.properties.pop(name, None)
            if value is not None:
                broker.properties[name] = value
        write(f"without {broker.broker_id}, {changes}".encode())
        broker.start()
        broker.wait_ready(len(brokers))


def migrate(cluster: Cluster, acl: str, digest_file: Path | None) -> subprocess.CompletedProcess[str]:
    given = [] if digest_file is None else [f"--zookeeper.digest.file={digest_file}"]
    return subprocess.run(
        [SCRIPT, f"--zookeeper.acl={acl}", f"--zookeeper.connect={cluster.zookeeper_connect}", *given],
        env={**os.environ, "PYTHONPATH": str(HOME), "HOLDFAST_VENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_migration_says_what_it_needs(cluster: Cluster) -> None:
    done = migrate(cluster, "secure", None)
    assert done.returncode == 1 and "zookeeper.digest.file or zookeeper.sasl.file: name a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_migration_leaves_the_znodes_of_other_programs(cluster: Cluster, digest_file: Path) -> None:
    cluster.start(1)
    with stranger(cluster.zookeeper_connect) as client:
        client.create("/of-somebody-else/deep", b"x", makepath=True)

        assert migrate(cluster, "secure", digest_file).returncode == 0

        assert client.get_acls("/of-somebody-else/deep")[0] == OPEN_ACL_UNSAFE
        assert is_refused(client, "/controller")
        assert is_refused(client, "/")
