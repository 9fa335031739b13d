"""Produce requests that wait before anything of them is appended.

With a request wait all later requests for the same partitions: each partition gets its appends in the order
in which they arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.workers import all_back
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(slots=True, eq=False)
class HeldRequest:
    """A request that waits: for work of its own while it `is_busy`, otherwise for requests before it.

    `times` counts how often it was held: what it waited for may show that it has to wait for more.
    """

    appends: Sequence[Append]
    partitions: frozenset[TopicPartition]
    proceed: Callable[[], None]
    is_busy: bool
    times: int = 1


class HeldRequests:
    """The produce requests that wait, for each partition in the order of their arrival."""

    def __init__(self) -> None:
        self.queues: dict[TopicPartition, deque[HeldRequest]] = {}
        """Read-only to others."""

    @property
    def are_any(self) -> bool:
        """Whether a request waits."""
        return bool(self.queues)

    def is_behind(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether a request for these partitions has to wait for one before it."""
        return any(partition in self.queues for partition in partitions)

    def hold(
        self, appends: Sequence[Append], work: Sequence[Deferred[None]], proceed: Callable[[], None]
    ) -> None:
        """Call `proceed` once all of `work` is done or has failed, and the requests before this one have
        proceeded. A request that is held again while it proceeds keeps its place."""
        for append in appends:
            append.keep()
        held = self._proceeding(appends)
        if held is None:
            partitions = frozenset(append.topic_partition for append in appends)
            held = HeldRequest(appends, partitions, proceed, is_busy=bool(work))
            for partition in partitions:
                self.queues.setdefault(partition, deque()).append(held)
        else:
            held.proceed, held.is_busy = proceed, bool(work)
            held.times += 1
        if work:
            # Work that fails is missed when the appends are judged, which answers the error.
            all_back(list(work)).addErrback(lambda failure: None).addCallback(lambda _: self._done(held))

    def _proceeding(self, appends: Sequence[Append]) -> HeldRequest | None:
        """The request with these appends, which is the first of each of its partitions."""
        queue = self.queues.get(appends[0].topic_partition) if appends else None
        return queue[0] if queue and queue[0].appends is appends else None

    def _done(self, held: HeldRequest) -> None:
        held.is_busy = False
        candidates = deque([held])
        while candidates:
            candidate = candidates.popleft()
            if not self._may_proceed(candidate):
                continue
            times = candidate.times
            candidate.is_busy = True  # Requests that arrive meanwhile stay behind it.
            candidate.proceed()
            if candidate.times == times:
                candidates.extend(self._remove(candidate))

    def _may_proceed(self, held: HeldRequest) -> bool:
        if held.is_busy:
            return False
        queues = [self.queues.get(partition) for partition in held.partitions]
        return all(queue is not None and queue[0] is held for queue in queues)

    def _remove(self, held: HeldRequest) -> list[HeldRequest]:
        """Remove a request that has proceeded. Returns those that are the first of a partition now."""
        first: dict[int, HeldRequest] = {}
        for partition in held.partitions:
            queue = self.queues[partition]
            queue.popleft()
            if queue:
                first[id(queue[0])] = queue[0]
            else:
                del self.queues[partition]
        return list(first.values())
