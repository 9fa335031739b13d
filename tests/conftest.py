"""Fixtures that tests of every room share."""

from tests.zookeeper import zookeeper, zookeeper_process, zookeeper_server

__all__ = ["zookeeper", "zookeeper_process", "zookeeper_server"]
