"""Fixtures that tests of every room share."""

from tests.cluster import cluster
from tests.zookeeper import zookeeper, zookeeper_process, zookeeper_server

__all__ = ["cluster", "zookeeper", "zookeeper_process", "zookeeper_server"]
