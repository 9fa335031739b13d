"""Writes the rows of one task at least once, with the producer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.pipeline.option_table import CLIENT_PREFIX, OptionError
from holdfast_log.pipeline.sink.chunks import RowColumns
from holdfast_log.pipeline.sink.options import WriteOptions
from holdfast_log.pipeline.sink.rows import RowSplitter
from holdfast_log.protocol.topic_partition import TopicPartition

_DEFAULTS = {"client.id": "holdfast-spark", "bootstrap.timeout.ms": "8000"}


def write_plainly(
    batches: Iterable[Any], options: WriteOptions, counts: Callable[[str], int], turn: int
) -> None:
    """Write the rows of all record batches; returns when they are acknowledged.

    `counts` gives the number of partitions of a topic. `turn` chooses the partition of rows without a key, as
    in `RowSplitter`. Raises the errors of the clients: what was written before stays written.
    """

    def both(topic: str) -> tuple[int, int]:
        return counts(topic), counts(topic)

    splitter = RowSplitter(options.topic, both, turn)
    try:
        producer = Producer({**_DEFAULTS, **options.client})
    except ConfigError as error:
        raise OptionError(f"{CLIENT_PREFIX}…: {error}") from None
    with producer:
        for batch in batches:
            for partition, rows in splitter.split(batch).items():
                _send(producer, partition, rows)
        # The end of the block raises the first error of what was not delivered.


def _send(producer: Producer, partition: TopicPartition, rows: RowColumns) -> None:
    topic, number = partition
    if rows.headers is None:
        keys = rows.keys if any(key is not None for key in rows.keys) else None
        producer.send_many(topic, rows.values, keys=keys, partition=number)
        return
    for key, value, headers in rows:
        producer.send(Message(topic, value=value, key=key, partition=number, headers=headers))
