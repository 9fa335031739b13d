"""Kafka's own Java admin client: topics page by page (KIP-966), and what has settings (KIP-1142)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KRAFT_VERSION
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import Cluster
from tests.compat.apache_kafka import driver_or_skip


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command that runs the driver. Skips the test before a broker is started if there is no Kafka."""
    return driver_or_skip(tmp_path, "DescribeTopics", KRAFT_VERSION)


@pytest.fixture
def broker(command: list[str], cluster: Cluster) -> BackgroundBroker:
    return cluster.start(1)[0]


def test_topics_are_described_page_by_page(command: list[str], broker: BackgroundBroker) -> None:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("flights", 5, 1), NewTopic("orders", 3, 1)])
    done = subprocess.run(
        [*command, broker.address, "2", "flights", "orders"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    leader = str(broker.broker_id)
    assert done.stdout.splitlines() == [
        *(f"flights {index} {leader} 1 1" for index in range(5)),
        *(f"orders {index} {leader} 1 1" for index in range(3)),
        f"BROKER [{leader}]",
        f"BROKER_LOGGER [{leader}]",
        "TOPIC [flights, orders]",
    ]
