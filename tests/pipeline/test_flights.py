"""The flights data set of the examples has the documented content."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from holdfast_log.pipeline.examples.flights import COUNT, Flight, flights


@pytest.fixture(scope="module")
def every_flight() -> list[Flight]:
    return list(flights())


def test_there_are_336776_flights(every_flight: list[Flight]) -> None:
    carriers = Counter(flight.carrier for flight in every_flight)

    assert sum(carriers.values()) == COUNT
    assert carriers[b"UA"] == 58_665


def test_a_flight_is_a_json_object_with_null_for_missing_values(every_flight: list[Flight]) -> None:
    first, last = every_flight[0], every_flight[-1]

    assert json.loads(first.value) | {"tailnum": ""} == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2,
        "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545,
        "tailnum": "", "origin": "EWR", "dest": "IAH", "air_time": 227, "distance": 1400, "hour": 5,
        "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip
    assert json.loads(last.value)["dep_time"] is None
