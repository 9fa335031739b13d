"""What tests of programs that write exactly once share: settings of three brokers, a program that is killed,
and a reader of what is committed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition

from holdfast_log.coordinator.parent_process import die_with_parent

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "60000",
}
"""Of three brokers, of which each may be killed: `Cluster.lose` ends its session then. No other one ends on a
busy machine."""


class CommittedReader:
    """Reads what is committed of a topic, from its beginning."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        config = {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
        self._consumer = Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])

    def look(self, seconds: float = 1.0) -> list[Message]:
        """What has come within this time."""
        return [found for found in self._consumer.consume(500, seconds) if found.error() is None]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a program, which writes to the log, and kill it (SIGKILL) at the end."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()
