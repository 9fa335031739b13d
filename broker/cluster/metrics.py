"""The metrics of the cluster as this broker knows it: ZooKeeper, brokers, topics, and the controller's view.

The controller shows what concerns the whole cluster; other brokers show 0 there, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, gauge, gauges
from holdfast_log.coordinator.cluster.membership import ClusterMembership
from holdfast_log.coordinator.cluster.session_counts import SessionCounts
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.controller.state import ControllerState


class ClusterSight(NamedTuple):
    """What this broker knows of its cluster."""

    broker_id: int
    metadata: MetadataCache
    membership: ClusterMembership
    controller: ControllerService


# -- ZooKeeper -------------------------------------------------------------------------------------------

SESSION_METRICS: tuple[MetricRow[SessionCounts], ...] = (
    gauge(
        "holdfast_zookeeper_connected",
        "1 while this broker is connected to ZooKeeper, else 0.",
        lambda counts: float(counts.is_connected),
    ),
    counter(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        "Connections made to ZooKeeper.",
        lambda counts: counts.connects,
    ),
    counter(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        "Connections to ZooKeeper that were lost.",
        lambda counts: counts.disconnects,
    ),
    counter(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        "Sessions that ZooKeeper has ended.",
        lambda counts: counts.expires,
    ),
)


# -- brokers and topics ----------------------------------------------------------------------------------


def _topic_partitions(sight: ClusterSight) -> Iterator[Sample]:
    """The leader of a topic's first partition shows it, so that each topic is shown once."""
    for name in list(sight.metadata.topics):
        if sight.metadata.leader_of(name, 0) == sight.broker_id:
            yield Sample((name,), sight.metadata.partition_count(name))


BROKER_METRICS: tuple[MetricRow[ClusterSight], ...] = (
    gauge(
        "holdfast_broker_registered",
        "1 while this broker is registered in ZooKeeper, else 0.",
        lambda sight: float(sight.membership.is_registered),
    ),
    gauges(
        "kafka_topic_partitions",
        "Number of a topic's partitions, from the leader of its first partition.",
        ("topic",),
        _topic_partitions,
    ),
)


# -- the controller --------------------------------------------------------------------------------------


def _of_controller(name: str, doc: str, read: Callable[[ControllerState], float]) -> MetricRow[ClusterSight]:
    def value(sight: ClusterSight) -> float:
        state = sight.controller.state
        return 0.0 if state is None else read(state)

    return gauge(name, f"{doc}; 0 unless this broker is the controller.", value)


def _imbalance(state: ControllerState) -> int:
    return sum(
        partition.state is not None and partition.state.leader != partition.assignment.replicas[0]
        for at, partition in state.partitions()
        if not state.is_deleting(at)
    )


def _partitions(state: ControllerState) -> int:
    return sum(len(topic.partitions) for topic in state.topics.values())


def _reassigning(state: ControllerState) -> int:
    return sum(
        bool(partition.assignment.adding or partition.assignment.removing)
        for _, partition in state.partitions()
    )


_KAFKA_CONTROLLER = "kafka_controller_kafkacontroller_"

CONTROLLER_METRICS: tuple[MetricRow[ClusterSight], ...] = (
    gauge(
        _KAFKA_CONTROLLER + "activecontrollercount",
        "1 if this broker is the controller, else 0.",
        lambda sight: float(sight.controller.is_active),
    ),
    _of_controller(
        _KAFKA_CONTROLLER + "offlinepartitionscount",
        "Partitions without a live leader",
        lambda state: len(state.leaderless()),
    ),
    _of_controller(
        _KAFKA_CONTROLLER + "preferredreplicaimbalancecount",
        "Partitions that are not led by the first of their replicas",
        _imbalance,
    ),
    _of_controller(
        _KAFKA_CONTROLLER + "globaltopiccount", "Topics of the cluster", lambda state: len(state.topics)
    ),
    _of_controller(_KAFKA_CONTROLLER + "globalpartitioncount", "Partitions of the cluster", _partitions),
    _of_controller(
        _KAFKA_CONTROLLER + "activebrokercount",
        "Live brokers of the cluster",
        lambda state: len(state.brokers),
    ),
    _of_controller(
        _KAFKA_CONTROLLER + "topicstodeletecount",
        "Topics that are being deleted",
        lambda state: len(state.deletions),
    ),
    _of_controller(
        "holdfast_controller_reassigning_partitions",
        "Partitions whose replicas are being moved",
        _reassigning,
    ),
    _of_controller(
        "holdfast_controller_unreadable_topics",
        "Topics set aside because their znodes cannot be decoded",
        lambda state: len(state.unreadable),
    ),
    _of_controller("kafka_brokers", "Live brokers of the cluster", lambda state: len(state.brokers)),
)
