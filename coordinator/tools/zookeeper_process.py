"""ZooKeeper servers as child processes, for the local cluster, the benchmarks and the tests.

A child never outlives the process that started it. Its data stays in its directory across `stop`, `kill` and
`start`.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.private_files import make_private
from holdfast_log.coordinator.tools.zookeeper_server import (
    ZooKeeperServerError,
    answers,
    server_command,
    status,
    write_config,
)

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
_POLL_S = 0.001
_STANDING = "TtZX"
"""States of a thread that does not run: stopped, traced, dead, zombie."""


_PORTS_BEGIN = 10_000
_PORTS_END = 32_768
"""Servers have ports from `_PORTS_BEGIN` to before `_PORTS_END`."""

_reservations: list[socket.socket] = []


def free_port() -> int:
    """A TCP port on loopback on which no process listens. Nor does the system give it to an outgoing
    connection, which could have it while the server that uses it is stopped.

    Other processes that call this function do not get the same port while this process lives: an abstract
    Unix socket with the port in its name reserves it, also while the server that uses it is stopped.
    """
    begin = _outgoing_ports_begin()
    end = min(begin, _PORTS_END) if begin > _PORTS_BEGIN else _PORTS_END
    while True:
        port = random.randrange(_PORTS_BEGIN, end)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0holdfast-port-{port}")
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation)
        return port


def _outgoing_ports_begin() -> int:
    """The first port that the system chooses for outgoing connections."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return _PORTS_END  # As on systems that keep to IANA's range.


def stand_still(pid: int) -> None:
    """Stop a process (SIGSTOP), and return once all of its threads have stopped.

    Raises ProcessLookupError if the process does not exist.
    """
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while any(_runs(task) for task in tasks.iterdir()):
        time.sleep(_POLL_S)


def _runs(task: Path) -> bool:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] not in _STANDING
    except OSError:
        return False  # It has ended.


class ZooKeeperProcess:
    """One server with its data in `directory`, on a port of `host`, an address of this machine. `config` is
    added to its configuration, and `java_options` to those of its Java.

    `tick_time_ms` is the granularity of sessions: the minimum session timeout is two ticks.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        host: str = HOST,
        client_port: int | None = None,
        tick_time_ms: int = 500,
        member_id: int = 1,
        members: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        self.host = host
        self.client_port = client_port or free_port()
        self.log_path = self.directory / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._config_path = self.directory / "zookeeper.properties"
        self._config = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.client_port),
            "clientPortAddress": host,
            "tickTime": str(tick_time_ms),
            "minSessionTimeout": str(2 * tick_time_ms),
            "maxSessionTimeout": "600000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr, ruok, dump",
        }
        if members:
            self._config |= {"initLimit": "20", "syncLimit": "10"}
            self._config |= {f"server.{number}": address for number, address in enumerate(members, start=1)}
        self._config |= config or {}
        self._java_options = java_options
        self._member_id = member_id

    @property
    def connect(self) -> str:
        """This server's address in the form of `zookeeper.connect`."""
        return f"{self.host}:{self.client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def leads(self) -> bool:
        """Whether the server is the leader of its ensemble now."""
        try:
            return "Mode: leader" in status(self.host, self.client_port)
        except OSError:
            return False

    def start(self) -> None:
        """Start the server without waiting until it serves: the members of an ensemble wait for each
        other."""
        assert not self.running, "the server is running already"
        data_dir = self.directory / "data"
        make_private(data_dir)
        (data_dir / "myid").write_text(f"{self._member_id}\n")
        write_config(self._config_path, self._config)
        command = server_command(self._config_path, heap="-Xmx128m", log_level="WARN")
        command[1:1] = self._java_options
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
                process_group=0,  # Ctrl-C on a terminal reaches only the parent, which then stops the server
            )

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once the server serves clients. Raises `ZooKeeperServerError` with the end of its log."""
        deadline = time.monotonic() + timeout_s
        while not answers(self.host, self.client_port):
            if not self.running or time.monotonic() > deadline:
                log = self.log_path.read_text(errors="replace")[-2000:]
                raise ZooKeeperServerError(f"ZooKeeper on port {self.client_port} did not start:\n{log}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the server (SIGTERM), and wait until it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (SIGKILL), and wait until it has ended."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server, start it again on its data, and wait until it serves."""
        self.kill()
        self.start()
        self.wait_ready()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): connections stay open, but it does not answer."""
        assert self._process is not None
        stand_still(self._process.pid)

    def resume(self) -> None:
        """Continue a paused process (SIGCONT)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, by: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(by)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def ensemble(directory: str | Path, size: int = 3, *, tick_time_ms: int = 500) -> list[ZooKeeperProcess]:
    """An ensemble that is not started yet; each server has its own directory below `directory`."""
    members = [f"{HOST}:{free_port()}:{free_port()}" for _ in range(size)]
    return [
        ZooKeeperProcess(
            Path(directory) / f"server-{number}",
            tick_time_ms=tick_time_ms,
            member_id=number,
            members=members,
        )
        for number in range(1, size + 1)
    ]


def start_all(servers: Sequence[ZooKeeperProcess]) -> None:
    """Start the servers of an ensemble, and wait until all serve. Raises `ZooKeeperServerError`."""
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready()
