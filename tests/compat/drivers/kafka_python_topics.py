"""What a member of a group that uses kafka-python, 2.x or 3.x, has to know before it joins."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka import KafkaConsumer

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
