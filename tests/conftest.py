"""Fixtures that tests of every room share."""

from tests.cluster import cluster, cluster_of_module, shared_cluster
from tests.zookeeper import zookeeper, zookeeper_process, zookeeper_server

__all__ = [
    "cluster",
    "cluster_of_module",
    "shared_cluster",
    "zookeeper",
    "zookeeper_process",
    "zookeeper_server",
]
