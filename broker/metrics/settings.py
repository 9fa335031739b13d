"""The settings of metrics, one row each."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from holdfast_log.clients.settings import Setting, SettingType

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/,\s]+)):(?P<port>\d{1,5})")


class HttpAddress(NamedTuple):
    """Where the broker serves metrics. Port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> HttpAddress:
    """The address in a value of `metrics.http.listener`. Raises ValueError, which says what is allowed."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError("host:port, with a port from 0 to 65535, and an IPv6 host in brackets")
    return HttpAddress(match["v6"] or match["host"], int(match["port"]))


def _address(value: Any) -> None:
    parse_address(str(value))


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "metrics.http.listener",
        SettingType.STRING,
        None,
        "Address, host:port, at which the broker serves `/metrics`, `/healthz` and `/readyz` over HTTP; port "
        "0 takes a free port. It asks nobody who they are, and shows the names of topics and groups: put it "
        "on loopback or into a network for monitoring. Unset: nothing is served.",
        check=_address,
    ),
    Setting(
        "metrics.lag.partitions.max",
        SettingType.INT,
        10_000,
        "Maximum number of committed offsets, a group's in one partition each, whose lag a broker shows; for "
        "the others `holdfast_lag_omitted` counts. 0: no lag is shown.",
        minimum=0,
    ),
)
"""Rows of the settings of metrics, in the order of the documentation."""
