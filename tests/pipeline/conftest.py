"""One Spark session and one broker for all tests of the data source: each takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from holdfast_log.broker.tools.local_cluster import LocalCluster
from tests.forked_brokers import ForkedBroker
from tests.pipeline.local_session import warm_session


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    session = warm_session("tests", "local[2,4]", settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="package")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), broker_type=ForkedBroker) as cluster:
        yield cluster.bootstrap
