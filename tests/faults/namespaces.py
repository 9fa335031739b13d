"""Brokers in network namespaces of their own, each connected by a virtual cable to one bridge.

The process that uses this module must run in a network namespace that it may configure. `prefix` starts it in
one, with a user namespace unless it is root. The machine's own network stays untouched. The namespaces end
with their processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from holdfast_log.broker.tools.place import Place
from holdfast_log.coordinator.parent_process import die_with_parent

CHECKOUT = Path(__file__).parent.parent.parent
BRIDGE = "middle"
HUB = "10.177.0.254"
PORT = 9092
_TOOLS = ("unshare", "nsenter", "ip")
_START_TIMEOUT_S = 60.0


def prefix() -> list[str]:
    """The command prefix that starts a command in an empty network namespace."""
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--net", "--"]


class Namespaces:
    """One network namespace for each of `brokers` brokers. `close` ends them."""

    host = HUB

    def __init__(self, brokers: int) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip("addr", "add", f"{HUB}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for number in range(1, brokers + 1):
            self._add(number)

    def place(self, number: int, zookeeper_connect: str) -> Place:
        host = _address(number)
        holder = self._holders[number - 1]
        launcher = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
        return Place(host, PORT, f"{host}:{PORT}", zookeeper_connect, launcher)

    def cut(self, number: int, pid: int) -> None:
        _ip("link", "set", _cable(number), "down")

    def heal(self, number: int) -> None:
        _ip("link", "set", _cable(number), "up")

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()

    def _add(self, number: int) -> None:
        """Add a namespace. A sleeping process keeps it alive, also while its broker is down."""
        ours = _namespace(os.getpid())
        holder = subprocess.Popen(
            ["unshare", "--net", "--", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        self._holders.append(holder)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while _namespace(holder.pid) == ours:
            assert holder.poll() is None and time.monotonic() < deadline, "unshare made no network namespace"
            time.sleep(0.005)
        cable, end = _cable(number), "eth0"
        _ip("link", "add", cable, "type", "veth", "peer", "name", end, "netns", str(holder.pid))
        _ip("link", "set", cable, "master", BRIDGE)
        _ip("link", "set", cable, "up")
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--", "ip"]
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{_address(number)}/24", "dev", end],
            ["link", "set", end, "up"],
        ):
            subprocess.run([*inside, *command], check=True, capture_output=True)


def _address(number: int) -> str:
    return f"10.177.0.{number}"


def _cable(number: int) -> str:
    return f"cable-{number}"


def _namespace(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def are_possible() -> bool:
    """Whether this process may make network namespaces and has the tools for it."""
    if not all(map(shutil.which, _TOOLS)):
        return False
    trial = [*prefix(), sys.executable, "-m", "tests.faults.namespaces"]
    return subprocess.run(trial, cwd=CHECKOUT, capture_output=True, timeout=300, check=False).returncode == 0


if __name__ == "__main__":
    trial = Namespaces(1)
    trial.cut(1, 0)
    trial.heal(1)
    trial.close()
