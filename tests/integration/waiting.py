"""Poll for a condition, with a deadline long enough for a slow machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.errors import ClientError
from holdfast_log.protocol.errors import BrokerError, TopicExistsError

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
