"""The state of a running cluster in ZooKeeper, for tools, benchmarks and tests that wait for a state.

Calls block until the state is reached. They wait for ZooKeeper's watches and do not poll.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.controller import CONTROLLER, decode_controller
from holdfast_log.coordinator.znodes.topics import (
    NO_LEADER,
    PartitionState,
    decode_partition_state,
    partition_state_path,
)
from holdfast_log.coordinator.zookeeper.interface import (
    NoNode,
    SessionExpired,
    Stat,
    WatchEvent,
    ZnodeWatch,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")

TIMEOUT_S = 60.0


class ClusterView:
    """Watches the cluster at `zookeeper_connect`; a context manager that opens and closes its session."""

    def __init__(self, zookeeper_connect: str, *, session_timeout_ms: int = 10_000) -> None:
        # All of the session's work happens on this one thread, as it does on a broker's reactor.
        self._thread = ThreadPoolExecutor(1, "cluster-view")
        self._zookeeper = KazooZooKeeper(zookeeper_connect, session_timeout_ms, self._thread.submit)
        self._zookeeper.add_listener(self)
        self._waiting: list[threading.Event] = []

    def __enter__(self) -> Self:
        self._thread.submit(self._zookeeper.start).result()
        return self

    def __exit__(self, *_: object) -> None:
        closed = threading.Event()
        self._thread.submit(lambda: self._zookeeper.close().addBoth(lambda _: closed.set()))
        closed.wait(TIMEOUT_S)
        self._thread.shutdown()

    def controller(self, *, other_than: int | None = None, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for a controller other than broker `other_than`, and return its id."""
        found = self._wait_for(_CONTROLLER, lambda broker: broker not in (None, other_than), timeout_s)
        assert found is not None
        return found

    def leader(
        self, topic: str, partition: int, *, other_than: int = NO_LEADER, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until a partition has a leader other than the broker given; its id."""
        state = self._wait_for(
            _state_of(topic, partition),
            lambda state: state is not None and state.leader not in (NO_LEADER, other_than),
            timeout_s,
        )
        assert state is not None
        return state.leader

    def wait_for_in_sync(
        self, topic: str, partition: int, brokers: Collection[int], timeout_s: float = TIMEOUT_S
    ) -> None:
        """Return once a partition has this in-sync set."""
        self._wait_for(
            _state_of(topic, partition),
            lambda state: state is not None and set(state.isr) == set(brokers),
            timeout_s,
        )

    def states(
        self, places: Collection[TopicPartition], timeout_s: float = TIMEOUT_S
    ) -> dict[TopicPartition, PartitionState]:
        """The states of partitions now, read at once. Raises `NoNode` if one does not exist."""

        def look(session: ZooKeeperSession, watch: ZnodeWatch) -> Deferred[list[tuple[bytes, Stat]]]:
            return gatherResults(session.get(partition_state_path(*place)) for place in places)

        found = self._wait_for(look, lambda _: True, timeout_s)
        return {
            place: decode_partition_state(place.topic, place.partition, data)
            for place, (data, _) in zip(places, found, strict=True)
        }

    def registrations(self, brokers: Collection[int], timeout_s: float = TIMEOUT_S) -> dict[int, int]:
        """The epochs of these brokers now, those that are registered: each registration has another one."""

        def look(session: ZooKeeperSession, watch: ZnodeWatch) -> Deferred[list[Stat | None]]:
            return gatherResults(session.exists(broker_path(broker)) for broker in brokers)

        stats = self._wait_for(look, lambda _: True, timeout_s)
        return {broker: stat.czxid for broker, stat in zip(brokers, stats, strict=True) if stat is not None}

    def wait_until_gone(self, broker_id: int, timeout_s: float = TIMEOUT_S) -> float:
        """Wait until a broker is no longer registered; return `time.monotonic()` at that notification."""
        path = broker_path(broker_id)
        told_at = time.monotonic()

        def look(session: ZooKeeperSession, watch: ZnodeWatch) -> Deferred[bool]:
            def seen(event: WatchEvent) -> None:
                nonlocal told_at
                told_at = time.monotonic()
                watch(event)

            return session.exists(path, seen).addCallback(lambda stat: stat is not None)

        self._wait_for(look, lambda is_there: not is_there, timeout_s)
        return told_at

    # SessionListener

    def session_connected(self, session: ZooKeeperSession) -> None:
        pass

    def session_suspended(self, session: ZooKeeperSession) -> None:
        pass

    def session_expired(self, session: ZooKeeperSession) -> None:
        for changed in self._waiting:
            changed.set()  # The watch of that session will not fire any more.

    # Waiting

    def _wait_for(
        self,
        look: Callable[[ZooKeeperSession, ZnodeWatch], Deferred[T]],
        is_enough: Callable[[T], bool],
        timeout_s: float,
    ) -> T:
        """Read the state until it is the wanted one. Raises TimeoutError with the last state seen."""
        deadline = time.monotonic() + timeout_s
        while True:
            changed = threading.Event()
            self._waiting.append(changed)
            try:
                seen = self._look(look, changed, deadline)
                if is_enough(seen):
                    return seen
                if not changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"after {timeout_s:.0f} s it is still {seen}")
            except SessionExpired:
                pass  # There is a new session by now.
            finally:
                self._waiting.remove(changed)

    def _look(
        self,
        look: Callable[[ZooKeeperSession, ZnodeWatch], Deferred[T]],
        changed: threading.Event,
        deadline: float,
    ) -> T:
        answer: Future[T] = Future()

        def run() -> None:
            looked = look(self._zookeeper.session, lambda event: changed.set())
            looked.addCallbacks(answer.set_result, lambda failure: answer.set_exception(failure.value))

        self._thread.submit(run)
        return answer.result(max(0.0, deadline - time.monotonic()))


def _read(
    path: str, decode: Callable[[bytes], T]
) -> Callable[[ZooKeeperSession, ZnodeWatch], Deferred[T | None]]:
    """Read and watch a znode; None if it does not exist, with a watch for its creation."""

    def look(session: ZooKeeperSession, watch: ZnodeWatch) -> Deferred[T | None]:
        def absent(failure: Failure) -> Deferred[T | None]:
            failure.trap(NoNode)
            return session.exists(path, watch).addCallback(
                lambda stat: None if stat is None else look(session, watch)
            )

        return session.get(path, watch).addCallbacks(lambda found: decode(found[0]), absent)

    return look


def _state_of(
    topic: str, partition: int
) -> Callable[[ZooKeeperSession, ZnodeWatch], Deferred[PartitionState | None]]:
    path = partition_state_path(topic, partition)
    return _read(path, lambda data: decode_partition_state(topic, partition, data))


_CONTROLLER = _read(CONTROLLER, decode_controller)
