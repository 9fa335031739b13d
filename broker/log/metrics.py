"""The metrics of logs and log directories, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.metrics.row import MetricRow, Sample, gauge, gauges

_PARTITION = ("topic", "partition")


def _logs(value: Callable[[Log], float], logs: LogManager) -> Iterator[Sample]:
    for log in list(logs):
        topic, index = log.topic_partition
        yield Sample((topic, str(index)), value(log))


def _of_logs(name: str, doc: str, value: Callable[[Log], float]) -> MetricRow[LogManager]:
    return gauges(f"kafka_log_log_{name}", doc, _PARTITION, partial(_logs, value))


def _directories(logs: LogManager) -> Iterator[Sample]:
    live = set(logs.live_directories)
    for directory in logs.directories:
        yield Sample((directory.path,), float(directory not in live))


LOG_METRICS: tuple[MetricRow[LogManager], ...] = (
    _of_logs("size", "Bytes of a replica's segments on this broker.", lambda log: log.size_bytes),
    _of_logs("logstartoffset", "Offset of a replica's first record.", lambda log: log.log_start_offset),
    _of_logs("logendoffset", "Offset after a replica's last record.", lambda log: log.log_end_offset),
    _of_logs("numlogsegments", "Number of a replica's segments.", lambda log: len(log.segments)),
    gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 if a log directory has failed, else 0.",
        ("logDirectory",),
        _directories,
    ),
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that have failed.",
        lambda logs: len(logs.directories) - len(logs.live_directories),
    ),
    gauge(
        "holdfast_log_damaged",
        "Replicas on this broker with segments that cannot be read.",
        lambda logs: len(logs.damaged),
    ),
    gauge(
        "holdfast_log_directories_missing",
        "Log directories that this broker has used and does not find; their replicas are offline.",
        lambda logs: len(logs.missing),
    ),
)
