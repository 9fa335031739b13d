"""The runs of a job as one HTML page with plots. Needs matplotlib."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.jobs.run import JobError, JobReport

_STYLE = "body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:right}"


def write_report(report: JobReport, path: Path) -> None:
    """Add a run to a file of reports, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(report)) + "\n")


def read_reports(path: Path) -> list[Mapping[str, Any]]:
    """The runs in a file of reports, oldest first. Raises `JobError`."""
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, ValueError) as error:
        raise JobError(f"{path} is no file of reports: {error}") from None


def page_of(reports: Sequence[Mapping[str, Any]]) -> str:
    """The page: rate, duration and records of each run, and a table. Raises `JobError` without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise JobError("plots need matplotlib: install it with pip install matplotlib") from None
    figure = Figure(figsize=(9, 8), layout="constrained")
    plots: list[tuple[str, Callable[[Mapping[str, Any]], float]]] = [
        ("records a second", lambda run: run["records"] / run["seconds"] if run["seconds"] else 0.0),
        ("seconds", lambda run: run["seconds"]),
        ("records", lambda run: run["records"]),
    ]
    for axes, (title, value) in zip(figure.subplots(len(plots), 1, sharex=True), plots, strict=True):
        axes.plot(range(1, len(reports) + 1), [value(run) for run in reports], marker="o")
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.supxlabel("run")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    encoded = base64.b64encode(picture.getvalue()).decode()
    title = html.escape(f"{reports[-1]['job']} {reports[-1]['output']}" if reports else "no runs")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f'<img alt="rate, duration and records of each run" src="data:image/png;base64,{encoded}">'
        f"<table><tr><th>run<th>status<th>records<th>bytes<th>files<th>seconds<th>error"
        f"{''.join(map(_row, reports))}</table>\n"
    )


def _row(run: Mapping[str, Any]) -> str:
    cells = [
        run["run"],
        run["status"],
        f"{run['records']:,}",
        f"{run['bytes']:,}",
        run["files"],
        f"{run['seconds']:.1f}",
        run["error"],
    ]
    return "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in cells)
