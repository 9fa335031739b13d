"""The plots of `benchmarks.peers`, as SVG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peer_report import PeerReport

_CONNECTIONS = {
    "produce-1k-1x1": 1,
    "produce-1k-10x1": 10,
    "produce-1k-100x1": 100,
    "produce-1k-1000x1": 1000,
}
"""Rows with the same load but for the number of connections."""
_LATENCIES = ("tail-50-slow", "tail-50-fast", "tail-200", "paced")
_PERCENTILES = ("p50", "p99", "p999", "max")
_PROCESSOR_TIME = (
    "produce-16k-8x4",
    "produce-64k-8x4",
    "fetch-16k-8x4",
    "fetch-64k-8x4",
    "catch-up-50",
    "librdkafka-consume-1k",
)
_SHAPES = "osDv"


def write_plots(report: PeerReport, directory: Path) -> list[tuple[str, str]]:
    """Write the plots whose rows were measured. Returns their titles and the names of their files."""
    directory.mkdir(parents=True, exist_ok=True)
    plots: list[tuple[str, str, Callable[[PeerReport, Any], bool], float]] = [
        ("Requests a second against connections, 1 KB each", "connections.svg", _against_connections, 7),
        ("Latency: p50, p99, p99.9 and maximum", "latency.svg", _latencies, 11),
        ("Processor time of the broker for each GB", "processor-time.svg", _processor_time, 9),
    ]
    written = []
    for title, name, draw, width in plots:
        if _draw(report, title, directory / name, draw, width):
            written.append((title, name))
    return written


def _draw(
    report: PeerReport, title: str, path: Path, draw: Callable[[PeerReport, Any], bool], width: float
) -> bool:
    """Draw one plot into a file. Returns whether there was anything to draw."""
    import matplotlib

    matplotlib.use("svg")
    # Without these, the same figures would not always make the same file.
    matplotlib.rcParams |= {"svg.hashsalt": "holdfast", "svg.fonttype": "none"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(width, 4.2), layout="constrained")
    try:
        if not draw(report, axes):
            return False
        axes.set_title(title)
        axes.grid(True, axis="y", alpha=0.3)
        axes.legend()
        figure.savefig(path, metadata={"Date": None})
        return True
    finally:
        pyplot.close(figure)


def _systems(report: PeerReport) -> list[str]:
    return [*report.peers, *report.ours]


def _against_connections(report: PeerReport, axes: Any) -> bool:
    drawn = False
    for system, shape in zip(_systems(report), _SHAPES, strict=False):
        medians = {
            number: median
            for row, number in _CONNECTIONS.items()
            if (median := report.median(row, system, "requests")) is not None
        }
        if medians:
            axes.plot(list(medians), list(medians.values()), marker=shape, label=report.labels[system])
            drawn = True
    axes.set_xscale("log")
    axes.set_xticks(list(_CONNECTIONS.values()), [f"{number:,}" for number in _CONNECTIONS.values()])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("connections, one request in flight on each")
    axes.set_ylabel("requests/s")
    return drawn


def _latencies(report: PeerReport, axes: Any) -> bool:
    """Four points above each other for each row and system, joined by a line."""
    systems = _systems(report)
    titles = {row.name: row.title for row in report.rows}
    rows = [name for name in _LATENCIES if any(report.median(name, one, "p50") for one in systems)]
    for number, (system, shape) in enumerate(zip(systems, _SHAPES, strict=False)):
        colour = f"C{number}"
        for place, row in enumerate(rows):
            found = [report.median(row, system, key) for key in _PERCENTILES]
            at = place + (number - (len(systems) - 1) / 2) * 0.18
            heights = [height for height in found if height]
            axes.plot(
                [at] * len(heights),
                heights,
                marker=shape,
                color=colour,
                label=report.labels[system] if place == 0 else None,
            )
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), [_broken(titles[row]) for row in rows])
    axes.set_ylabel("ms")
    return bool(rows)


def _processor_time(report: PeerReport, axes: Any) -> bool:
    systems = _systems(report)
    titles = {row.name: row.title for row in report.rows}
    rows = [name for name in _PROCESSOR_TIME if any(report.median(name, one, "cpu_gb") for one in systems)]
    width = 0.8 / max(1, len(systems))
    for number, system in enumerate(systems):
        places = [place + (number - (len(systems) - 1) / 2) * width for place in range(len(rows))]
        heights = [report.median(row, system, "cpu_gb") or 0.0 for row in rows]
        axes.bar(places, heights, width, label=report.labels[system])
    axes.set_xticks(range(len(rows)), [_broken(titles[row]) for row in rows])
    axes.set_ylabel("s/GB")
    return bool(rows)


def _broken(title: str, width: int = 18) -> str:
    """A title in lines of about `width` characters."""
    lines: list[str] = []
    for word in title.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


__all__: Sequence[str] = ("write_plots",)
