"""The records of the source drill, and the verdict on what a read has delivered.

Key and value of a record say its partition and offset. Spark reduces delivered rows to words: a word is the
rows of 64 successive offsets of a partition, with a bit for each offset. So millions of rows are compared
exactly, without a Python object for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from holdfast_log import Admin, Consumer, NewTopic, Producer, TopicPartition

VALUE_BYTES = 100
_WORD_BITS = 64
_ALL_BITS = 2**_WORD_BITS - 1
_CHUNK = 50_000
_FLUSH_MS = 600_000

_KEY = "CAST(CAST(offset AS STRING) AS BINARY)"
_VALUE = f"CAST(RPAD(CONCAT(partition, ':', offset, ':'), {VALUE_BYTES}, 'x') AS BINARY)"


# Writing ----------------------------------------------------------------------------------------------


def key_of(offset: int) -> bytes:
    """The key of the record at an offset."""
    return b"%d" % offset


def value_of(partition: int, offset: int) -> bytes:
    """The value of the record at an offset of a partition: `VALUE_BYTES` bytes."""
    return (b"%d:%d:" % (partition, offset)).ljust(VALUE_BYTES, b"x")


def ends_of(records: int, partitions: int) -> list[int]:
    """The number of records of each partition, if `records` are divided over them."""
    return [records // partitions + (number < records % partitions) for number in range(partitions)]


def fill(bootstrap: str, topic: str, ends: Sequence[int], replicas: int, compression: str = "none") -> None:
    """Create the topic, with `ends[n]` records in partition n. Raises RuntimeError if it then has other
    ends."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, len(ends), replicas)])
    settings = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "batch.size": 2**19,
        "linger.ms": 50,
        "compression.type": compression,
    }
    with Producer(settings) as producer:
        for begin in range(0, max(ends), _CHUNK):
            for partition, end in enumerate(ends):
                offsets = range(begin, min(begin + _CHUNK, end))
                if offsets:
                    values = [value_of(partition, offset) for offset in offsets]
                    producer.send_many(topic, values, keys=map(key_of, offsets), partition=partition)
        if not producer.flush(_FLUSH_MS):
            raise RuntimeError(f"{topic} was not filled within {_FLUSH_MS // 1000} s")
    partitions = [TopicPartition(topic, number) for number in range(len(ends))]
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        found = consumer.end_offsets(partitions)
    if [found[partition] for partition in partitions] != list(ends):
        raise RuntimeError(f"{topic} should have the ends {list(ends)}, and has {found}")


# Judging ----------------------------------------------------------------------------------------------


def words_of(rows: DataFrame) -> DataFrame:
    """The words of delivered rows: partition, word (offset / 64), rows, bits of the offsets, and wrong: how
    many of the rows have a key or value that is not that of their partition and offset."""
    return (
        rows.selectExpr(
            "partition",
            f"offset DIV {_WORD_BITS} AS word",
            f"SHIFTLEFT(1L, CAST(offset % {_WORD_BITS} AS INT)) AS bit",
            f"CAST(NOT (key <=> {_KEY} AND value <=> {_VALUE}) AS INT) AS wrong",
        )
        .groupBy("partition", "word")
        .agg(expr("COUNT(*) AS rows"), expr("BIT_OR(bit) AS bits"), expr("SUM(wrong) AS wrong"))
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was delivered, in numbers of rows: all, and those that should not be. `missing` are records of
    which no row came, `strange` rows of a partition or an offset that the topic does not have."""

    rows: int = 0
    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    strange: int = 0

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.doubled or self.wrong or self.strange)

    def __add__(self, other: Delivery) -> Delivery:
        return Delivery(
            self.rows + other.rows,
            self.missing + other.missing,
            self.doubled + other.doubled,
            self.wrong + other.wrong,
            self.strange + other.strange,
        )

    def __str__(self) -> str:
        return (
            f"rows {self.rows}, missing {self.missing}, doubled {self.doubled}, wrong {self.wrong}, "
            f"strange {self.strange}"
        )


def judge(words: Iterable[Any], ends: Sequence[int]) -> Delivery:
    """Compare words, Arrow tables with the columns of `words_of`, with a topic of these ends.

    Of a streaming query there is a table for each micro-batch: an offset in two of them is doubled.
    """
    seen: defaultdict[tuple[int, int], int] = defaultdict(int)
    rows = wrong = strange = distinct = 0
    for table in words:
        columns = (table[name].to_pylist() for name in ("partition", "word", "rows", "bits", "wrong"))
        for partition, word, count, bits, wrong_rows in zip(*columns, strict=True):
            rows += count
            wrong += wrong_rows
            seen[partition, word] |= bits & _ALL_BITS
    for (partition, word), bits in seen.items():
        end = ends[partition] if 0 <= partition < len(ends) else 0
        expected = (1 << max(0, min(end - word * _WORD_BITS, _WORD_BITS))) - 1 if word >= 0 else 0
        distinct += (bits & expected).bit_count()
        strange += (bits & ~expected).bit_count()
    return Delivery(rows, sum(ends) - distinct, rows - distinct - strange, wrong, strange)
