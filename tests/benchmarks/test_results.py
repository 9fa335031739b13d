"""Benchmarks report rates, percentiles and tables correctly."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.results import (
    LatencySummary,
    Result,
    best_of,
    columns,
    from_json,
    percentiles,
    print_table,
    summary,
    to_json,
)

RESULT = Result(
    records=2_000_000,
    bytes=2_000_000_000,
    seconds=4.0,
    latency=LatencySummary(1.0, 2.5, 30.0),
    broker_cpu_seconds=3.0,
)


def test_rates_are_counts_divided_by_seconds() -> None:
    assert RESULT.records_per_second == 500_000
    assert RESULT.mb_per_second == 500
    assert RESULT.broker_cpu_seconds_per_gb == 1.5


def test_a_percentile_is_the_sample_that_this_share_does_not_exceed() -> None:
    samples = [float(number) for number in range(1000, 0, -1)]

    assert percentiles(samples) == LatencySummary(500.0, 990.0, 999.0)
    assert percentiles([7.0]) == LatencySummary(7.0, 7.0, 7.0)


def test_without_samples_latency_is_nan_and_its_cell_empty() -> None:
    nothing = percentiles([])

    assert math.isnan(nothing.p50_ms)
    result = Result(1, 1, 1.0, nothing)
    assert columns(result)[2:] == ["", "", "", ""]
    assert json.loads(json.dumps(summary(result), allow_nan=False))["p50_ms"] is None


def test_a_result_is_decoded_as_it_was_encoded() -> None:
    assert from_json(to_json(RESULT)) == RESULT


def test_the_fastest_of_several_runs_is_reported() -> None:
    slower = Result(1_000, 1_000_000, 4.0, RESULT.latency)

    assert best_of([slower, RESULT]) == RESULT


def test_a_table_aligns_words_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Speed", ["case", "MB/s"], [["short", "1,000.0"], ["a longer one", "5.0"]])

    assert capsys.readouterr().out == (
        "\nSpeed\n"
        "case             MB/s\n"
        "------------  -------\n"
        "short         1,000.0\n"
        "a longer one      5.0\n"
    )
