"""One replica of a partition on this broker: its role, its high watermark, and its reads.

A state machine without network, clock or threads: callers pass the log and the time, and `Replicas` sends the
proposals that it returns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from holdfast_log.broker.log.aborted_search import with_aborted
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.truncation import truncate_fully_and_start_at, truncate_to
from holdfast_log.broker.replication.admission import (
    NO_TOKEN,
    Admission,
    FenceAdmission,
    ReadAdmission,
    RequestFence,
)
from holdfast_log.broker.replication.leadership import NO_BROKER_EPOCH, IsrProposal, Leadership
from holdfast_log.broker.replication.partition_values import (
    NO_OFFSET,
    Following,
    LeaderAndIsr,
    PartitionRead,
    ReadWish,
)
from holdfast_log.broker.replication.refused_batches import RefusedBatches
from holdfast_log.broker.replication.traffic import TopicTraffic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import copy_small
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

NO_LEADER = -1
NO_EPOCH = -1
READ_COMMITTED = 1
"""The isolation level of a reader that gets neither records of open transactions nor those behind them."""
CONSUMER_ID = -1
"""Replica id in the fetch of a consumer."""


_SHARED_BYTES = 32 << 10
"""Up to this many bytes are read once for several readers: to have the kernel send each of them the bytes
from the file takes longer."""

_new_tuple = tuple.__new__


class Partition:
    """A partition's replica on this broker. `is_live` returns whether a broker is known to be alive.

    `role` is None until the controller has assigned one.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        local_id: int,
        log: Log,
        is_live: Callable[[int], bool] = lambda broker_id: True,
    ) -> None:
        self.topic = topic
        self.index = index
        self.key = TopicPartition(topic, index)
        self.traffic = TopicTraffic()
        """Counts what is appended; shared by the partitions of the topic on this broker."""
        self.topic_id = topic_id
        self.local_id = local_id
        self.log = log
        self.role: Leadership | Following | None = None
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self._in_sync_needed_max = 1
        """How many in-sync replicas min.insync.replicas can demand: replicas being added do not count."""
        self.high_watermark = 0
        self.admission: Admission | None = None
        self.read_admission: ReadAdmission | None = None
        self.fence_admission: FenceAdmission | None = None
        """Judges requests with a fence; None while this broker does not lead the partition."""
        self._is_live = is_live
        self.is_resigning = False
        """Whether this replica refuses to lead while another replica is in sync, because its log is
        damaged."""
        self.is_counted_on = False
        """Whether this replica may be elected without another one's consent: the controller's last assignment
        calls it in sync or eligible. A leader adds a replica to the set only once their logs agree."""
        self.is_withdrawing = False
        """Whether this replica asks the controller to remove it from the in-sync set and from the eligible
        replicas, because damage makes it lose records that it has reported."""
        self.refused_offset = NO_OFFSET
        """The offset of the batch that this follower has refused last, because it is damaged; -1 if it has
        appended others since."""
        self.refused_here = RefusedBatches(log)
        """Has the batches examined that followers of this leader refuse."""
        self.is_deleted = False
        """Whether the replica has no role because its topic was deleted."""
        self._shared_reads: dict[Hashable, Any] | None = None
        """By `ReadWish`; `_usual_fetch.c` also keeps here what it has encoded of them, by keys of three
        elements."""

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} epoch {self.leader_epoch} {type(self.role).__name__}>"

    @property
    def is_offline(self) -> bool:
        """Whether the log's directory has failed."""
        return self.log.failure is not None

    @property
    def leader(self) -> int:
        """The leader's broker id; -1 if there is none or it is unknown."""
        match self.role:
            case Leadership():
                return self.local_id
            case Following(leader):
                return leader
            case _:
                return NO_LEADER

    # -- admission ---------------------------------------------------------------------------------------

    def required_fence_admission(self) -> FenceAdmission:
        """The judge of requests with a fence. Raises BrokerError NOT_LEADER_OR_FOLLOWER if there is none."""
        if self.fence_admission is None:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"this broker does not know who owns {self.topic}-{self.index}: look for the leader",
            )
        return self.fence_admission

    def admit_reader(self, wanted: FetchPartition, connection: int) -> None:
        """Return if a consumer may read: by its fence if it sends one, otherwise by its connection. Raises
        BrokerError with the reason if not."""
        if wanted.owner_token != NO_TOKEN:
            fence = RequestFence(wanted.owner_token, wanted.owner_secret)
            self.required_fence_admission().admit_read(fence)
        elif self.read_admission is not None:
            self.read_admission.admit(connection)

    def replace_log(self, log: Log) -> None:
        """Use the same log in another directory."""
        self.log = log
        self.refused_here = RefusedBatches(log)
        self._shared_reads = None

    # -- roles -------------------------------------------------------------------------------------------

    def lead(self, assignment: LeaderAndIsr, now_ms: int) -> bool:
        """Become the leader, or, if this replica already leads, apply a new in-sync set or assignment.

        Returns whether a new leader epoch begins.
        """
        self._accept(assignment)
        role = self.role
        if isinstance(role, Leadership) and role.leader_epoch == assignment.leader_epoch:
            # If a proposal is pending, a repetition of the known set must not settle it; a later set does.
            if assignment.partition_epoch > role.partition_epoch:
                self._settle(role, assignment.isr, assignment.partition_epoch, assignment.eligible)
            role.set_replicas(assignment.replicas, now_ms)
            return False
        end_offset = self.log.log_end_offset
        self.log.epochs.begin(assignment.leader_epoch, end_offset)
        self.role = Leadership(
            self.local_id,
            assignment.leader_epoch,
            end_offset,
            assignment.replicas,
            assignment.isr,
            assignment.partition_epoch,
            now_ms,
            self._is_live,
            assignment.eligible,
        )
        return True

    def follow(self, assignment: LeaderAndIsr) -> bool:
        """Become a follower. Returns whether the leader or its epoch has changed."""
        is_new = assignment.leader_epoch != self.leader_epoch or assignment.leader != self.leader
        self._accept(assignment)
        self.role = Following(assignment.leader)
        return is_new

    def has_successor(self, isr: Iterable[int], eligible: Iterable[int]) -> bool:
        """Whether another live replica is in sync, or eligible (KIP-966): it has every committed record, and
        could lead in place of this one."""
        return any(member != self.local_id and self._is_live(member) for member in (*isr, *eligible))

    def stop(self) -> None:
        """Give up the role: the replica was moved away or deleted, or its disk failed."""
        self.role = None

    def _accept(self, assignment: LeaderAndIsr) -> None:
        assert assignment.leader_epoch >= self.leader_epoch, "leader epochs never go down"
        self.leader_epoch = assignment.leader_epoch
        self.partition_epoch = assignment.partition_epoch
        self.replicas = assignment.replicas
        self.is_counted_on = self.local_id in (*assignment.isr, *assignment.eligible)
        self._in_sync_needed_max = len(assignment.replicas) - len(assignment.adding)
        self._drop_impossible_epochs()

    def _drop_impossible_epochs(self) -> None:
        """Believe no leader epoch of this log that has not begun: a disk has changed it, as the checksum of
        its batch does not cover it. A leader with such an epoch would have the others truncate sound records,
        and a follower would find nothing in common with its leader's log. The batch is examined."""
        log = self.log
        latest = log.epochs.latest
        if log.failure is not None or latest <= self.leader_epoch:
            return
        offset = log.epochs.drop_after(self.leader_epoch)
        if offset is not None and log.log_start_offset <= offset < log.log_end_offset:
            log.suspect_at(
                offset, f"offset {offset} has leader epoch {latest}, and only {self.leader_epoch} has begun"
            )

    def leadership(self, current_leader_epoch: int = NO_EPOCH) -> Leadership:
        """The leader's state, for a request that names the leader epoch it expects (-1: none).

        Raises BrokerError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        if current_leader_epoch != NO_EPOCH:
            self.check_leader_epoch(current_leader_epoch)
        role = self.role
        if not isinstance(role, Leadership):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return role

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise BrokerError if a request's leader epoch is older or newer than this replica's (KIP-320)."""
        if current_leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # -- the high watermark ------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended for certain: the first one of the oldest that is
        open or whose marker is not below the high watermark; the high watermark if there is none."""
        log, high_watermark = self.log, self.high_watermark
        if not log.unstable:
            return high_watermark
        first = log.producers.transactions.first_unstable(high_watermark)
        return high_watermark if first is None else min(high_watermark, max(first, log.log_start_offset))

    def restore_high_watermark(self, checkpoint: int) -> None:
        """Start from a checkpointed high watermark, limited to the offsets of the log."""
        self.high_watermark = min(max(checkpoint, self.log.log_start_offset), self.log.log_end_offset)

    def advance_high_watermark(self, now_ms: int, lag_ms_max: int) -> bool:
        """As leader, raise the high watermark to the offset that all in-sync replicas have reached. Returns
        whether it rose.

        It stays where it is while there are eligible replicas, or fewer in-sync replicas than
        min.insync.replicas (KIP-966). So each replica that may lead next has every record below it.
        """
        role = self.role
        if not isinstance(role, Leadership):
            return False
        log = self.log
        settings = log.settings
        in_sync = len(role.isr)
        if role.eligible or (in_sync < settings.min_insync_replicas and in_sync < self._in_sync_needed_max):
            return False
        end_offset = log.log_end_offset
        # With flush.before.ack this replica counts only records that would survive a power failure.
        local_offset = log.recovery_point if settings.flush_before_ack else end_offset
        committed = local_offset
        if role.remotes:
            committed = role.committed_offset(local_offset, end_offset, now_ms, lag_ms_max)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def take_high_watermark(self, leaders: int) -> bool:
        """As follower, apply the leader's high watermark, up to the end of this log."""
        taken = min(leaders, self.log.log_end_offset)
        if taken <= self.high_watermark:
            return False
        self.high_watermark = taken
        return True

    def truncate_to(self, offset: int, date_ms: int) -> None:
        """Truncate the log, and lower the high watermark to its end."""
        truncate_to(self.log, offset, now_ms=date_ms)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def start_at(self, offset: int, date_ms: int) -> None:
        """Empty the log; it starts and ends at `offset` afterwards."""
        truncate_fully_and_start_at(self.log, offset, now_ms=date_ms)
        self.high_watermark = offset

    # -- reading -----------------------------------------------------------------------------------------

    def begin_sharing(self) -> None:
        """Read once for all consumers that read the same until `end_sharing`: many are being woken at once.
        Nothing may be appended in between."""
        self._shared_reads = {}

    def end_sharing(self) -> None:
        """Read for each consumer again."""
        self._shared_reads = None

    def shared(self, wish: ReadWish) -> PartitionRead | None:
        """What `read` returns to a consumer with this wish, if another one has read the same since
        `begin_sharing`; None if it has to be read."""
        shared = self._shared_reads
        found: PartitionRead | None = None if shared is None else shared.get(wish)
        log = self.log
        if (
            found is None
            or found.high_watermark != self.high_watermark
            or found.log_start_offset != log.log_start_offset
            or log.failure is not None
            or not isinstance(self.role, Leadership)
        ):
            return None
        records = found.records
        if records is not None and records.data is None and records.length <= _SHARED_BYTES:
            copy_small(records, _SHARED_BYTES)
        return found

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        replica_id: int = CONSUMER_ID,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        min_one_batch: bool = True,
        isolation: int = 0,
        from_follower: bool = False,
    ) -> PartitionRead:
        """Batches from `offset` on: for a consumer below the high watermark, and with isolation
        READ_COMMITTED below the last stable offset; for a follower to the log's end. `from_follower`: also
        while this replica follows.

        Raises BrokerError: OFFSET_OUT_OF_RANGE, and what `leadership` raises.
        """
        shared = self._shared_reads
        wish: ReadWish = (offset, max_bytes, current_leader_epoch, last_fetched_epoch)
        if isolation:
            wish = (*wish, isolation)
        if shared is None or replica_id != CONSUMER_ID or not min_one_batch:
            shared = None
        elif (known := self.shared(wish)) is not None:
            return known
        if from_follower and isinstance(self.role, Following):
            self.check_leader_epoch(current_leader_epoch)
        elif current_leader_epoch != NO_EPOCH or not isinstance(self.role, Leadership):
            self.leadership(current_leader_epoch)
        log, high_watermark = self.log, self.high_watermark
        stable_offset = self.last_stable_offset if log.unstable else high_watermark
        is_committed = isolation == READ_COMMITTED and replica_id < 0
        upper_offset = log.log_end_offset
        if replica_id < 0:
            upper_offset = stable_offset if is_committed else high_watermark
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._divergence(offset, last_fetched_epoch)
            if diverging is not None:
                return PartitionRead(
                    high_watermark, log.log_start_offset, upper_offset,
                    diverging=diverging, last_stable_offset=stable_offset,
                )  # fmt: skip
        if offset == upper_offset and log.failure is None and log.log_start_offset <= offset:
            # The usual read of a consumer that waits.
            return _new_tuple(
                PartitionRead,
                (
                    high_watermark,
                    log.log_start_offset,
                    upper_offset,
                    None,
                    None,
                    None,
                    stable_offset,
                    None,
                ),
            )
        read, aborted = log.read(
            offset, max_bytes,
            upper_offset=upper_offset, min_one_batch=min_one_batch, skips_empty=replica_id == CONSUMER_ID,
        ), None  # fmt: skip
        if is_committed and read.slice is not None:
            read, aborted = with_aborted(log, offset, max_bytes, read)
        found = _new_tuple(
            PartitionRead,
            (
                high_watermark, log.log_start_offset, upper_offset, read.slice, read.unchecked, None,
                stable_offset, aborted or None,
            ),
        )  # fmt: skip
        if shared is not None and read.unchecked is None:
            shared[wish] = found
        return found

    def _divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset < 0:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"the log has no leader epoch up to {last_fetched_epoch}"
            )
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def end_offset_for_epoch(
        self, leader_epoch: int, current_leader_epoch: int = NO_EPOCH
    ) -> tuple[int, int]:
        """(the largest epoch up to `leader_epoch`, its end offset); (-1, -1) if unknown (KIP-101). Raises the
        errors of `leadership`."""
        self.leadership(current_leader_epoch)
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(leader_epoch)

    # -- the in-sync set ---------------------------------------------------------------------------------

    def record_fetch(
        self, replica_id: int, wanted: FetchPartition, now_ms: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> bool:
        """Record a follower's position from the offset that it fetches. Returns whether the position counts.

        It does not count if the follower's log diverges from this one, may diverge from it before its start,
        or has no offset in common with it: then the follower lacks records before that offset. Raises
        BrokerError: the errors of `leadership`, and NOT_LEADER_OR_FOLLOWER if the broker is not a replica, or
        was one in an earlier registration only.
        """
        role = self.leadership(wanted.current_leader_epoch)
        log, offset = self.log, wanted.fetch_offset
        if wanted.has_refused:
            self.refused_here.examine(replica_id, offset, now_ms)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return False
        if wanted.last_fetched_epoch != NO_EPOCH and (
            self._divergence(offset, wanted.last_fetched_epoch) or self._is_unlike_a_deleted_record(wanted)
        ):
            return False
        remote = role.record_fetch(
            replica_id, offset, wanted.log_start_offset, log.log_end_offset, now_ms, broker_epoch
        )
        if remote is None:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica_id} is not a replica of {self.key}"
            )
        return True

    def _is_unlike_a_deleted_record(self, wanted: FetchPartition) -> bool:
        """Whether the follower's last record, which this leader has deleted, may differ from the one that it
        deleted. The follower deletes its own as soon as it learns where this log starts."""
        log, offset = self.log, wanted.fetch_offset
        return (
            wanted.log_start_offset < log.log_start_offset == offset
            and wanted.last_fetched_epoch != log.epochs.epoch_at(offset)
        )

    def is_in_sync(self, replica_id: int) -> bool:
        """Whether a replica is in the in-sync set, as the controller last wrote it to this leader."""
        role = self.role
        return isinstance(role, Leadership) and replica_id in role.isr

    def confirm(self, replica_id: int, fetched_ms: int) -> None:
        """Record a fetch of a follower that had caught up when it last named this partition: see
        `RemoteReplica.confirm`."""
        role = self.role
        remote = role.remotes.get(replica_id) if isinstance(role, Leadership) else None
        if remote is not None:
            remote.confirm(fetched_ms)

    def is_isr_pending(self, proposal: IsrProposal) -> bool:
        """Whether this replica leads, and waits for the controller's decision on this proposal."""
        role = self.role
        return isinstance(role, Leadership) and role.is_pending(proposal)

    def _settle(
        self, role: Leadership, isr: Sequence[int], partition_epoch: int, eligible: Sequence[int]
    ) -> bool:
        """Apply an in-sync set. Returns False for one that is already known."""
        before = len(role.isr)
        if not role.settle(isr, partition_epoch, eligible):
            return False
        self.traffic.isr_shrinks += len(role.isr) < before
        self.traffic.isr_expands += len(role.isr) > before
        return True

    def settle_isr(
        self, leader_epoch: int, isr: Sequence[int], partition_epoch: int, eligible: Sequence[int] = ()
    ) -> bool:
        """Apply the controller's answer to a proposal. Returns False for an answer of another leader epoch,
        and for a state that is already known."""
        role = self.role
        if not isinstance(role, Leadership) or role.leader_epoch != leader_epoch:
            return False
        if not self._settle(role, isr, partition_epoch, eligible):
            return False
        self.partition_epoch = partition_epoch
        return True
