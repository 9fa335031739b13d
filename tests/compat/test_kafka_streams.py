"""A word count of Kafka Streams with exactly_once_v2, under kill -9 of the program and of brokers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.apache_kafka import STREAMS, VERSION
from holdfast_log.clients.admin import LATEST, Admin, NewTopic
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip
from tests.compat.exactly_once import SETTINGS, CommittedReader, running
from tests.integration.clients import produce
from tests.integration.waiting import until, until_in_sync

pytestmark = pytest.mark.timeout(1500)

PARTITIONS = 2
LINES = 60
WORDS = ("lorem", "ipsum", "dolor", "sit", "amet", "consetetur", "sadipscing", "elitr")
WAIT_S = 400


def ends(bootstrap: str, topic: str) -> int:
    """The sum of the end offsets of a topic's partitions."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        found = admin.list_offsets({TopicPartition(topic, index): LATEST for index in range(PARTITIONS)})
    return sum(each.offset for each in found.values())


class Counts:
    """The counts that are committed, in their order for each word."""

    def __init__(self, bootstrap: str) -> None:
        self.counts: dict[str, list[int]] = {word: [] for word in WORDS}
        self._reader = CommittedReader(bootstrap, "counts", PARTITIONS)

    def has(self, count: int) -> bool:
        """Whether so many counts have been read, after a look."""
        for found in self._reader.look():
            self.counts[found.key().decode()].append(int(found.value()))
        return sum(map(len, self.counts.values())) >= count

    def close(self) -> None:
        self._reader.close()


def write_lines(bootstrap: str, rng: random.Random, truth: Counter[str]) -> None:
    """Write lines of random words to both partitions, and count the words."""
    for partition in range(PARTITIONS):
        lines = [" ".join(rng.choices(WORDS, k=5)) for _ in range(LINES)]
        values = [line.encode() for line in lines]
        produce(bootstrap, "lines", values, partition, **{"enable.idempotence": True})
        for line in lines:
            truth.update(line.split())


def test_words_are_counted_exactly_once_while_program_and_brokers_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Every count is written: those of each word are 1, 2, 3 … without a gap and without one twice."""
    program = driver_or_skip(tmp_path, "WordCount", VERSION, STREAMS)
    brokers = cluster.start(3, SETTINGS)
    bootstrap = cluster.bootstrap
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        config = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(name, PARTITIONS, 3, config) for name in ("lines", "counts")])
    rng, truth = random.Random(1), Counter[str]()
    command = [*program, bootstrap, "lines", "counts", str(tmp_path / "state")]
    log = tmp_path / "word-count.log"
    reader = Counts(bootstrap)
    try:
        with running(command, log):
            write_lines(bootstrap, rng, truth)
            until(lambda: ends(bootstrap, "counts") > 0, WAIT_S)
            write_lines(bootstrap, rng, truth)
        # Killed, maybe within a transaction, which the coordinator ends at its timeout.
        write_lines(bootstrap, rng, truth)
        with running(command, log):
            for broker in brokers:
                before = ends(bootstrap, "counts")
                cluster.lose(broker)
                write_lines(bootstrap, rng, truth)
                cluster.make_whole()
                until(lambda seen=before: ends(bootstrap, "counts") > seen, WAIT_S)
                # With the next one in addition, one replica would be left, to which nobody may write.
                until_in_sync(brokers, "lines", WAIT_S)
            until(lambda: reader.has(truth.total()), WAIT_S)
        reader.has(truth.total() + 1)
    finally:
        reader.close()
        print(f"--- log of the program\n{log.read_text()[-6000:] if log.exists() else ''}")
    for word, counts in reader.counts.items():
        assert counts == list(range(1, truth[word] + 1)), word
