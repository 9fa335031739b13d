"""Poll for a condition, with a deadline long enough for a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import BrokerError, TopicExistsError
from holdfast_log.protocol.messages.metadata import MetadataRequest
from tests.integration.raw_socket import RawSocket

DEADLINE_S = 120.0


def until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Return once the condition holds. Raises AssertionError after `deadline_s`."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def until_created(bootstrap: str, topic: str, *, replicas: int) -> None:
    """Create a topic of one partition at brokers that may have to find ZooKeeper first."""

    def is_created() -> bool:
        try:
            with Admin({"bootstrap.servers": bootstrap}) as admin:
                admin.create_topics([NewTopic(topic, partitions=1, replication_factor=replicas)])
        except TopicExistsError:
            return True
        except (BrokerError, ClientError):
            return False
        return True

    until(is_created)


def until_in_sync(brokers: Iterable[BackgroundBroker], topic: str, deadline_s: float = DEADLINE_S) -> None:
    """Return once each of these brokers says that the topic exists, and that all replicas of all partitions
    are in sync.

    Each one is asked, since they learn of it one after the other: one that was running may still say so from
    before another one was stopped, and only that other one has been told since it started again.
    """
    until(lambda: all(_are_in_sync(broker, topic) for broker in brokers), deadline_s)


def _are_in_sync(broker: BackgroundBroker, topic: str) -> bool:
    with RawSocket(broker.port) as client:
        topics = client.call(MetadataRequest(topics=None)).topics
    return any(each.name == topic for each in topics) and all(
        row.leader_id >= 0 and set(row.isr_nodes) == set(row.replica_nodes)
        for each in topics
        for row in each.partitions
    )
