"""One Spark session and one broker for all tests of the data source: each takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import pipeline
from broker.tools.local_cluster import LocalCluster


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.appName("tests")
        .master("local[2,4]")  # Two cores; a task may fail three times.
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    pipeline.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="package")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.bootstrap
