"""The measured brokers: ours, either started for the benchmark or already running, and a peer's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STAT_FIELDS_BEFORE_UTIME = 11
_CREATE_TIMEOUT_S = 120.0
_CREATE_PARTITION_TIMEOUT_S = 0.05


@dataclass(frozen=True, slots=True)
class Target:
    """One broker or cluster. `pids` and `log_dirs` are empty where its processes are not on this machine."""

    name: str
    bootstrap: str
    pids: tuple[int, ...] = ()
    log_dirs: tuple[Path, ...] = ()

    @property
    def first_address(self) -> tuple[str, int]:
        """Host and port of the first bootstrap server, where raw load goes."""
        host, _, port = self.bootstrap.split(",", 1)[0].rpartition(":")
        return host, int(port)


def _admin(target: Target) -> AdminClient:
    # Level 3: errors. Lower levels report its own shutdown, which does not matter here.
    return AdminClient({"bootstrap.servers": target.bootstrap, "broker.address.family": "v4", "log_level": 3})


def create_topic(target: Target, topic: str, partitions: int, replicas: int = 1) -> None:
    """Create a topic. Raises KafkaException."""
    admin = _admin(target)
    settings = {"max.message.bytes": str(4 * 2**20)}
    timeout_s = _CREATE_TIMEOUT_S + partitions * _CREATE_PARTITION_TIMEOUT_S
    created = admin.create_topics(
        [NewTopic(topic, partitions, replicas, config=settings)],
        operation_timeout=timeout_s,
        request_timeout=timeout_s,
    )
    created[topic].result(2 * timeout_s)


def delete_topic(target: Target, topic: str) -> None:
    """Delete a topic, so that the disk does not fill up. A failure is only printed."""
    admin = _admin(target)
    try:
        admin.delete_topics([topic], operation_timeout=30)[topic].result(60)
    except KafkaException as error:
        print(f"(topic {topic} was not deleted: {error})")


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """CPU time of the processes so far, in user and system mode; None without processes."""
    if not pids:
        return None
    ticks = 0
    for pid in pids:
        # The command's name, in parentheses, may contain spaces, so fields are counted after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[_STAT_FIELDS_BEFORE_UTIME]) + int(fields[_STAT_FIELDS_BEFORE_UTIME + 1])
    return ticks / _TICKS_PER_SECOND


def reactor_seconds(pid: int) -> float:
    """CPU time of the main thread of a process (a broker's reactor thread), to the nanosecond; `cpu_seconds`
    counts in ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def empty_page_cache(target: Target, topic: str) -> bool:
    """Drop a topic's log files from the page cache. Returns whether that was possible."""
    files = [
        file
        for log_dir in target.log_dirs
        for file in sorted(log_dir.glob(f"{topic}-*/*.log"))
        if file.is_file()
    ]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return bool(files)
