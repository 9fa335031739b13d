"""A trend reports growth within one life of a process and across its lives, but neither variation nor
shrinking."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.soak.trend import JUDGED_SAMPLES_MIN, MIB, Trend, trends
from tests.soak.usage import Sample

WARM_UP_S = 60.0
LIFE_S = 600.0
Value = Callable[[int, float], float]
"""A value as a function of the life's number and the age in seconds."""


def samples(
    rss: Value = lambda life, age: 60 * MIB,
    descriptors: Value = lambda life, age: 50,
    threads: Value = lambda life, age: 6,
    *,
    lives: int = 4,
    process: str = "broker-1",
) -> list[Sample]:
    """Samples of a process that is restarted every ten minutes, one every ten seconds."""
    return [
        Sample(
            at_s=(life - 1) * LIFE_S + age,
            process=process,
            life=life,
            age_s=age,
            rss_bytes=int(rss(life, age)),
            descriptors=int(descriptors(life, age)),
            threads=int(threads(life, age)),
            directory_bytes=0,
        )
        for life in range(1, lives + 1)
        for age in (10.0 * turn for turn in range(1, int(LIFE_S / 10)))
    ]


def growing(seen: list[Sample]) -> set[tuple[str, str]]:
    """The fields `measure` and `where` of every trend that is not flat."""
    return {(trend.measure, trend.where) for trend in trends(seen, WARM_UP_S) if not trend.is_flat}


def test_a_level_process_is_flat_within_each_life_and_across_them() -> None:
    found = trends(samples(), WARM_UP_S)

    assert all(trend.is_flat for trend in found)
    assert {trend.where for trend in found} == {"life 1", "life 2", "life 3", "life 4", "lives"}
    assert {trend.measure for trend in found} == {"rss_bytes", "descriptors", "threads"}


@pytest.mark.parametrize(
    ("measure", "level", "per_minute"),
    [("rss", 60 * MIB, 1.5 * MIB), ("descriptors", 50, 3), ("threads", 6, 1)],
)
def test_growth_within_a_life_is_seen(measure: str, level: float, per_minute: float) -> None:
    seen = samples(**{measure: lambda life, age: level + per_minute * age / 60})

    names = {"rss": "rss_bytes"}
    lives = (2, 3, 4) if measure == "descriptors" else (1, 2, 3, 4)
    assert growing(seen) == {(names.get(measure, measure), f"life {life}") for life in lives}


@pytest.mark.parametrize(
    ("measure", "level", "per_life"),
    [("rss", 60 * MIB, 6 * MIB), ("descriptors", 50, 8), ("threads", 6, 3)],
)
def test_growth_from_life_to_life_is_seen(measure: str, level: float, per_life: float) -> None:
    seen = samples(**{measure: lambda life, age: level + per_life * life})

    assert growing(seen) == {({"rss": "rss_bytes"}.get(measure, measure), "lives")}


def test_growth_is_seen_although_clients_come_and_go() -> None:
    noise = random.Random(7)

    def steady(life: int, age: float) -> float:
        return 50 + noise.uniform(-10, 10)

    assert not growing(samples(descriptors=steady))
    assert growing(samples(descriptors=lambda life, age: steady(life, age) + age / 20))


def test_the_warm_up_is_not_judged() -> None:
    assert not growing(samples(rss=lambda life, age: (10 if age < WARM_UP_S else 60) * MIB))


def test_the_first_life_is_not_compared_because_it_began_with_an_empty_disk() -> None:
    assert not growing(samples(descriptors=lambda life, age: 50 if life == 1 else 70))


def test_the_files_that_the_logs_of_an_empty_disk_open_later_are_no_growth() -> None:
    assert not growing(samples(descriptors=lambda life, age: 70 if life > 1 else 50 + age / 30))
    assert growing(samples(descriptors=lambda life, age: 50 + age / 30, lives=1))


def test_a_shrinking_value_counts_as_flat() -> None:
    assert not growing(samples(rss=lambda life, age: 500 * MIB - age * MIB / 10 - life * 50 * MIB))


def test_a_short_life_has_no_trend() -> None:
    young = [
        sample for sample in samples(lives=1) if sample.age_s < WARM_UP_S + 10 * (JUDGED_SAMPLES_MIN - 1)
    ]

    assert trends(young, WARM_UP_S) == []


def test_every_measure_of_zookeeper_except_its_memory_is_judged() -> None:
    seen = samples(
        rss=lambda life, age: 60 * MIB + age * MIB,
        descriptors=lambda life, age: 50 + age,
        lives=1,
        process="zookeeper",
    )

    assert growing(seen) == {("descriptors", "life 1")}


def test_a_trend_says_what_grew_and_how_much_was_allowed() -> None:
    trend = Trend("broker-2", "rss_bytes", "life 3", 40, 60.0 * MIB, 9.25 * MIB, 8.0 * MIB)

    assert str(trend) == ("broker-2, life 3, RSS in MiB: mean 60.0, growth +9.2 of 8.0 allowed, 40 points")
