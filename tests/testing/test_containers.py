"""HoldfastContainer: what it asks of a container engine, and the program that its container runs.

A recorder stands for the engine. The container itself runs only where an engine answers and has the image.
"""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
from holdfast_log.broker.tools.broker_process import known_brokers
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from holdfast_log.testing import containers
from holdfast_log.testing.containers import HoldfastContainer, start_script
from tests.zookeeper import docker_answers

HOME = Path(__file__).parents[2]
IMAGE = "holdfast"
START_TIMEOUT_S = 240


class Engine:
    """Records what a container engine is asked for: testcontainers' client, and docker's container."""

    id = "f00"
    short_id = "f00"

    def __init__(self) -> None:
        self.created: dict[str, Any] = {}
        self.files: dict[str, tuple[str, str]] = {}
        """The directory and text of each file that was put into the container, in order."""
        self.status = "running"
        self.removed = 0
        self.client = self

    def create(self, image: str, **arguments: Any) -> Engine:
        self.created = {"image": image, **arguments}
        return self

    def put_archive(self, directory: str, data: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                held = archive.extractfile(entry)
                assert held is not None and entry.mode & 0o444 == 0o444
                self.files[entry.name] = (directory, held.read().decode())

    def logs(self, **_: Any) -> bytes:
        return b"the last lines"

    def remove(self, **_: Any) -> None:
        self.removed += 1

    def start(self, container: Any) -> None: ...
    def reload(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr("testcontainers.core.container.DockerClient", lambda **_: engine)
    monkeypatch.setattr("testcontainers.core.container.c.ryuk_disabled", True, raising=False)
    monkeypatch.setattr(HoldfastContainer, "get_container_host_ip", lambda _: "docker.example")
    monkeypatch.setattr(HoldfastContainer, "get_exposed_port", lambda _, port: {9092: 32768}[port])
    monkeypatch.setattr(HoldfastContainer, "get_wrapped_container", lambda _: engine)
    monkeypatch.setattr(HoldfastContainer, "get_logs", lambda _: (engine.logs(), b""))
    return engine


def test_the_container_waits_for_a_script_that_advertises_the_port_it_was_given(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def serves_at_the_third_look(host: str, port: int) -> int:
        asked.append((host, port))
        return len(asked) // 3

    monkeypatch.setattr(containers, "known_brokers", serves_at_the_third_look)
    container = HoldfastContainer(IMAGE, properties={"auto.create.topics.enable": "true"}, tty=True)
    with container.with_env("A", "b") as holdfast:
        assert holdfast.get_bootstrap_server() == "docker.example:32768"

    assert asked == [("docker.example", 32768)] * 3
    assert engine.created["image"] == IMAGE and engine.created["tty"] is True
    assert engine.created["environment"] == {"A": "b"} and engine.created["ports"] == {"9092": None}
    assert engine.created["entrypoint"] == ["/bin/sh", "-c"]
    script, marker = engine.files
    (waits,) = engine.created["command"]
    assert waits == (
        f"until [ -f /var/lib/holdfast/{marker} ]; do sleep 0.1; done; . /var/lib/holdfast/{script}"
    )
    directory, text = engine.files[script]
    assert directory == "/var/lib/holdfast"
    assert "OUTSIDE://docker.example:32768" in text and "--override=auto.create.topics.enable=true" in text
    assert engine.removed == 1


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        ("exited", RuntimeError, "exited before its broker served"),
        ("running", TimeoutError, "does not serve after 0 s"),
    ],
)
def test_a_broker_that_does_not_serve_is_reported_with_the_containers_log_and_the_container_removed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, status: str, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(containers, "known_brokers", lambda *_: 0)
    engine.status = status

    with pytest.raises(kind, match=f"(?s){said}.*the last lines"):
        HoldfastContainer(IMAGE).start(timeout_s=0)

    assert engine.removed == 1


@pytest.fixture
def program(tmp_path: Path) -> Iterator[str]:
    """The address of a broker that the container's script has started on this machine, with other ports."""
    holdfast = tmp_path / "bin" / "holdfast"
    holdfast.parent.mkdir()
    holdfast.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast_log.command.main "$@"\n')
    holdfast.chmod(holdfast.stat().st_mode | stat.S_IXUSR)
    port, home = free_port(), tmp_path / "home"
    home.mkdir()
    script = start_script(
        f"localhost:{port}",
        home=str(home),
        port=port,
        inner_port=free_port(),
        zookeeper_port=free_port(),
    )
    path = f"{holdfast.parent}{os.pathsep}{os.environ['PATH']}"
    output = tmp_path / "output"
    with open(output, "wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(HOME), "HOLDFAST_STATE": str(tmp_path)},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not known_brokers("127.0.0.1", port):
            assert process.poll() is None and time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        properties = home / "zookeeper" / "effective.properties"
        stops = [str(holdfast), "zookeeper-stop", "--config", str(properties)]
        subprocess.run(stops, env={**os.environ, "PYTHONPATH": str(HOME)}, check=False, capture_output=True)


def test_the_program_of_the_container_moves_records(program: str) -> None:
    """Also for a group: its coordinator is found, at the advertised address."""
    properties = {"bootstrap.servers": program, "group.id": "g", "auto.offset.reset": "earliest"}
    with Admin({"bootstrap.servers": program}) as admin:
        admin.create_topics([NewTopic("first", 1)])
        (node,) = admin.describe_cluster().nodes
    with Producer({"bootstrap.servers": program}) as producer:
        producer.send(Message("first", value="x")).result(timeout_ms=60_000)
    with Consumer(properties) as consumer:
        consumer.add_topic("first")
        records = []
        while not records:
            records = consumer.poll(500)

    assert records[0].value == b"x"
    assert (node.host, node.port) == ("localhost", int(program.rpartition(":")[2]))


@pytest.mark.skipif(not docker_answers(), reason="no container engine answers")
def test_a_container() -> None:
    from docker.errors import ImageNotFound

    container = HoldfastContainer(IMAGE)
    try:
        container.get_docker_client().client.images.get(IMAGE)
    except ImageNotFound:
        pytest.skip(
            "the image is not built: docker build --file config/container/Dockerfile --tag holdfast ."
        )
    with container as holdfast, Admin({"bootstrap.servers": holdfast.get_bootstrap_server()}) as admin:
        admin.create_topics([NewTopic("first", 1)])
        assert "first" in admin.list_topics()
