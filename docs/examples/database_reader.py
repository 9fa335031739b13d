"""A reader of a database that publishes its rows in order, and a standby that takes over (own API).

    python docs/examples/database_reader.py localhost:9092 orders orders.sqlite

Table `rows` of the database has `id`, ascending, and `value`. Run the program twice, on two machines: one
reads, the other waits. However the first one ends, or seems to end, every row is published once, in order:

- only one process can write to the topic's partition 0; the brokers enforce that;
- it continues after its predecessor: the last record before its fence offset has the id of a row as its key,
  and no other process can have written from that offset on;
- a process that only seemed to be dead is fenced when it next writes, and becomes the standby.

With `--once` it ends when all rows are published.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time

from holdfast_log import (
    Consumer,
    ExclusiveProducer,
    Message,
    ProducerAccessMode,
    ProducerFencedError,
    TopicPartition,
)

SESSION_TIMEOUT_MS = 3000
ROWS_AT_A_TIME = 500
PAUSE_S = 0.2


def last_id(bootstrap: str, topic: str, fence_offset: int) -> int:
    """The id of the last published row; -1 if there is none."""
    if fence_offset == 0:
        return -1
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        consumer.add_topic(topic, 0)
        consumer.seek(TopicPartition(topic, 0), fence_offset - 1)
        return int(next(iter(consumer)).key)


def rows_after(database: sqlite3.Connection, last: int) -> list[tuple[int, str]]:
    """The next rows of the database, at most `ROWS_AT_A_TIME`."""
    query = "SELECT id, value FROM rows WHERE id > ? ORDER BY id LIMIT ?"
    return database.execute(query, (last, ROWS_AT_A_TIME)).fetchall()


def read(producer: ExclusiveProducer, database: sqlite3.Connection, last: int, is_once: bool) -> None:
    """Publish the rows after id `last`. Raises ProducerFencedError when another process has taken over."""
    while True:
        rows = rows_after(database, last)
        messages = [Message(producer.topic, key=str(id_), value=value, partition=0) for id_, value in rows]
        for response in [producer.send(message) for message in messages]:
            response.result()
        if rows:
            last = rows[-1][0]
        elif is_once:
            return
        else:
            time.sleep(PAUSE_S)


def main(bootstrap: str, topic: str, path: str, is_once: bool) -> None:
    """Wait for exclusive access and publish, again after every loss of access."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        while True:
            print("standing by", flush=True)
            with ExclusiveProducer(
                {"bootstrap.servers": bootstrap},
                topic,
                ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
                partitions=[0],
                session_timeout_ms=SESSION_TIMEOUT_MS,
            ) as producer:
                last = last_id(bootstrap, topic, producer.fence_offset() or 0)
                print(f"reading from id {last}, epoch {producer.epoch()}", flush=True)
                try:
                    read(producer, database, last, is_once)
                    return
                except ProducerFencedError:
                    print("another process has taken over", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], is_once="--once" in sys.argv)
