"""What `benchmarks.peers` writes: the table of medians and ratios, the plots, and their place in a page.

Everything is made from the single figures of all runs, which are kept as JSON.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.pairs import Ratio, median_ratio
from benchmarks.peer_rows import UNITS

BEGIN = "<!-- Written by python -m benchmarks.peers: begin -->"
END = "<!-- Written by python -m benchmarks.peers: end -->"
GENERATOR_LIMIT = 0.9
"""Share of a core from which the load generator, not the system, may be the limit."""
GENERATOR_LATE_MS = 1.0
"""How late, at p99, the generator may send what is due before the latencies are its own too."""


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of one row against one system. `error` is set, and `figures` are empty, if it failed."""

    row: str
    system: str
    number: int
    figures: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class RowText:
    """How a row appears in the table: its title, and the keys of the figures that are shown."""

    name: str
    title: str
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeerReport:
    """All runs, in the order of the table. `ours` are the systems that are compared with each of `peers`;
    `labels` their names for readers. `conditions` says where and how was measured."""

    conditions: str
    labels: Mapping[str, str]
    ours: Sequence[str]
    peers: Sequence[str]
    rows: Sequence[RowText]
    runs: Sequence[PeerRun]

    def figures(self, row: str, system: str, key: str) -> dict[int, float]:
        """The figures of one row and system by the number of the round, without those that failed."""
        return {
            run.number: run.figures[key]
            for run in self.runs
            if (run.row, run.system) == (row, system) and key in run.figures
        }

    def median(self, row: str, system: str, key: str) -> float | None:
        found = self.figures(row, system, key)
        return statistics.median(found.values()) if found else None

    def errors(self, row: str, system: str) -> list[str]:
        return [run.error for run in self.runs if (run.row, run.system) == (row, system) and run.error]

    def ahead(self, row: str, ours: str, peer: str, key: str) -> Ratio | None:
        """How far a system of ours is ahead of a peer: above 1 it is better, also where less is better. The
        median of the ratios of the rounds in which both were measured."""
        mine, others = self.figures(row, ours, key), self.figures(row, peer, key)
        ratios = [
            others[number] / mine[number] if UNITS[key].is_less_better else mine[number] / others[number]
            for number in mine
            if others.get(number) and mine[number]
        ]
        return median_ratio(ratios) if ratios else None


def to_text(reports: Sequence[PeerReport]) -> str:
    """Reports as JSON, with all single figures."""
    return json.dumps([asdict(report) for report in reports], indent=1) + "\n"


def from_text(text: str) -> list[PeerReport]:
    """The inverse of `to_text`."""
    return [_report(values) for values in json.loads(text)]


def _report(values: dict[str, Any]) -> PeerReport:
    rows = [RowText(**{**row, "shown": tuple(row["shown"])}) for row in values["rows"]]
    return PeerReport(**{**values, "rows": rows, "runs": [PeerRun(**run) for run in values["runs"]]})


def digits(number: float) -> str:
    """A number with three significant digits, and all digits before the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number >= 1 else f"{number:.2g}"


def table(report: PeerReport) -> str:
    """The table in Markdown: a line for each figure that is shown. A cell has the median and, behind it, the
    least and the largest value. Ratios below 1 are bold."""
    systems = [*report.peers, *report.ours]
    pairs = [(ours, peer) for ours in report.ours for peer in report.peers]
    heads = ["What", "Unit", *(report.labels[name] for name in systems)]
    heads += [f"{report.labels[ours]} : {report.labels[peer]}" for ours, peer in pairs]
    lines = [_line(heads), _line(["---"] * 2 + ["---:"] * (len(heads) - 2))]
    for row in report.rows:
        for place, key in enumerate(row.shown):
            if all(report.median(row.name, name, key) is None for name in systems) and not any(
                report.errors(row.name, name) for name in systems
            ):
                continue
            cells = [row.title if place == 0 else "", UNITS[key].name]
            cells += [_cell(report, row.name, name, key) for name in systems]
            cells += [_ratio_cell(report.ahead(row.name, *pair, key)) for pair in pairs]
            lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(report: PeerReport, row: str, system: str, key: str) -> str:
    found = report.figures(row, system, key).values()
    failed = " (failed)" if report.errors(row, system) else ""
    if not found:
        return failed.strip(" ()")
    limited = any(
        max(report.figures(row, system, key).values(), default=0.0) > limit
        for key, limit in (("generator", GENERATOR_LIMIT), ("late", GENERATOR_LATE_MS))
    )
    median = digits(statistics.median(found)) + ("\\*" if limited else "")
    span = f" ({digits(min(found))} to {digits(max(found))})" if len(found) > 1 else ""
    return median + span + failed


def _ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    text = f"{ratio.median:.2f}"
    marked = f"**{text}**" if ratio.median < 1 else text
    return marked if ratio.rounds == 1 else f"{marked} ({ratio.low:.2f} to {ratio.high:.2f})"


def errors(report: PeerReport) -> list[str]:
    """What failed, a line each."""
    return [f"{run.row}, {run.system}, round {run.number}: {run.error}" for run in report.runs if run.error]


def page_section(report: PeerReport, clients: PeerReport, plots: Sequence[tuple[str, str]]) -> str:
    """The generated part of the page; `plots` are pairs of a title and a path that is relative to it."""
    parts = [BEGIN, report.conditions, _EXPLANATION, table(report)]
    if clients.runs:
        parts += [_CLIENTS, table(clients)]
    parts += [f"![{title}]({path})" for title, path in plots]
    failures = [*errors(report), *errors(clients)]
    if failures:
        parts += ["What failed:", "\n".join(f"- {failure}" for failure in failures)]
    return "\n\n".join(part.strip() for part in [*parts, END]) + "\n"


_EXPLANATION = """\
Each cell has the median of the rounds and, in parentheses, the least and the largest value. The last columns
say how far Holdfast is ahead: the median of the rounds' ratios, with its 95 % confidence interval (the least
and the largest ratio, where there are fewer than six rounds). Above 1, Holdfast is better, also where less is
better; what is below 1 is bold. A star marks figures that the load generator itself may have limited: it used
more than 0.9 of a core, or sent what was due more than 1 ms late (p99).
"""
_CLIENTS = """\
The clients on the same Holdfast broker, 6 partitions, acks=all, linger of 5 ms:
"""


def insert(page: Path, section: str) -> None:
    """Replace what is between the marks of a page: the first and the last line of the section. Raises
    ValueError for a page without them."""
    text, section = page.read_text(), section.rstrip("\n")
    first, last = section.partition("\n")[0], section.rpartition("\n")[2]
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} has no marks for the generated part: {first} and {last}")
    page.write_text(before + section + after)
