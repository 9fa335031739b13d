"""The page of reports, without Spark."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from holdfast_log.pipeline.jobs.page import page_of, report_of_batch
from holdfast_log.pipeline.jobs.run import JobReport

PROGRESS = {
    "id": "4f1e",
    "name": "copy",
    "batchId": 7,
    "timestamp": "2024-05-01T10:00:00.500Z",
    "numInputRows": 30,
    "durationMs": {"triggerExecution": 1500, "addBatch": 1200, "latestOffset": 100},
    "sources": [{"endOffset": '{"t": {"0": 30}}', "latestOffset": '{"t": {"0": 42}}'}],
}


def test_a_micro_batch_becomes_a_report_with_its_lag_and_the_time_of_its_parts() -> None:
    report = report_of_batch(PROGRESS)

    assert (report.job, report.output, report.run, report.status) == ("query", "copy", "7", "done")
    assert (report.records, report.seconds, report.lag) == (30, 1.5, 12)
    assert report.phases == {"addBatch": 1.2, "latestOffset": 0.1}
    assert report.began_at == 1714557600.5


def test_a_page_has_a_row_for_each_run_also_for_old_reports_and_for_none() -> None:
    pytest.importorskip("matplotlib")
    new = json.loads(json.dumps(asdict(report_of_batch(PROGRESS))))
    old = asdict(JobReport("load", "old", "/t", 0.0, seconds=2.0, records=5, error="<no broker>"))
    del old["lag"], old["phases"]

    page = page_of([old, new])

    assert page.count("data:image/png;base64,") == 1
    assert page.count("<tr>") == 3
    assert "&lt;no broker&gt;" in page and "<td>12" in page
    assert "no runs" in page_of([])
