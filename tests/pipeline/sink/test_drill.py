"""The drill, small: each row once under faults of tasks, stops, a killed driver and a second instance."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_log.pipeline.sink.options import AT_LEAST_ONCE
from tests.pipeline.sink import drill
from tests.pipeline.sink.drill_query import Place, prepare
from tests.pipeline.sink.faulty import TASK_FAULTS

_numbers = count()


@pytest.fixture
def place(bootstrap: str, tmp_path: Path) -> Place:
    return Place(bootstrap, f"drill-{next(_numbers)}", tmp_path)


@pytest.fixture(autouse=True, scope="module")
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def test_micro_batches_are_counted_although_spark_removes_old_ones_from_the_checkpoint(
    tmp_path: Path,
) -> None:
    """Spark keeps the last hundred."""
    place = Place("nowhere:1", "drill", tmp_path)
    assert (place.begun(), place.committed()) == (0, 0)
    for folder, last in (("offsets", 200), ("commits", 199)):
        (place.checkpoint / folder).mkdir(parents=True)
        for number in range(last - 100, last + 1):
            (place.checkpoint / folder / str(number)).touch()
    assert (place.begun(), place.committed()) == (201, 200)


@pytest.mark.parametrize("fault", TASK_FAULTS)
def test_each_row_is_written_once_whatever_fails_in_a_task(
    spark: SparkSession, place: Place, fault: str
) -> None:
    verdict = drill.under_task_faults(spark, place, 2, fault)

    assert verdict.is_exact, verdict
    if fault == "raise-before":
        assert verdict.totals.conflicts > 0
    else:
        assert verdict.totals.rows_found > 0


@pytest.mark.parametrize("fault", ["raise-amid", "zombie"])
def test_the_same_faults_duplicate_rows_with_at_least_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path, fault: str
) -> None:
    place = Place(bootstrap, f"drill-{next(_numbers)}", tmp_path, AT_LEAST_ONCE)

    verdict = drill.under_task_faults(spark, place, 2, fault)

    assert verdict.missing == 0
    assert verdict.duplicates > 0
    assert "SILENT" not in verdict.note


def test_a_query_that_is_stopped_with_writers_running_loses_and_duplicates_nothing(
    spark: SparkSession, place: Place
) -> None:
    verdict = drill.under_stops(spark, place, 2, random.Random(1))

    assert verdict.is_exact, verdict


def test_a_killed_driver_loses_and_duplicates_nothing(spark: SparkSession, place: Place) -> None:
    verdict = drill.under_driver_kills(spark, place, 6, 1, random.Random(1))

    assert verdict.is_exact, verdict
    assert verdict.recoveries == 1


def test_two_instances_of_a_query_write_each_row_once_and_one_is_refused(
    spark: SparkSession, place: Place
) -> None:
    verdict = drill.under_two_instances(spark, place, 3)

    assert verdict.is_exact, verdict
    assert verdict.recoveries == 1, verdict
