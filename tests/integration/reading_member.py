"""A process that is a member of a group and polls on command.

    python -m tests.integration.reading_member BOOTSTRAP GROUP TOPIC SESSION_MS PROTOCOL

For each line on standard input, it polls for at most one record and prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.protocol.topic_partition import TopicPartition

POLL_MS = 100
HEARTBEAT_MS = 500


class Losses(RebalanceListener):
    """Collects the numbers of the partitions that the member has lost."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.partitions += [partition.partition for partition in partitions]


def single_reader(bootstrap: str, group: str, session_ms: int | str) -> dict[str, Any]:
    """The settings of a member of a group with single readers that commits on demand."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "managed",
        "group.single.reader": True,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def of_kip_848(bootstrap: str, group: str, session_ms: int | str) -> dict[str, Any]:
    """The same for a member of a group of KIP-848, which has no single readers."""
    settings = single_reader(bootstrap, group, session_ms)
    del settings["group.single.reader"]
    return {**settings, "group.protocol": "consumer"}


def main(bootstrap: str, group: str, topic: str, session_ms: str, protocol: str) -> None:
    losses = Losses()
    settings = single_reader if protocol == "managed" else of_kip_848
    properties = {**settings(bootstrap, group, session_ms), "client.id": "process"}
    consumer = Consumer(properties, rebalance_listener=losses)
    consumer.add_topic(topic)
    for _ in sys.stdin:
        records = consumer.poll(POLL_MS, 1)
        positions = consumer._fetcher.positions.values()
        told = {
            "records": [(record.partition, record.offset) for record in records],
            "generation": consumer.group_identity().generation,
            "owned": [partition.partition for partition in consumer.assignment()],
            "ahead": sum(position.stored_bytes for position in positions),
            "lost": losses.partitions,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
