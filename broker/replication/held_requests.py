"""Produce requests that wait before anything of them is appended.

With a request wait all later requests for the same partitions: each partition gets its appends in the order
in which they arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.workers import all_back
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A request that waits: for work of its own while it `is_busy`, otherwise for requests before it."""

    partitions: frozenset[TopicPartition]
    proceed: Callable[[], None]
    is_busy: bool


class HeldRequests:
    """The produce requests that wait, in the order of their arrival."""

    def __init__(self) -> None:
        self.held: list[HeldRequest] = []

    def is_behind(self, partitions: frozenset[TopicPartition]) -> bool:
        """Whether a request for these partitions has to wait for one before it."""
        return any(not partitions.isdisjoint(other.partitions) for other in self.held)

    def hold(
        self, appends: Sequence[Append], work: Sequence[Deferred[None]], proceed: Callable[[], None]
    ) -> None:
        """Call `proceed` once all of `work` is done or has failed, and the requests before this one have
        proceeded."""
        for append in appends:
            # The buffer of the request is used again once its handler has returned.
            append.records = memoryview(bytearray(append.records))
        partitions = frozenset(append.topic_partition for append in appends)
        held = HeldRequest(partitions, proceed, is_busy=bool(work))
        self.held.append(held)
        if work:
            # Work that fails is missed when the appends are judged, which answers the error.
            all_back(list(work)).addErrback(lambda failure: None).addCallback(lambda _: self._done(held))

    def _done(self, held: HeldRequest) -> None:
        held.is_busy = False
        blocked: set[TopicPartition] = set()
        ready = []
        for each in self.held:
            if each.is_busy or not blocked.isdisjoint(each.partitions):
                blocked |= each.partitions
            else:
                ready.append(each)
        self.held = [each for each in self.held if each not in ready]
        for each in ready:
            each.proceed()
