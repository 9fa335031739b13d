"""The pace of a rate, and the statistics of latencies."""

from __future__ import annotations

import pytest

from holdfast_log.clients.tools.pace import UNLIMITED, Latencies, Pace


def test_a_rate_spreads_calls_over_time() -> None:
    pace = Pace(per_s=10, started_ms=1000)
    assert pace.wait_ms(0, 1000) == 0
    assert pace.wait_ms(1, 1000) == 100
    assert pace.wait_ms(1, 1080) == pytest.approx(20)
    assert pace.wait_ms(5, 1500) == 0


def test_a_late_call_waits_for_nothing() -> None:
    assert Pace(per_s=10, started_ms=0).wait_ms(3, 9_000) == 0


def test_without_a_rate_no_call_waits() -> None:
    assert Pace(per_s=UNLIMITED, started_ms=0).wait_ms(1_000_000, 0) == 0


def test_mean_maximum_and_percentiles_are_computed() -> None:
    latencies = Latencies()
    for latency_ms in range(1, 101):
        latencies.add(latency_ms)
    assert latencies.count == 100
    assert latencies.mean_ms == 50.5
    assert latencies.max_ms == 100
    assert latencies.percentiles(0.5, 0.99, 1) == [51, 100, 100]


def test_without_latencies_mean_and_percentiles_are_0() -> None:
    assert Latencies().mean_ms == 0
    assert Latencies().percentiles(0.5) == [0]


def test_of_very_many_latencies_an_even_sample_is_kept() -> None:
    latencies = Latencies()
    for number in range(1_300_000):
        latencies.add(number)
    assert latencies.count == 1_300_000
    (median,) = latencies.percentiles(0.5)
    assert median == pytest.approx(650_000, rel=0.01)
