"""The broker tells systemd that it serves, and that it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_log.broker.process.service_manager import READY, STOPPING, notify
from tests.integration.test_process import TIMEOUT_S, command


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(TIMEOUT_S)
        yield listener


def test_nothing_is_sent_without_a_service_manager() -> None:
    notify({}, READY, "serving")


def test_a_message_has_the_state_and_a_status(manager: socket.socket) -> None:
    notify({"NOTIFY_SOCKET": manager.getsockname()}, READY, "serving")

    assert manager.recv(1000) == b"READY=1\nSTATUS=serving\n"


def test_an_address_in_the_abstract_namespace_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"holdfast-test-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.settimeout(TIMEOUT_S)

        notify({"NOTIFY_SOCKET": f"@{name}"}, STOPPING, "bye")

        assert listener.recv(1000) == b"STOPPING=1\nSTATUS=bye\n"


def test_a_broker_says_when_it_serves_and_when_it_stops(
    manager: socket.socket, zookeeper: str, tmp_path: Path
) -> None:
    with subprocess.Popen(
        command(zookeeper, tmp_path),
        env={**os.environ, "NOTIFY_SOCKET": manager.getsockname()},
        stdout=subprocess.DEVNULL,
    ) as broker:
        assert manager.recv(1000).startswith(b"READY=1\n")

        broker.send_signal(signal.SIGTERM)

        assert manager.recv(1000).startswith(b"STOPPING=1\n")
        assert broker.wait(TIMEOUT_S) == 0
