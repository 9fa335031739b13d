"""The settings of several brokers that run from one properties file (`broker.processes`), one process each.

Process 0 has the file's settings, so that a broker keeps its data when it gets siblings. Process k has

- `broker.id` + 1000 k, or a generated id where none is set;
- the port of each listener, of each advertised listener, and of metrics.http.listener, + k;
- in each directory of `log.dirs` the subdirectory `process.k`.

All of them name the same machine, on which no two replicas of a partition may be.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast_log.broker.log.names import parse_process_directory, process_directory
from holdfast_log.broker.log.settings import log_directories
from holdfast_log.broker.metrics.settings import parse_address
from holdfast_log.broker.network.endpoints import parse_endpoints
from holdfast_log.broker.settings.rows import AUTO
from holdfast_log.clients.settings import SettingError

ID_STEP = 1000
"""Distance between the ids of two successive processes."""

_MACHINE_ID = Path("/etc/machine-id")
_SHOWN_MACHINE_ID = 8
_HIGHEST_PORT = 65535


def process_count(settings: Mapping[str, Any], cores: int | None = None) -> int:
    """The number of brokers to run. `cores`: by default those that this process may use."""
    wanted = settings["broker.processes"]
    if wanted != AUTO:
        return int(wanted)
    return max(1, len(os.sched_getaffinity(0)) if cores is None else cores)


def this_machine() -> str:
    """The default of `broker.machine`: the host name, with the beginning of the id of the installed system
    where there is one. Two machines may have one host name, and containers of one image have one id."""
    try:
        machine_id = _MACHINE_ID.read_text().strip()[:_SHOWN_MACHINE_ID]
    except OSError:
        machine_id = ""
    return "-".join(filter(None, (socket.gethostname(), machine_id)))


def settings_of_processes(settings: Mapping[str, Any], count: int, machine: str) -> list[dict[str, str]]:
    """For each process, what replaces the properties file's settings.

    `settings` are the file's. Raises SettingError if two processes would listen on one port.
    """
    _check_ports(settings, count)
    shared = {
        "broker.processes": "1",
        "broker.machine": settings["broker.machine"] or machine,
        "reserved.broker.max.id": str(_highest_reserved_id(settings, count)),
    }
    return [shared | _own(settings, number) for number in range(count)]


def unserved_directories(settings: Mapping[str, Any], count: int) -> list[str]:
    """Directories with the data of processes that run no more, because `broker.processes` was higher."""
    found = []
    for path in log_directories(settings):
        with suppress(OSError):
            for name in os.listdir(path):
                number = parse_process_directory(name)
                if number is not None and number >= count:
                    found.append(os.path.join(path, name))
    return sorted(found)


def _highest_reserved_id(settings: Mapping[str, Any], count: int) -> int:
    """Above it are generated ids, which may not be those of processes."""
    reserved: int = settings["reserved.broker.max.id"]
    first: int = settings["broker.id"]
    return reserved if first < 0 else max(reserved, first + ID_STEP * (count - 1))


def _own(settings: Mapping[str, Any], number: int) -> dict[str, str]:
    if number == 0:
        return {}
    own = {
        "listeners": ",".join(_moved(text, number) for text in settings["listeners"]),
        "log.dirs": ",".join(
            os.path.join(path, process_directory(number)) for path in log_directories(settings)
        ),
    }
    if settings["advertised.listeners"]:
        own["advertised.listeners"] = ",".join(
            _moved(text, number) for text in settings["advertised.listeners"]
        )
    if settings["metrics.http.listener"]:
        own["metrics.http.listener"] = _moved(settings["metrics.http.listener"], number)
    if settings["broker.id"] >= 0:
        own["broker.id"] = str(settings["broker.id"] + ID_STEP * number)
    return own


def _moved(endpoint: str, number: int) -> str:
    """The endpoint with a port that is `number` higher. Port 0 stays: it is any free one."""
    address, _, port = endpoint.strip().rpartition(":")
    return f"{address}:{int(port) + number if int(port) else 0}"


def _check_ports(settings: Mapping[str, Any], count: int) -> None:
    needed = f"with broker.processes={count} each listener needs {count} successive ports"
    owners: dict[int, str] = {}
    for name, address, first in _first_ports(settings):
        if first + count - 1 > _HIGHEST_PORT:
            raise SettingError(f"listeners={address!r} is not allowed: {needed} up to {_HIGHEST_PORT}")
        for port in range(first, first + count if first else 0):
            other = owners.setdefault(port, name)
            if other != name:
                raise SettingError(
                    f"listeners={','.join(settings['listeners'])!r} is not allowed: {needed}, and {other} "
                    f"and {name} would both use port {port}; leave more room between their ports"
                )


def _first_ports(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """(name, address, port) of everything at which the first process listens."""
    for endpoint in parse_endpoints(settings, socket.gethostname()).listeners:
        yield endpoint.name, str(endpoint), endpoint.port
    if settings["metrics.http.listener"]:
        address = parse_address(settings["metrics.http.listener"])
        yield "metrics.http.listener", str(address), address.port
