"""The runs of a job, or the batches of a streaming query, as one HTML page with plots. Needs matplotlib."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast_log.pipeline.jobs.run import JobError, JobReport
from holdfast_log.pipeline.lag import lag

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


def report_of_batch(progress: Any) -> JobReport:
    """A micro-batch of a streaming query as a report, from the query's `lastProgress` or `recentProgress`.

    Its lag is that of the sources from Holdfast or Kafka after the batch; None without such a source.
    """
    took: Mapping[str, int] = progress["durationMs"]
    behind = lag(progress)
    return JobReport(
        job="query",
        run=str(progress["batchId"]),
        output=progress["name"] or progress["id"],
        began_at=datetime.fromisoformat(progress["timestamp"]).timestamp(),
        seconds=took.get("triggerExecution", 0) / 1000,
        status="done" if progress["numInputRows"] else "nothing new",
        records=progress["numInputRows"],
        lag=sum(behind.values()) if behind else None,
        phases={name: ms / 1000 for name, ms in took.items() if name != "triggerExecution"},
    )


def page_of(reports: Sequence[Mapping[str, Any]]) -> str:
    """The page: rate, lag, and the time of each run and its parts. Raises `JobError` without matplotlib.

    A run without a figure, such as the lag of a bulk load, is a gap in the plot of that figure.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise JobError("plots need matplotlib: install it with pip install matplotlib") from None
    figure = Figure(figsize=(9, 9), layout="constrained")
    rate, behind, times = figure.subplots(3, 1, sharex=True)
    numbers = range(1, len(reports) + 1)
    rate.plot(numbers, [run["records"] / (run["seconds"] or 1.0) for run in reports], marker="o")
    rate.set_ylabel("records a second")
    lags = [run.get("lag") for run in reports]
    behind.plot(numbers, [float("nan") if found is None else found for found in lags], marker="o")
    behind.set_ylabel("lag in offsets, after the run")
    below = [0.0] * len(reports)
    for name, seconds in _phases(reports).items():
        times.bar(numbers, seconds, bottom=below, label=name)
        below = [before + more for before, more in zip(below, seconds, strict=True)]
    times.set_ylabel("seconds")
    times.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in (rate, behind, times):
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.supxlabel("run")
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    encoded = base64.b64encode(picture.getvalue()).decode()
    title = html.escape(f"{reports[-1]['job']} {reports[-1]['output']}" if reports else "no runs")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f'<img alt="rate, lag and times of each run" src="data:image/png;base64,{encoded}">'
        f"<table><tr><th>run<th>status<th>records<th>bytes<th>files<th>seconds<th>lag<th>error"
        f"{''.join(map(_row, reports))}</table>\n"
    )


def _phases(reports: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The seconds of each part in each run, and of what no part has counted."""
    names = dict.fromkeys(name for run in reports for name in run.get("phases", {}))
    found = {name: [run.get("phases", {}).get(name, 0.0) for run in reports] for name in names}
    counted = [sum(seconds) for seconds in zip(*found.values(), strict=True)] or [0.0] * len(reports)
    rest = [max(0.0, run["seconds"] - known) for run, known in zip(reports, counted, strict=True)]
    return {**found, "other": rest}


def _row(run: Mapping[str, Any]) -> str:
    cells = [
        run["run"],
        run["status"],
        f"{run['records']:,}",
        f"{run['bytes']:,}",
        run["files"],
        f"{run['seconds']:.1f}",
        "" if run.get("lag") is None else f"{run['lag']:,}",
        run["error"],
    ]
    return "<tr>" + "".join(f"<td>{html.escape(str(cell))}" for cell in cells)
