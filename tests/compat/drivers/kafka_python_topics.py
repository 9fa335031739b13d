"""What users of kafka-python, 2.x or 3.x, have to know before they connect, and before they join a group."""

from __future__ import annotations

import time
from collections.abc import Callable

import kafka
from kafka import KafkaConsumer

MAJOR = int(kafka.__version__.split(".")[0])
PATIENT: dict[str, int] = {
    "bootstrap_timeout_ms" if MAJOR >= 3 else "api_version_auto_timeout_ms": 120_000,
}
"""Settings of every client: kafka-python 2 gives a broker only 2 s to say what it speaks, 3 gives it 30 s."""
PATIENT_ADMIN = {**PATIENT, "request_timeout_ms": 120_000}
PATIENT_PRODUCER = {**PATIENT_ADMIN, "delivery_timeout_ms": 300_000}
"""A producer that is not idempotent writes records again whose answer is late."""

_PAUSE_S = 0.1


def wait_for_partitions(consumer: KafkaConsumer, topic: str, *, is_wanted: Callable[[], bool]) -> None:
    """Fetch the partitions of a topic to which `consumer` subscribes, before its first poll joins the group.
    Gives up once nobody wants them any more.

    A leader of kafka-python 3.0 that learns of the partitions only after its first assignment joins once more
    to assign them. If a poll returns on its timeout after the answer to that JoinGroup and before the answer
    to the SyncGroup, no later poll takes the assignment or joins again: `need_rejoin` compares the metadata
    only, and ignores the join under way. The member sends no more heartbeats and stays without partitions
    for ever. Once its session has expired, the coordinator refuses its LeaveGroup: UNKNOWN_MEMBER_ID. Members
    that know the partitions first never need that second join.

    The wait has to come after the subscription: a consumer takes note only of partitions of its topics.
    """
    while is_wanted() and not consumer.partitions_for_topic(topic):
        time.sleep(_PAUSE_S)
