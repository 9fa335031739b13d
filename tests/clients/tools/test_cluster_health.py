"""Every trouble of a cluster is one line that says what to do; a healthy cluster has none."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from holdfast_log.clients.admin import ClusterDescription, LogDir, TopicDescription
from holdfast_log.clients.connection.cluster_view import Node, PartitionInfo
from holdfast_log.clients.tools.cluster_health import ClusterFindings, troubles_of
from holdfast_log.protocol.errors import BrokerError, ErrorCode

NODES = tuple(Node(number, "127.0.0.1", 9090 + number, None) for number in (1, 2, 3))


def found(
    rows: Sequence[PartitionInfo] = (PartitionInfo(0, 1, 5, (1, 2, 3), (1, 2, 3)),),
    *,
    nodes: Sequence[Node] = NODES,
    controller: Node | None = NODES[0],
    directories: Sequence[LogDir] = (),
    silent: dict[int, str] | None = None,
) -> ClusterFindings:
    topic = TopicDescription("orders", uuid.UUID(int=1), False, tuple(rows))
    return ClusterFindings(
        ClusterDescription("c", tuple(nodes), controller), [topic], {"orders": 2}, directories, silent or {}
    )


def directory(error: BrokerError | None = None, usable: int = 50) -> LogDir:
    return LogDir(2, "/data", error, (), 100, usable)


def test_a_healthy_cluster_has_no_troubles() -> None:
    assert list(troubles_of(found(directories=[directory()]), 3)) == []


@pytest.mark.parametrize(
    ("findings", "beginnings"),
    [
        (found(controller=None), ["No broker is the controller"]),
        (
            found([PartitionInfo(0, -1, 5, (1, 2, 3), (3,))], nodes=NODES[:2]),
            ["1 partitions, the first of them orders-0, have no leader", "2 brokers are alive, not 3: 1, 2.",
             "Broker 3 is down", "1 partitions, the first of them orders-0, have replicas out of sync"],
        ),
        (
            found([PartitionInfo(7, 1, 5, (1, 3), (1,))], nodes=NODES[:2]),
            ["1 partitions, the first of them orders-7, have fewer in-sync replicas",
             "Broker 3 is down, and has replicas of 1 partitions", "2 brokers are alive"],
        ),
        (
            found([PartitionInfo(n, 1, 5, (1, 2, 3), (1, 2)) for n in range(4)]),
            ["4 partitions, the first of them orders-0, have replicas out of sync although"],
        ),
        (found(silent={2: "no answer"}), ["Broker 2 is registered and does not answer: no answer."]),
        (
            found(directories=[directory(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR))]),
            ["Log directory /data of broker 2 has failed"],
        ),
        (found(directories=[directory(usable=10)]), ["The disk of /data of broker 2 is 90 % full."]),
        (found(directories=[directory(usable=11)]), []),
    ],
)  # fmt: skip
def test_a_trouble_is_a_line_with_a_remedy(findings: ClusterFindings, beginnings: list[str]) -> None:
    troubles = [str(each) for each in troubles_of(findings, 3)]

    assert len(troubles) == len(beginnings)
    for beginning in beginnings:
        assert any(trouble.startswith(beginning) for trouble in troubles), (beginning, troubles)
    for each in troubles_of(findings, 3):
        assert each.remedy.endswith(".") and "\n" not in str(each)
