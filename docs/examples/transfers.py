"""Transfers between accounts, exactly once: a consumer's requests become two entries each, or none.

    python transfers.py localhost:9092 NAME

A request is a record of the topic `transfers` with a text such as "alice bob 10". For each of them this
program writes two records to `accounts`, `alice -10` and `bob +10`, and commits the consumer's position: all
three in one transaction. It may be killed at any time and started again. NAME is its transactional id: a
second process with the same name fences the first.
"""

from __future__ import annotations

import sys

from holdfast_log import Consumer, ConsumerRecord, Message, Producer, TopicPartition


def move(producer: Producer, consumer: Consumer, requests: list[ConsumerRecord]) -> None:
    """Carry out some transfers, all or none."""
    ends: dict[TopicPartition, int] = {}
    with producer.transaction() as t:
        for request in requests:
            payer, payee, amount = request.value.decode().split()
            t.send(Message("accounts", key=payer, value=f"-{amount}"))
            t.send(Message("accounts", key=payee, value=f"+{amount}"))
            ends[TopicPartition(request.topic, request.partition)] = request.offset + 1
        t.send_offsets(ends, consumer.group_metadata())


def main(bootstrap: str, name: str) -> None:
    reading = {
        "bootstrap.servers": bootstrap,
        "group.id": "tellers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    with Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) as producer:
        # Before positions are read: what a process with this name has left open is aborted first.
        producer.init_transactions()
        with Consumer(reading) as consumer:
            consumer.add_topic("transfers")
            print("ready", flush=True)
            while True:
                requests = consumer.poll(1000)
                if requests:
                    move(producer, consumer, requests)


if __name__ == "__main__":
    main(*sys.argv[1:])
