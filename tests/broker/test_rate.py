"""A rate per second, averaged over sliding windows."""

from __future__ import annotations

from holdfast_log.broker.replication.rate import Rate


def test_a_steady_amount_has_its_exact_rate() -> None:
    rate = Rate()
    for second in range(60):
        rate.record(500, second * 1000)
    assert 480 <= rate.per_second(60_000) <= 560


def test_a_first_burst_is_spread_over_the_windows() -> None:
    rate = Rate(windows=11, window_ms=1000)
    rate.record(10_000, 50_000)
    assert rate.per_second(50_000) == 1000
    assert rate.per_second(59_000) == 1000


def test_past_amounts_are_dropped_window_by_window() -> None:
    rate = Rate(windows=3, window_ms=1000)
    rate.record(100, 0)
    rate.record(900, 1000)
    assert rate.per_second(2000) == 500
    assert rate.per_second(3000) == 450
    assert rate.per_second(4000) == 0
    assert rate.per_second(1_000_000) == 0


def test_a_clock_set_back_restores_no_past_amount() -> None:
    rate = Rate(windows=3, window_ms=1000)
    rate.record(100, 10_000)
    rate.record(100, 5_000)
    assert rate.per_second(6_000) == rate.per_second(10_000) == 100


def test_at_most_the_configured_windows_are_kept() -> None:
    rate = Rate(windows=3, window_ms=1000)
    for moment in range(0, 100_000, 10):
        rate.record(1, moment)
    assert len(rate._sums) <= 4
