"""Rows/s of a batch read in Spark, beside Spark's own Kafka connector on the same topic of the same broker.

    python -m benchmarks.spark_source --records 5000000 --size 100 --rounds 5

Both sources read the whole topic with their default options in one session, in turns: connector, Holdfast,
Holdfast, connector. Neither leaves out columns. By default each row goes, with all its columns, to Spark's
noop sink; with --action lengths, Spark adds up the lengths of keys and values instead. Before the clock
starts, both must have delivered every record, with as many bytes as were written. The last line of output is
JSON. MB are those of keys and values.
"""

from __future__ import annotations

import random
import tempfile
import time
from itertools import cycle
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession

from benchmarks.pairs import in_turns, median_ratio
from benchmarks.results import MB, print_json
from benchmarks.spark_session import CONNECTOR, CORES, open_session
from holdfast_log import Admin, NewTopic, Producer
from holdfast_log.broker.tools.local_cluster import LocalCluster

_TOPIC = "spark-source"
_PEER, _OWN = "kafka", "holdfast"
_NOOP, _LENGTHS = "noop", "lengths"
_KEY_BYTES = 8
_CHUNK = 20_000
_FLUSH_MS = 600_000


class SourcePair:
    """Reads a topic of `records` records by two sources; `action` is what becomes of the rows."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int, size: int, action: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._expected = (records, records * _KEY_BYTES, records * size)
        self._action = action

    def warm(self, kind: str) -> None:
        """Read the topic once by `format(kind)`, then once as `seconds` does. Raises RuntimeError unless all
        records came."""
        found = self._lengths(kind)
        if found != self._expected:
            raise RuntimeError(f"{kind}: rows and bytes are {found} instead of {self._expected}")
        self.seconds(kind)

    def seconds(self, kind: str) -> float:
        """The time in s of one read by `format(kind)`, from its plan to its last row."""
        began = time.perf_counter()
        if self._action == _LENGTHS:
            self._lengths(kind)
        else:
            self._rows(kind).write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def _rows(self, kind: str) -> DataFrame:
        reader = self._spark.read.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("subscribe", _TOPIC).load()

    def _lengths(self, kind: str) -> tuple[int, ...]:
        """Rows, bytes of keys, and bytes of values."""
        sums = self._rows(kind).selectExpr("COUNT(*)", "SUM(LENGTH(key))", "SUM(LENGTH(value))").first()
        assert sums is not None
        return tuple(sums)


def fill(bootstrap: str, records: int, partitions: int, size: int, compression: str) -> None:
    """Create the topic and write the records, random values of `size` bytes, evenly to all partitions."""
    chance = random.Random(size)
    turns = -(-records // (partitions * _CHUNK))
    chunk = -(-records // (partitions * turns))
    values = [chance.randbytes(size) for _ in range(chunk)]
    numbers = cycle(range(partitions))
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(_TOPIC, partitions)])
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "batch.size": 2**18,
        "linger.ms": 50,
        "compression.type": compression,
    }
    with Producer(settings) as producer:
        for begin in range(0, records, chunk):
            keys = [number.to_bytes(_KEY_BYTES) for number in range(begin, min(begin + chunk, records))]
            producer.send_many(_TOPIC, values[: len(keys)], keys=keys, partition=next(numbers))
        if not producer.flush(_FLUSH_MS):
            raise RuntimeError(f"the topic was not filled within {_FLUSH_MS // 1000} s")


@click.command(context_settings={"show_default": True})
@click.option("--connector", default=CONNECTOR, help="Maven coordinates of Spark's Kafka connector.")
@click.option("--records", default=5_000_000, type=click.IntRange(1), help="Records of the topic.")
@click.option("--size", default=100, type=click.IntRange(1), help="Bytes of each value.")
@click.option("--partitions", default=12, type=click.IntRange(1), help="Partitions of the topic.")
@click.option("--compression", default="none", help="Codec of the topic's batches.")
@click.option("--rounds", default=5, type=click.IntRange(1), help="How often both sources take turns.")
@click.option(
    "--action", default=_NOOP, type=click.Choice([_NOOP, _LENGTHS]), help="What becomes of the rows."
)
def main(
    connector: str, records: int, size: int, partitions: int, compression: str, rounds: int, action: str
) -> None:
    """Compare Holdfast's source with Spark's own Kafka connector on one topic."""
    with (
        tempfile.TemporaryDirectory(prefix="spark-source-", ignore_cleanup_errors=True) as folder,
        LocalCluster(Path(folder) / "cluster") as cluster,
    ):
        fill(cluster.bootstrap, records, partitions, size, compression)
        spark = open_session("spark source", connector)
        pair = SourcePair(spark, cluster.bootstrap, records, size, action)
        for kind in (_PEER, _OWN):
            pair.warm(kind)
        peer = own = 0.0
        ratios = []
        for number in range(1, rounds + 1):
            of_peer, of_own = in_turns(lambda: pair.seconds(_PEER), lambda: pair.seconds(_OWN))
            ratios.append(of_peer / of_own)
            peer, own = peer + of_peer, own + of_own
            print(f"round {number}: {_rates(2 * records, size, of_peer, of_own)}", flush=True)
        spark.stop()
    ratio = median_ratio(ratios)
    read = 2 * rounds * records
    print(f"{_rates(read, size, peer, own)}; median ratio {ratio}")
    print_json(
        {
            "connector_rows_per_s": round(read / peer),
            "connector_mb_per_s": round(read * (_KEY_BYTES + size) / MB / peer, 1),
            "holdfast_rows_per_s": round(read / own),
            "holdfast_mb_per_s": round(read * (_KEY_BYTES + size) / MB / own, 1),
            "ratio": round(ratio.median, 3),
            "ratio_low": round(ratio.low, 3),
            "ratio_high": round(ratio.high, 3),
            "records": records,
            "value_bytes": size,
            "rounds": rounds,
            "action": action,
            "cores": CORES,
        }
    )


def _rates(rows: int, size: int, peer_s: float, own_s: float) -> str:
    """Rates of both, and their ratio, in words."""
    megabytes = rows * (_KEY_BYTES + size) / MB
    return (
        f"connector {rows / peer_s:,.0f} rows/s, {megabytes / peer_s:,.1f} MB/s; "
        f"Holdfast {rows / own_s:,.0f} rows/s, {megabytes / own_s:,.1f} MB/s; ratio {peer_s / own_s:.2f}"
    )


if __name__ == "__main__":
    main()
