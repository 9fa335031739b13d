"""What `benchmarks.tls` writes: medians of its rounds, ratios, and their place in a page."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchmarks.pairs import median_ratio

BEGIN = "<!-- Written by python -m benchmarks.tls: begin -->"
END = "<!-- Written by python -m benchmarks.tls: end -->"
OURS, PEER = "Holdfast", "Kafka"
PLAIN, SECURE = "PLAINTEXT", "SSL"
PROTOCOLS = (PLAIN, SECURE)
KERNEL = "KERNEL"
"""A listener of Holdfast's with TLS on which the kernel encrypts; on `SECURE` OpenSSL does."""
_WORDS = {PLAIN: "without TLS", SECURE: "with TLS", KERNEL: "with kernel TLS"}


@dataclass(frozen=True, slots=True)
class Rates:
    """What one client has reached over one listener in one round: MB of values a second, and processor
    seconds of the broker per GB. Better is more of the former, less of the latter."""

    produced: float
    consumed: float
    produce_cpu: float
    consume_cpu: float


_SHOWN = {
    "produced": ("In, MB/s", ".0f"),
    "produce_cpu": ("CPU s/GB", ".2f"),
    "consumed": ("Out, MB/s", ".0f"),
    "consume_cpu": ("CPU s/GB", ".2f"),
}
"""The columns of the table: fields of `Rates`, their titles and formats."""
_LESS_IS_BETTER = ("produce_cpu", "consume_cpu")


@dataclass(frozen=True, slots=True)
class TlsReport:
    """All rounds, by the system and the protocol, in their order. `conditions` says where and how was
    measured. There may be no rounds of the peer."""

    conditions: str
    rounds: Mapping[tuple[str, str], Sequence[Rates]]

    @property
    def systems(self) -> list[str]:
        return list(dict.fromkeys(system for system, _ in self.rounds))


def rows(report: TlsReport) -> list[list[str]]:
    """The cells of the table: what was measured, the medians, and the ratios of the rounds."""
    found = [
        [f"{system}, {_WORDS[protocol]}", *_medians(each)]
        for (system, protocol), each in report.rounds.items()
    ]
    for system in report.systems:
        of_system = [report.rounds[system, protocol] for protocol in reversed(PROTOCOLS)]
        found.append([f"{system}: with TLS to without", *_ratios(*of_system)])
    if (OURS, KERNEL) in report.rounds:
        both = [report.rounds[OURS, protocol] for protocol in (KERNEL, SECURE)]
        found.append([f"{OURS}: kernel TLS to OpenSSL's", *_ratios(*both)])
    if PEER in report.systems:
        for protocol in PROTOCOLS:
            both = [report.rounds[system, protocol] for system in (OURS, PEER)]
            found.append([f"{OURS} ahead of {PEER}, {_WORDS[protocol]}", *_ratios(*both, is_ahead=True)])
    return found


def headings() -> list[str]:
    return ["", *(title for title, _ in _SHOWN.values())]


def _medians(rounds: Sequence[Rates]) -> list[str]:
    cells = []
    for name, (_, form) in _SHOWN.items():
        values = [getattr(each, name) for each in rounds]
        spread = f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
        cells.append(f"{statistics.median(values):{form}}{spread}")
    return cells


def _ratios(first: Sequence[Rates], second: Sequence[Rates], *, is_ahead: bool = False) -> list[str]:
    """The ratio of each column; with `is_ahead` it is above 1 where the first is better."""
    cells = []
    for name in _SHOWN:
        pairs = [(getattr(one, name), getattr(two, name)) for one, two in zip(first, second, strict=True)]
        is_inverted = is_ahead and name in _LESS_IS_BETTER
        if any(not (one if is_inverted else two) for one, two in pairs):
            cells.append("")  # Less than the clock's tick: there is no ratio.
            continue
        ratio = median_ratio([two / one if is_inverted else one / two for one, two in pairs])
        spread = f" ({ratio.low:.2f} to {ratio.high:.2f})" if len(pairs) > 1 else ""
        cells.append(f"{ratio.median:.2f}{spread}")
    return cells


def page_section(report: TlsReport) -> str:
    """The generated part of the page."""
    lines = ["| " + " | ".join(headings()) + " |", "| --- |" + " ---: |" * len(_SHOWN)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows(report)]
    return "\n\n".join([BEGIN, report.conditions, "\n".join(lines), END]) + "\n"


def as_json(report: TlsReport) -> dict[str, Any]:
    return {
        "benchmark": "tls",
        "conditions": report.conditions,
        **{
            f"{system} {protocol}": [
                {name: round(value, 3) for name, value in asdict(each).items()} for each in rounds
            ]
            for (system, protocol), rounds in report.rounds.items()
        },
    }


assert set(_SHOWN) == {field.name for field in fields(Rates)}
