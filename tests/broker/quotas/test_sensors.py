"""Sensors hold clients that obey and clients that do not to their limits, on average and within seconds."""

from __future__ import annotations

import random

import pytest

from holdfast_log.broker.quotas.sensors import RateSensor, Sensor, TokenBucket

LIMIT = 1_000_000.0
SIMULATED_S = 60.0


def rate_sensor() -> RateSensor:
    return RateSensor(30, 1.0)


def used_per_second(
    sensor: Sensor, size: float, *, pause_s: float = 0.001, limit: float = LIMIT, random_sizes: bool = False
) -> float:
    """The rate of a client that sends as soon as it may, with `pause_s` between two requests at least."""
    rng, now_s, used = random.Random(4), 1000.0, 0.0
    end_s = now_s + SIMULATED_S
    while now_s < end_s:
        amount = rng.uniform(0, 2 * size) if random_sizes else size
        used += amount
        sensor.record(amount, limit, now_s)
        now_s += max(pause_s, sensor.delay_s(limit, now_s))
    return used / SIMULATED_S


@pytest.mark.parametrize("size", [1_000, 16_384, 100_000, 1_000_000])
@pytest.mark.parametrize("random_sizes", [False, True])
def test_a_client_that_waits_as_long_as_it_must_uses_its_limit(size: int, random_sizes: bool) -> None:
    found = used_per_second(rate_sensor(), size, random_sizes=random_sizes)
    assert found == pytest.approx(LIMIT, rel=0.05)


def test_a_client_below_its_limit_is_never_delayed() -> None:
    sensor = rate_sensor()
    for step in range(6000):
        sensor.record(LIMIT / 100, LIMIT, step / 100)
        assert sensor.delay_s(LIMIT, step / 100) < 0.02


def test_several_connections_of_a_client_share_its_limit() -> None:
    sensor, used, free_at_s = rate_sensor(), 0.0, [0.0] * 7
    for step in range(60_000):
        now_s = step / 1000
        for index, free_s in enumerate(free_at_s):
            if free_s <= now_s:
                used += 50_000
                sensor.record(50_000, LIMIT, now_s)
                free_at_s[index] = now_s + sensor.delay_s(LIMIT, now_s)
    assert used / SIMULATED_S == pytest.approx(LIMIT, rel=0.05)


def test_a_request_larger_than_all_windows_is_paid_for_in_full() -> None:
    sensor = rate_sensor()
    sensor.record(100 * LIMIT, LIMIT, 0.0)
    assert sensor.delay_s(LIMIT, 0.0) == pytest.approx(100.0)


def test_a_raised_limit_shortens_the_delay_of_what_was_used_before() -> None:
    sensor = rate_sensor()
    sensor.record(20 * LIMIT, LIMIT, 0.0)
    assert sensor.delay_s(LIMIT, 1.0) == pytest.approx(19.0)
    assert sensor.delay_s(10 * LIMIT, 1.0) == pytest.approx(1.0)
    assert sensor.delay_s(LIMIT, 20.0) == 0.0
    assert sensor.delay_s(20 * LIMIT, 1.0) == 0.0


def test_a_sensor_forgets_what_is_older_than_its_windows() -> None:
    sensor = rate_sensor()
    sensor.record(LIMIT, LIMIT, 0.0)
    assert not sensor.is_idle(29.9)
    assert sensor.is_idle(30.0)
    assert sensor.delay_s(LIMIT, 30.0) == sensor.per_second(30.0) == 0.0


def test_a_token_bucket_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(11.0)
    bucket.record(55, 5, 100.0)
    assert bucket.delay_s(5, 100.0) == 0.0
    bucket.record(10, 5, 100.0)
    assert bucket.delay_s(5, 100.0) == pytest.approx(2.0)
    assert bucket.delay_s(5, 101.5) == pytest.approx(0.5)
    assert bucket.delay_s(5, 103.0) == 0.0


def test_a_token_bucket_refills_no_further_than_its_burst() -> None:
    bucket = TokenBucket(11.0)
    bucket.record(55, 5, 0.0)
    assert not bucket.is_idle(10.9)
    assert bucket.is_idle(11.0)
    bucket.record(60, 5, 1000.0)
    assert bucket.delay_s(5, 1000.0) == pytest.approx(1.0)


def test_a_token_bucket_keeps_what_is_owed_when_its_limit_changes() -> None:
    bucket = TokenBucket(11.0)
    bucket.record(65, 5, 0.0)
    assert bucket.delay_s(5, 0.0) == pytest.approx(2.0)
    assert bucket.delay_s(10, 0.0) == pytest.approx(1.0)
    assert bucket.delay_s(1, 0.0) == pytest.approx(10.0)
