"""Replaces damaged segments by copies from the partition's leader.

A damaged replica stays in the in-sync set, and its log keeps its end. The replica fetches only the damaged
segment again, into separate files. They replace the old ones when they are complete and an examination has
found no damage in them. Truncating the log at the damage instead would destroy the sound records behind it,
which may be the only copy.

A follower whose log differs from a new leader's may have to truncate it inside the damage, and would then end
before records that it has reported. It first leaves the in-sync set, as an offline replica (KIP-112).

A leader has no other leader to copy from. It reports its replica to the controller as offline (KIP-112), the
controller elects another replica, in sync or eligible (KIP-966), and the damaged replica copies as a
follower. Without such a replica the leader keeps leading: it refuses reads of the damaged range and serves
all others. If it handed over to in-sync replicas only, a damaged leader that is alone could stay so for ever:
the others cannot copy what it cannot read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.log import names
from holdfast_log.broker.log.append import check_fetched
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.segment import Segment
from holdfast_log.broker.log.segment_copy import SegmentCopy
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import NO_LEADER, Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.schema import received_records

_log = logging.getLogger(__name__)

REPAIR_INTERVAL_MS = 5000
"""Time between two checks of the damaged logs, in ms."""
_HAND_OVER_S = 30.0
"""Minimum time between two requests for other leaders of damaged partitions, in seconds."""
_RESIGNATION_S = 15.0
"""Time that a leader waits to be replaced before it leads again, in seconds."""
_LEADER_BEGINS_S = 0.2
"""Time between two attempts while the new leader has not begun to lead, in seconds."""
_LEADER_BEGINS = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors of a leader that has not begun to lead, and of a log that was truncated during the repair."""
_FETCH_BYTES = 1 << 20
_PART_BYTES = 4 << 20
"""Bytes of the copy that a worker reads before it returns."""
REPAIRING_ID = -2
"""Replica id in a fetch that repairs: Kafka's debugging consumer, which reads below the high watermark and
belongs to no group."""


class Repairs:
    """Repairs one segment at a time. `send` sends a fetch to a broker; `announce` has the controller ask
    which replicas of this broker are offline."""

    def __init__(
        self,
        logs: LogManager,
        replicas: Replicas,
        workers: Workers,
        clock: Clock,
        send: Callable[[int, FetchRequest], Deferred[FetchResponse]],
        announce: Callable[[], None],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._workers = workers
        self._clock = clock
        self._send = send
        self._announce = announce
        self._is_busy = False
        self._handed_over_s: float | None = None

    def log_damaged(self, log: Log) -> None:
        """Begin to repair a log in which damage has just been found."""
        self.look()

    def role_changed(self, partition: Partition) -> None:
        """Look at a damaged replica whose role has changed: as a follower it has a leader to copy from."""
        if partition.log in self._logs.damaged:
            # Wait for the end of this reactor turn: the follower has not begun to copy the log's end yet.
            self._clock.callLater(0, self.look)

    def look(self) -> None:
        """Begin to repair the first damaged segment that can be repaired now. Ask the controller for other
        leaders of the damaged partitions that this broker leads."""
        must_hand_over = must_withdraw = False
        self._end_resignations()
        for log in list(self._logs.damaged):
            damaged = [segment for segment in log.segments if segment.damage is not None]
            partition = self._replicas.find(*log.topic_partition)
            if not damaged or log.failure is not None:
                self._logs.damaged.pop(log, None)
            elif partition is None or partition.log is not log:
                continue
            elif isinstance(partition.role, Leadership):
                must_hand_over = must_hand_over or _may_hand_over(partition)
            elif partition.is_withdrawing:
                must_withdraw = True
            elif partition.leader not in (NO_LEADER, partition.local_id) and not self._is_busy:
                # Move the log to the end of the queue: its leader may lack the records, so others get a turn.
                self._logs.damaged[log] = self._logs.damaged.pop(log)
                self._begin(partition, damaged[0])
        if must_withdraw:
            self._announce()
        if must_hand_over:
            self._hand_over()

    def _hand_over(self) -> None:
        now_s = self._clock.seconds()
        if self._handed_over_s is not None and 0 <= now_s - self._handed_over_s < _HAND_OVER_S:
            return
        self._handed_over_s = now_s
        for log in self._logs.damaged:
            partition = self._replicas.find(*log.topic_partition)
            if partition is not None and _may_hand_over(partition):
                partition.is_resigning = True
                _log.warning(
                    "Asking the controller for another leader of %s, to copy the damaged segment from it",
                    partition.key,
                )
        self._announce()

    def _end_resignations(self) -> None:
        """Lead again where the controller has elected no other leader: a leader that refuses the damaged
        range is better than none."""
        now_s = self._clock.seconds()
        if self._handed_over_s is None or 0 <= now_s - self._handed_over_s < _RESIGNATION_S:
            return
        is_leading_on = False
        for log in self._logs.damaged:
            partition = self._replicas.find(*log.topic_partition)
            if partition is not None and partition.is_resigning:
                partition.is_resigning, is_leading_on = False, True
        if is_leading_on:
            self._announce()

    # -- one segment ---------------------------------------------------------------------------------------

    def _begin(self, partition: Partition, segment: Segment) -> None:
        self._is_busy = partition.is_resigning = True
        done = ensureDeferred(self._repair(partition, segment))
        done.addErrback(lambda failure: self._failed(failure, partition, segment))
        done.addCallback(self._ended, partition)

    def _ended(self, is_repaired: bool, partition: Partition) -> None:
        self._is_busy = partition.is_resigning = False
        if is_repaired:
            self.look()

    def _failed(self, failure: Failure, partition: Partition, segment: Segment) -> bool:
        error = failure.value
        if isinstance(error, BrokerError) and error.code in _LEADER_BEGINS:
            # Within seconds the preferred leader may lead again: this replica, which could not copy then.
            self._clock.callLater(_LEADER_BEGINS_S, self.look)
            return False
        _log.warning(
            "%s cannot be copied from broker %d yet; next attempt in %d s: %s",
            segment.path,
            partition.leader,
            REPAIR_INTERVAL_MS // 1000,
            failure.getErrorMessage(),
        )
        return False

    async def _repair(self, partition: Partition, segment: Segment) -> bool:
        """Returns whether the segment was replaced. Raises BrokerError and OSError."""
        log = partition.log
        if segment is log.segments.active:
            # Records are being appended to it. The examination closes it first.
            self._logs.scrubber.examine(log, segment.base_offset, "it is marked as damaged")
            return False
        truncations = log.truncations
        # The leader may still have records that this replica's compaction has removed.
        log.lower_cleaned_offset(segment.base_offset)

        async def work(function: Callable[..., Any], *args: Any) -> None:
            await self._workers.run(function, *args)
            if log.failure is not None or segment not in log.segments or log.truncations != truncations:
                raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.key} has changed meanwhile")

        copy = SegmentCopy(log, segment)
        await work(copy.begin)
        offset = max(segment.base_offset, log.log_start_offset)
        while offset < segment.next_offset:
            records = await self._fetch(partition, offset)
            end = _end_of_copy(segment, records, offset, is_first=copy.size == 0)
            if end is None:
                break
            length, offset = end
            await work(copy.append, bytes(records[:length]))
        await work(copy.sync)
        inspection = copy.inspection()
        while not inspection.is_done:
            await work(inspection.advance, _PART_BYTES)
        await work(copy.write_indexes, inspection)
        if log.settling:
            raise error_for(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"a checkpoint of {partition.key} is being written"
            )
        # In this turn: nothing may happen to the log between the check and the new names.
        copy.replace_segment()
        self._logs.segment_repaired(log)
        _log.warning("%s has been copied from broker %d and is sound again", segment.path, partition.leader)
        await self._workers.run(log.disk.fsync_directory, log.directory)
        if segment.damage is None:
            await self._workers.run(log.disk.remove, segment.path_of(names.DAMAGED))
        return True

    async def _fetch(self, partition: Partition, offset: int) -> memoryview:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            topics=[
                FetchTopic(
                    topic=partition.topic,
                    topic_id=partition.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=partition.index,
                            current_leader_epoch=partition.leader_epoch,
                            fetch_offset=offset,
                            partition_max_bytes=_FETCH_BYTES,
                        )
                    ],
                )
            ],
        )
        request.replica_state.replica_id = REPAIRING_ID
        response = await self._send(partition.leader, request)
        code = response.error_code
        for topic in response.responses:
            for row in topic.partitions:
                code = code or row.error_code
                if not code and row.records:
                    return received_records(row.records)
        raise error_for(
            ErrorCode(code) if code else ErrorCode.OFFSET_NOT_AVAILABLE, f"the leader's answer at {offset}"
        )


def _may_hand_over(partition: Partition) -> bool:
    role = partition.role
    return isinstance(role, Leadership) and partition.has_successor(role.isr, role.eligible)


def _end_of_copy(
    segment: Segment, records: memoryview, offset: int, *, is_first: bool
) -> tuple[int, int] | None:
    """(bytes of `records` that belong to the segment, the offset after them); None if none do. Raises
    BrokerError for records that do not fit the segment."""
    headers = check_fetched(records, 0, is_dense=False)
    if headers and not is_first and headers[0].base_offset < offset:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"a batch begins at {headers[0].base_offset}")
    start = min(offset, headers[0].base_offset) if is_first and headers else offset
    check_fetched(records, start, is_dense=segment.is_dense)
    mine = [header for header in headers if header.base_offset < segment.next_offset]
    if mine and mine[-1].next_offset > segment.next_offset:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"a batch reaches into {segment.next_offset}")
    return (mine[-1].end, mine[-1].next_offset) if mine else None
