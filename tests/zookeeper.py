"""A real ZooKeeper server for the tests, with a chroot for each test.

If a Docker engine answers, testcontainers runs ZooKeeper's image; otherwise the same server runs as a process
from PySpark's jars. Tests that stop, pause or kill servers use `ZooKeeperProcess` and `ensemble`, which
always run processes.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast_log.coordinator.tools.zookeeper_process import START_TIMEOUT_S, ZooKeeperProcess, ensemble
from holdfast_log.coordinator.tools.zookeeper_server import answers

__all__ = ["ZooKeeperProcess", "ensemble", "running_server", "zookeeper", "zookeeper_server"]

_IMAGE = "zookeeper:3.9"
_CLIENT_PORT = 2181
_chroots = itertools.count(1)


def docker_answers() -> bool:
    """Whether a Docker engine can be reached from here."""
    try:
        from testcontainers.core.docker_client import DockerClient

        return bool(DockerClient(timeout=5).client.ping())
    except Exception:
        return False  # Without the package, an engine or permission, tests use a process.


@contextmanager
def running_server(*, use_docker: bool) -> Iterator[str]:
    """Run a server. Yields its address, as `zookeeper.connect` takes it, once it is ready."""
    with _container() if use_docker else _process() as connect:
        yield connect


@contextmanager
def _container() -> Iterator[str]:
    from testcontainers.core.container import DockerContainer

    container = (
        DockerContainer(_IMAGE)
        .with_exposed_ports(_CLIENT_PORT)
        .with_env("ZOO_TICK_TIME", "500")
        .with_env("ZOO_MAX_CLIENT_CNXNS", "0")
        .with_env("ZOO_ADMINSERVER_ENABLED", "false")
        .with_env("ZOO_4LW_COMMANDS_WHITELIST", "srvr, ruok, dump")
        .with_env("ZOO_CFG_EXTRA", "minSessionTimeout=1000 maxSessionTimeout=600000")
    )
    with container:
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(_CLIENT_PORT))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(host, port):
            assert time.monotonic() < deadline, f"ZooKeeper in a container at {host}:{port} did not start"
            time.sleep(0.1)
        yield f"{host}:{port}"


@contextmanager
def _process() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="holdfast-zookeeper-") as directory:
        server = ZooKeeperProcess(directory)
        server.start()
        try:
            server.wait_ready()
            yield server.connect
        finally:
            server.stop()


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[str]:
    """The address of a server that all tests of this run share. A test must not stop it."""
    with running_server(use_docker=docker_answers()) as connect:
        yield connect


@pytest.fixture
def zookeeper(zookeeper_server: str) -> str:
    """A connect string for the shared server with a chroot that no other test uses."""
    return f"{zookeeper_server}/test-{next(_chroots)}"


@pytest.fixture
def zookeeper_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ZooKeeperProcess]]:
    """A function that starts a server for one test and waits until it is ready. The test may stop, pause or
    kill the server."""
    servers: list[ZooKeeperProcess] = []

    def make(tick_time_ms: int = 500) -> ZooKeeperProcess:
        server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_time_ms=tick_time_ms)
        servers.append(server)
        server.start()
        server.wait_ready()
        return server

    yield make
    for server in servers:
        server.stop()
