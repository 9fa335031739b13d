"""What the costliest requests of each API and version cost: the limits, the table, its place in a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.hostile.neighbour import Pace

BEGIN = "<!-- Written by scripts/hostile-requests.sh: begin -->"
END = "<!-- Written by scripts/hostile-requests.sh: end -->"

TURN_MS_MAX = 50.0
"""Maximum processor time in ms of the reactor in one turn."""
GROWTH_BYTES_MAX = 256 << 20
"""Maximum growth of the broker's resident memory."""
LEFT_BYTES_MAX = 64 << 20
"""Maximum growth of it that is left when the hostile connections are closed."""
NEIGHBOUR_RATIO_MAX = 2.0
"""So many times as long as before may a neighbour's rounds take, at the 99th percentile."""
NEIGHBOUR_MS_FLOOR = 10.0
"""Shorter rounds of a neighbour are within its limit: the system's scheduler alone may cause them."""
CONTROLLER_MS_MAX = 1000.0
"""Maximum time in ms until an order on the brokers' listener is answered."""


def neighbour_ms_max(before: Pace) -> float:
    """The longest p99 in ms of a neighbour that had this pace before."""
    return max(NEIGHBOUR_RATIO_MAX * before.p99_ms, NEIGHBOUR_MS_FLOOR)


@dataclass(frozen=True, slots=True)
class Row:
    """The worst of all requests of one version of an API, alone and in sequences."""

    api: str
    version: int
    requests: int
    """Requests that were sent in all."""
    longest_ms: float
    longest_of_bytes: int
    """Size of the request with the longest turn."""
    answer_bytes: int
    """Size of the largest answer to one request."""
    grown_bytes: int
    left_bytes: int
    before: Pace
    during: Pace
    """The slowest of the neighbour's paces during single requests and during each sequence."""
    controller: Pace
    where: str = ""
    """What the broker did in the longest turn."""
    failure: str = ""
    """Why the attack has ended early: the broker did not serve any more, or a neighbour could not go on."""

    @property
    def name(self) -> str:
        return f"{self.api} v{self.version}"

    def over(self) -> list[str]:
        """Each limit that was exceeded, in words."""
        found = [self.failure] if self.failure else []
        if self.longest_ms > TURN_MS_MAX:
            found.append(f"a turn took {self.longest_ms:.0f} ms")
        if self.grown_bytes > GROWTH_BYTES_MAX:
            found.append(f"memory grew by {size(self.grown_bytes)}")
        if self.left_bytes > LEFT_BYTES_MAX:
            found.append(f"{size(self.left_bytes)} of memory did not return")
        if self.during.p99_ms > neighbour_ms_max(self.before):
            found.append(
                f"the neighbour's p99 rose from {self.before.p99_ms:.1f} to {self.during.p99_ms:.1f} ms"
            )
        if self.during.failed:
            found.append(f"{self.during.failed} of the neighbour's {self.during.rounds} rounds failed")
        if self.controller.longest_ms > CONTROLLER_MS_MAX:
            found.append(f"an order of a controller waited {self.controller.longest_ms:.0f} ms")
        return found


_HEADS = (
    "API",
    "Version",
    "Requests",
    "Longest turn, ms",
    "… of a request of",
    "Largest answer",
    "Memory grew by",
    "… and kept",
    "Neighbour's p50 before, ms",
    "… during",
    "Its p99 before, ms",
    "… during",
    "Broker's work in its rounds, p99, ms",
    "Longest order, ms",
)


_NO_PACE = Pace(0, 0, 0.0, 0.0, 0.0)


def failed_row(api: str, version: int, failure: str) -> Row:
    """The row of an attack that has ended early."""
    return Row(api, version, 0, 0.0, 0, 0, 0, 0, _NO_PACE, _NO_PACE, _NO_PACE, failure=failure)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown. A row with a figure over its limit has its API in bold."""
    lines = [_line(_HEADS), _line(["---", *["---:"] * (len(_HEADS) - 1)])]
    return "\n".join(
        lines + [_line(_cells(row)) for row in sorted(rows, key=lambda row: (row.api, row.version))]
    )


def _cells(row: Row) -> list[str]:
    return [
        f"**{row.api}**" if row.over() else row.api,
        str(row.version),
        f"{row.requests:,}",
        f"{row.longest_ms:.0f}",
        size(row.longest_of_bytes),
        size(row.answer_bytes),
        size(max(0, row.grown_bytes)),
        size(max(0, row.left_bytes)),
        *(f"{each:.1f}" for each in (row.before.p50_ms, row.during.p50_ms)),
        *(f"{each:.1f}" for each in (row.before.p99_ms, row.during.p99_ms)),
        f"{row.during.work_p99_ms:.1f}",
        f"{row.controller.longest_ms:.0f}",
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def size(count: int) -> str:
    """A number of bytes for readers."""
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1000:.0f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def over_limits(rows: Sequence[Row]) -> list[str]:
    """A line for each row that is over a limit."""
    return [f"{row.name}: {', '.join(row.over())}" for row in rows if row.over()]


def section(conditions: str, rows: Sequence[Row]) -> str:
    """The generated part of the page."""
    over = over_limits(rows)
    parts = [BEGIN, conditions, table(rows)]
    parts += (
        ["Over a limit:", "\n".join(f"- {each}" for each in over)] if over else ["All are within the limits."]
    )
    return "\n\n".join([*parts, END]) + "\n"
