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
    """The address of a broker that keeps its session, and takes no lease from an owner that is late."""
    patient = {"zookeeper.session.timeout.ms": "60000", "own.ping.timeout.ms": "60000"}
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(directory, properties=patient, broker_type=ForkedBroker) as cluster:
        yield cluster.bootstrap
