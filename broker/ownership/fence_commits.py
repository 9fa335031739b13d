"""Waits until a fence is settled, then reports that to the table and to the answers.

Two things settle it. The high watermark has reached it: nothing before it can vanish. And every replica that
may lead next has followed this leader: none of them still has a record of an earlier owner that this leader
lacks, and that would be committed behind the fence if that replica led.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.ownership.answers import Answers
from holdfast_log.broker.ownership.decided import DecidedResources
from holdfast_log.broker.ownership.effects import Fence
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.waiting import MAX_WAIT_MS, Waiting
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.errors import BrokerError, ErrorCode

_LOOK_AGAIN_S = 0.1
"""Delay in s before a fence is examined again for which no request could be parked."""


def _is_settled(partition: Partition, fence: Fence) -> bool:
    """Whether everything before the fence is committed, and no earlier owner's record can be committed behind
    it."""
    return partition.high_watermark >= fence.offset and partition.leadership().is_followed


class FenceCommits:
    """The fences that are not settled yet. `waiting` are the requests that are examined again when a high
    watermark moves; `table_changed` is called after each change of the table."""

    def __init__(
        self,
        clock: Clock,
        waiting: Waiting,
        table: OwnershipTable,
        decided: DecidedResources,
        answers: Answers,
        table_changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._waiting = waiting
        self._table = table
        self._decided = decided
        self._answers = answers
        self._table_changed = table_changed
        self._is_stopped = False

    def is_committed(self, fence: Fence) -> bool:
        """Whether the fence is settled. False if this broker has stopped leading."""
        partition = self._decided.partition(fence.key)
        return partition is not None and _is_settled(partition, fence)

    def wait(self, fence: Fence) -> None:
        """Report the fence, now or as soon as it is committed. If this broker stops leading its partition
        first, fail the requests that wait for the fence."""
        if self.is_committed(fence):
            self._committed(fence)
            return
        partition = self._decided.partition(fence.key)
        if partition is None:
            return

        def check(_: object) -> bool:
            if self._decided.partition(fence.key) is not partition:
                self._answers.abandon(fence, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return True
            if not _is_settled(partition, fence):
                return False
            self._committed(fence)
            self._table_changed()
            return True

        def expire() -> None:
            """The broker has too many waiting requests to park this one: look again later."""
            if not self._is_stopped:
                self._clock.callLater(_LOOK_AGAIN_S, self.wait, fence)

        self._waiting.park([partition.key], MAX_WAIT_MS, check, expire)

    def _committed(self, fence: Fence) -> None:
        self._table.fence_committed(fence)
        self._answers.committed(fence)

    def stop(self) -> None:
        """Do not look at fences again, because the broker stops."""
        self._is_stopped = True
