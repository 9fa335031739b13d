"""A broker as a child process: started, stopped, killed, paused, and started again on its data.

A child never outlives the process that started it. Its properties, data and log stay in its directory.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar, Protocol

import javaproperties

from holdfast_log.broker.network.endpoints import BROKERS
from holdfast_log.broker.process.supervisor import PROGRAM
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.private_files import make_private
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT, import_path
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port, stand_still
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.metadata import MetadataRequest

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0
_POLL_S = 0.02
_METADATA_VERSION = 1


class BrokerProcessError(Exception):
    """The broker did not start, or ended unexpectedly; the message has the end of its log."""


class ChildProcess(Protocol):
    """What is done to a process that was started: `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class BackgroundBroker:
    """One broker in `directory`, on loopback ports: `port` is for clients, `brokers_port` for brokers.

    `properties` are added to those that every such broker has: its id, its listeners, its log directory,
    ZooKeeper's address, and an offsets topic with one replica. `python_arguments` go before `-m`, for a
    profiler. For a broker with an address of its own, `host` is that address and `launcher` the command
    that starts a program where the address exists. `checkout` has the sources to run, by default these.
    """

    can_restrict_znodes: ClassVar[bool] = True
    """Whether the program has Holdfast's settings of who may write the brokers' znodes."""

    def __init__(
        self,
        directory: str | Path,
        *,
        broker_id: int,
        zookeeper_connect: str,
        port: int | None = None,
        brokers_port: int | None = None,
        host: str = HOST,
        launcher: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        python_arguments: Sequence[str] = (),
        checkout: Path = IMPORT_ROOT,
    ) -> None:
        self.directory = Path(directory)
        self.broker_id = broker_id
        self.port = port or free_port()
        self.brokers_port = brokers_port or free_port()
        self.host = host
        self.log_path = self.directory / "broker.log"
        self.properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{self.port},{BROKERS}://{host}:{self.brokers_port}",
            "inter.broker.listener.name": BROKERS,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{BROKERS}:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "zookeeper.connect": zookeeper_connect,
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **(properties or {}),
        }
        self._python_arguments = python_arguments
        self._checkout = checkout
        self._launcher = launcher
        self._process: ChildProcess | None = None

    @property
    def address(self) -> str:
        """host:port of this broker for clients."""
        return f"{self.host}:{self.port}"

    @property
    def log_dirs(self) -> list[Path]:
        return [Path(text) for text in self.properties["log.dirs"].split(",")]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The status with which the process has ended by itself, a negative signal number if it was killed;
        None while it runs, and before the first start."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """The broker's standard output and error, from its first start on."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the broker without waiting for it."""
        assert not self.running, "the broker is running already"
        make_private(self.directory)
        config = self.directory / "server.properties"
        with open(config, "w", encoding="latin-1") as file:
            javaproperties.dump(self.properties, file, timestamp=False)
        with open(self.log_path, "ab") as log:
            self._process = self._launch(config, log)

    def _launch(self, config: Path, log: BinaryIO) -> ChildProcess:
        """Start the program with this properties file, its output going to `log`."""
        return subprocess.Popen(
            [
                *self._launcher,
                sys.executable,
                "-P",
                *self._python_arguments,
                "-m",
                PROGRAM,
                str(config),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": import_path(self._checkout)},
            preexec_fn=die_with_parent,
            process_group=0,  # Ctrl-C is for the parent process, which stops this one in order
        )

    def wait_ready(self, brokers: int = 1, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once this broker answers and knows `brokers` live brokers, itself included.

        Raises `BrokerProcessError`, with the end of its log, if it ends or takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while known_brokers(self.host, self.port) < brokers:
            if not self.running:
                raise BrokerProcessError(f"broker {self.broker_id} ended while starting:\n{self.log[-3000:]}")
            if time.monotonic() > deadline:
                raise BrokerProcessError(
                    f"broker {self.broker_id} was not ready after {timeout_s:.0f} s:\n{self.log[-3000:]}"
                )
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop the broker cleanly (SIGTERM) and wait for its end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker (SIGKILL) and wait for its end."""
        self._end(signal.SIGKILL)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait for the broker's end, and return its exit status. Raises `BrokerProcessError` if it has not
        ended after `timeout_s`."""
        assert self._process is not None, "the broker is not running"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerProcessError(
                f"broker {self.broker_id} did not end within {timeout_s:.0f} s:\n{self.log[-3000:]}"
            ) from None

    def restart(self) -> None:
        """Stop the broker cleanly, start it on its data and wait until it is ready."""
        self.stop()
        self.start()
        self.wait_ready()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): its connections stay open, and it does not answer."""
        stand_still(self.pid)

    def resume(self) -> None:
        """Resume a paused process (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, by: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(by)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerProcessError(
                f"broker {self.broker_id} did not stop within {STOP_TIMEOUT_S:.0f} s:\n{self.log[-3000:]}"
            ) from None
        finally:
            self._process = None


def known_brokers(host: str, port: int) -> int:
    """Number of live brokers that the broker at this address knows; 0 if it does not answer yet."""
    request = join_parts(encode_request(MetadataRequest(topics=[]), _METADATA_VERSION, 0, "local-cluster"))
    try:
        with socket.create_connection((host, port), timeout=2.0) as connection:
            connection.sendall(request)
            (size,) = SIZE.unpack(receive(connection, SIZE.size))
            answer = decode_response(MetadataRequest, _METADATA_VERSION, receive(connection, size))
    except (OSError, EOFError):
        return 0
    return len(answer.brokers)


def receive(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises EOFError if the connection ends before."""
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
