"""The metrics of topics and replicas, under Kafka's names and those of kafka_exporter.

A leader shows its partitions' offsets and replicas, so that over all brokers each partition is shown once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from holdfast_log.broker.metrics.row import MetricRow, Sample, counters, gauge, gauges
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.log_moves import LogMoves
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas

_PARTITION = ("topic", "partition")


# -- topics ----------------------------------------------------------------------------------------------


def _traffic(name: str, replicas: Replicas) -> Iterator[Sample]:
    """One count of all topics together, and of each topic."""
    traffic = replicas.traffic
    yield Sample((), traffic.total(name))
    for topic, counts in traffic.topics():
        yield Sample((topic,), getattr(counts, name))


def _of_topics(name: str, doc: str, count: str) -> MetricRow[Replicas]:
    text = f"{doc}; without the label topic those of all topics together."
    return counters(
        f"kafka_server_brokertopicmetrics_{name}_total", text, ("topic",), partial(_traffic, count)
    )


def _of_all_topics(name: str, doc: str, count: str) -> MetricRow[Replicas]:
    return counters(name, doc, (), lambda replicas: [Sample((), replicas.traffic.total(count))])


TRAFFIC_METRICS: tuple[MetricRow[Replicas], ...] = (
    _of_topics("messagesin", "Records appended by this broker as the leader", "messages_in"),
    _of_topics("bytesin", "Bytes of batches appended by this broker as the leader", "bytes_in"),
    _of_topics("bytesout", "Bytes of batches sent to consumers", "bytes_out"),
    _of_topics("totalproducerequests", "Appends to one partition each, with success", "appends"),
    _of_topics("failedproducerequests", "Appends to one partition each that were refused", "failed_appends"),
    _of_topics("totalfetchrequests", "Partitions in answers to consumers, with success", "reads"),
    _of_topics("failedfetchrequests", "Partitions in answers to consumers that were refused", "failed_reads"),
    _of_topics("replicationbytesin", "Bytes of batches copied from leaders", "replication_bytes_in"),
    _of_topics("replicationbytesout", "Bytes of batches sent to followers", "replication_bytes_out"),
)


# -- replicas --------------------------------------------------------------------------------------------


def _count(doc: str, name: str, belongs: Callable[[Partition], bool]) -> MetricRow[Replicas]:
    return gauge(f"kafka_server_replicamanager_{name}", doc, lambda replicas: sum(map(belongs, replicas)))


def _is_led(partition: Partition) -> bool:
    return isinstance(partition.role, Leadership)


def _is_under_replicated(partition: Partition) -> bool:
    role = partition.role
    return isinstance(role, Leadership) and len(role.isr) < len(partition.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    role = partition.role
    return isinstance(role, Leadership) and len(role.isr) < partition.log.settings.min_insync_replicas


def _is_at_min_isr(partition: Partition) -> bool:
    role = partition.role
    return isinstance(role, Leadership) and len(role.isr) == partition.log.settings.min_insync_replicas


REPLICA_METRICS: tuple[MetricRow[Replicas], ...] = (
    _count("Replicas on this broker.", "partitioncount", lambda partition: True),
    _count("Partitions that this broker leads.", "leadercount", _is_led),
    _count(
        "Partitions that this broker leads, with replicas out of sync.",
        "underreplicatedpartitions",
        _is_under_replicated,
    ),
    _count(
        "Partitions that this broker leads, with fewer in-sync replicas than min.insync.replicas: writes "
        "with acks=all are refused.",
        "underminisrpartitioncount",
        _is_under_min_isr,
    ),
    _count(
        "Partitions that this broker leads, with just as many in-sync replicas as min.insync.replicas.",
        "atminisrpartitioncount",
        _is_at_min_isr,
    ),
    _count(
        "Replicas on this broker whose log directory has failed.",
        "offlinereplicacount",
        lambda partition: partition.is_offline,
    ),
    _of_all_topics(
        "kafka_server_replicamanager_isrshrinks_total",
        "How often in-sync sets of partitions that this broker leads have lost members.",
        "isr_shrinks",
    ),
    _of_all_topics(
        "kafka_server_replicamanager_isrexpands_total",
        "How often in-sync sets of partitions that this broker leads have won members.",
        "isr_expands",
    ),
)


# -- requests that wait ----------------------------------------------------------------------------------


def _waiting(replicas: Replicas) -> Iterator[Sample]:
    yield Sample(("Produce",), len(replicas.writers))
    yield Sample(("Fetch",), len(replicas.readers) + len(replicas.followers))
    yield Sample(("DeleteRecords",), len(replicas.deleters))


WAITING_METRICS: tuple[MetricRow[Replicas], ...] = tuple(
    gauges(
        f"kafka_server_delayedoperationpurgatory_{name}",
        "Requests that wait: Produce for followers, Fetch for records, DeleteRecords for followers.",
        ("delayedOperation",),
        _waiting,
    )
    for name in ("purgatorysize", "numdelayedoperations")
)


# -- partitions ------------------------------------------------------------------------------------------


def _led(value: Callable[[Partition, Leadership], float], replicas: Replicas) -> Iterator[Sample]:
    """One value of each partition that this broker leads."""
    for partition in list(replicas):
        role = partition.role
        if isinstance(role, Leadership):
            yield Sample((partition.topic, str(partition.index)), value(partition, role))


def _of_led(name: str, doc: str, value: Callable[[Partition, Leadership], float]) -> MetricRow[Replicas]:
    return gauges(name, f"{doc}, from its leader.", _PARTITION, partial(_led, value))


PARTITION_METRICS: tuple[MetricRow[Replicas], ...] = (
    _of_led(
        "kafka_topic_partition_current_offset",
        "High watermark of a partition: the offset after the last record that consumers may read",
        lambda partition, _: partition.high_watermark,
    ),
    _of_led(
        "kafka_cluster_partition_laststableoffsetlag",
        "Offsets from a partition's last stable offset to its high watermark: what readers of committed "
        "records do not get yet, because of open transactions; 0 if none is open",
        lambda partition, _: partition.high_watermark - partition.last_stable_offset,
    ),
    _of_led(
        "kafka_topic_partition_oldest_offset",
        "Offset of the first record of a partition",
        lambda partition, _: partition.log.log_start_offset,
    ),
    _of_led(
        "kafka_topic_partition_replicas",
        "Number of a partition's replicas",
        lambda partition, _: len(partition.replicas),
    ),
    _of_led(
        "kafka_topic_partition_in_sync_replica",
        "Number of a partition's in-sync replicas",
        lambda _, role: len(role.isr),
    ),
    _of_led(
        "kafka_topic_partition_leader",
        "Broker id of a partition's leader",
        lambda partition, _: partition.leader,
    ),
    _of_led(
        "kafka_topic_partition_leader_is_preferred",
        "1 if a partition is led by the first of its replicas, else 0",
        lambda partition, _: float(partition.replicas[:1] == (partition.leader,)),
    ),
    _of_led(
        "kafka_topic_partition_under_replicated_partition",
        "1 if a partition has replicas out of sync, else 0",
        lambda partition, _: float(_is_under_replicated(partition)),
    ),
)


# -- moves between log directories -----------------------------------------------------------------------

MOVE_METRICS: tuple[MetricRow[LogMoves], ...] = (
    gauge(
        "holdfast_log_moves",
        "Replicas that move to another log directory of this broker, or wait for that.",
        lambda moves: sum(1 for _ in moves),
    ),
    gauges(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "How many offsets the copy of a replica that moves to another log directory is behind it, at most; 0 "
        "if none moves.",
        ("clientId",),
        lambda moves: [Sample(("ReplicaAlterLogDirs",), max((each.offset_lag for each in moves), default=0))],
    ),
)
