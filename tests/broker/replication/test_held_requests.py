"""Requests that wait keep the order of each partition, whatever they wait for."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.protocol.topic_partition import TopicPartition


def appends_to(*partitions: int) -> list[Append]:
    return [Append("t", partition, memoryview(b"records")) for partition in partitions]


class Requests:
    """Holds requests, and notes the names of those that proceed."""

    def __init__(self) -> None:
        self.held = HeldRequests()
        self.proceeded: list[str] = []

    def hold(self, name: str, *partitions: int, work: Deferred[None] | None = None) -> None:
        self.held.hold(appends_to(*partitions), [] if work is None else [work], self.proceed(name))

    def proceed(self, name: str) -> Callable[[], None]:
        return lambda: self.proceeded.append(name)


def test_a_request_waits_for_those_before_it_that_share_a_partition() -> None:
    requests = Requests()
    first: Deferred[None] = Deferred()
    second: Deferred[None] = Deferred()
    requests.hold("first", 0, 1, work=first)
    requests.hold("second", 1, 2, work=second)
    requests.hold("third", 2)
    requests.hold("other", 3, work=Deferred())

    second.callback(None)
    assert requests.proceeded == [] and requests.held.is_behind(partitions_of(2))

    first.callback(None)
    assert requests.proceeded == ["first", "second", "third"]
    assert not requests.held.is_behind(partitions_of(0, 1, 2))
    assert requests.held.are_any, "the other one still waits"


def partitions_of(*partitions: int) -> frozenset[TopicPartition]:
    return frozenset(append.topic_partition for append in appends_to(*partitions))


def test_a_request_that_has_to_wait_once_more_keeps_its_place() -> None:
    requests = Requests()
    work: Deferred[None] = Deferred()
    more: Deferred[None] = Deferred()
    appends = appends_to(0)
    requests.held.hold(
        appends, [work], lambda: requests.held.hold(appends, [more], requests.proceed("first"))
    )
    requests.hold("second", 0)

    work.callback(None)
    assert requests.proceeded == []

    more.callback(None)
    assert requests.proceeded == ["first", "second"]
    assert not requests.held.are_any


def test_work_that_is_done_at_once_ends_the_wait_at_once() -> None:
    requests = Requests()
    work: Deferred[None] = Deferred()
    appends = appends_to(0)
    done: Deferred[None] = Deferred()
    done.callback(None)
    requests.held.hold(
        appends, [work], lambda: requests.held.hold(appends, [done], requests.proceed("first"))
    )
    requests.hold("second", 0)

    work.callback(None)

    assert requests.proceeded == ["first", "second"]
    assert not requests.held.are_any


def test_a_request_that_arrives_while_another_proceeds_stays_behind_it() -> None:
    requests = Requests()
    work: Deferred[None] = Deferred()

    def proceed() -> None:
        assert requests.held.is_behind(partitions_of(0))
        requests.hold("second", 0)
        requests.proceeded.append("first")

    requests.held.hold(appends_to(0), [work], proceed)
    work.callback(None)

    assert requests.proceeded == ["first", "second"]
    assert not requests.held.are_any


def test_work_that_fails_ends_the_wait() -> None:
    requests = Requests()
    work: Deferred[None] = Deferred()
    requests.hold("first", 0, work=work)

    work.errback(OSError("the disk has failed"))

    assert requests.proceeded == ["first"]
