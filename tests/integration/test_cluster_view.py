"""A `ClusterView` call that waits returns once ZooKeeper shows the awaited state, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient

from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.controller import CONTROLLER, encode_controller
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    encode_partition_state,
    partition_state_path,
)
from holdfast_log.protocol.topic_partition import TopicPartition

TIMEOUT_S = 120.0


@pytest.fixture
def znode_client(zookeeper: str) -> Iterator[KazooClient]:
    """Writes the znodes that brokers and controllers would write."""
    hosts, _, chroot = zookeeper.partition("/")
    client = KazooClient(hosts)
    client.start(TIMEOUT_S)
    client.ensure_path(f"/{chroot}")
    client.chroot = f"/{chroot}"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def view(zookeeper: str, znode_client: KazooClient) -> Iterator[ClusterView]:
    with ClusterView(zookeeper) as opened:
        yield opened


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def is_waiting(future: Future[Any]) -> bool:
    try:
        future.result(0.2)
    except TimeoutError:
        return True
    return False


def test_the_first_and_the_next_controller_are_awaited(
    view: ClusterView, znode_client: KazooClient, pool: ThreadPoolExecutor
) -> None:
    first = pool.submit(view.controller)
    assert is_waiting(first)
    znode_client.create(CONTROLLER, encode_controller(2, 0))
    assert first.result(TIMEOUT_S) == 2
    second = pool.submit(view.controller, other_than=2)
    assert is_waiting(second)
    znode_client.delete(CONTROLLER)
    assert is_waiting(second)
    znode_client.create(CONTROLLER, encode_controller(3, 0))
    assert second.result(TIMEOUT_S) == 3


def test_leaders_and_in_sync_sets_are_awaited(
    view: ClusterView, znode_client: KazooClient, pool: ThreadPoolExecutor
) -> None:
    path = partition_state_path("t", 0)

    def encoded(leader: int, isr: tuple[int, ...]) -> bytes:
        return encode_partition_state(PartitionState(leader, 0, isr, 1))

    led = pool.submit(view.leader, "t", 0)
    assert is_waiting(led)
    znode_client.create(path, encoded(-1, (1,)), makepath=True)
    assert is_waiting(led)
    znode_client.set(path, encoded(1, (1,)))
    assert led.result(TIMEOUT_S) == 1
    whole = pool.submit(view.wait_for_in_sync, "t", 0, {1, 2})
    assert is_waiting(whole)
    znode_client.set(path, encoded(1, (2, 1)))
    whole.result(TIMEOUT_S)
    assert view.leader("t", 0) == 1


def test_a_broker_is_gone_when_its_znode_is(
    view: ClusterView, znode_client: KazooClient, pool: ThreadPoolExecutor
) -> None:
    znode_client.create(broker_path(4), b"", makepath=True)
    gone = pool.submit(view.wait_until_gone, 4)
    assert is_waiting(gone)
    znode_client.delete(broker_path(4))
    gone.result(TIMEOUT_S)


def test_a_wait_that_times_out_names_the_present_state(view: ClusterView, znode_client: KazooClient) -> None:
    state = PartitionState(1, 0, (1,), 1)
    path = partition_state_path("t", 0)
    znode_client.create(path, encode_partition_state(state), makepath=True)
    assert view.leader("t", 0) == 1  # The view has connected, so the 2 s below suffice.
    with pytest.raises(TimeoutError, match=r"isr=\(1,\)"):
        view.wait_for_in_sync("t", 0, {1, 2}, timeout_s=2)


def test_partitions_and_registrations_are_read_as_they_are(
    view: ClusterView, znode_client: KazooClient
) -> None:
    known = {TopicPartition("t", number): PartitionState(2, number, (2, 3), 1) for number in range(2)}
    for place, state in known.items():
        znode_client.create(partition_state_path(*place), encode_partition_state(state), makepath=True)
    assert view.states(list(known)) == known
    assert view.registrations([1, 2]) == {}
    epochs = set()
    for _ in range(2):
        znode_client.create(broker_path(2), b"", makepath=True)
        ((broker, epoch),) = view.registrations([1, 2]).items()
        assert broker == 2
        epochs.add(epoch)
        znode_client.delete(broker_path(2))
    assert len(epochs) == 2
