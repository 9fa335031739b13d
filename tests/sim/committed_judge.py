"""Checks at every step that each replica which may become leader has every committed or acknowledged record.

A record is *promised* when a producer got its acknowledgement with acks=all, or when a leader with enough
in-sync replicas raised its high watermark past it. From then on every broker that begins to lead in a later
leader epoch must have it, every follower that a leader counts must have it, no follower may truncate it, and
no replica may join the in-sync set without it. The judge reports such a replica at once, before the missing
records are lost on all disks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import NO_EPOCH, Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.topics import (
    TOPICS,
    PartitionState,
    decode_partition_state,
    partition_state_path,
)
from holdfast_log.coordinator.zookeeper.interface import Create, Delete, SetData, WriteOperation
from holdfast_log.protocol.messages.fetch import FetchPartition
from tests.models.disk import SimDisk
from tests.sim.cluster import Cluster
from tests.sim.history import Batch, History, Incarnation, TopicPartition

_HEADER = struct.Struct(">qiibI")
"""The first fields of a batch: base offset, length of the rest, leader epoch, magic, checksum."""
_LENGTH_FROM = 12


@dataclass(frozen=True, slots=True)
class Promise:
    """An acknowledged batch. Brokers that lead in `leader_epoch` or later must have it."""

    leader_epoch: int
    offset: int
    next_offset: int
    checksum: int
    what: str


@dataclass(slots=True)
class _Promised:
    """The promised records of one partition: acknowledged batches, and for each leader epoch the offset up to
    which its leader committed, with the leader epoch of the last record before that offset."""

    batches: list[Promise] = field(default_factory=list)
    committed: dict[int, tuple[int, int]] = field(default_factory=dict)

    def before(self, leader_epoch: int) -> tuple[int, int]:
        """The offset up to which leaders of earlier leader epochs have committed records, and the leader
        epoch of the last committed record. A log that has this record has all committed records before it."""
        earlier = [committed for epoch, committed in self.committed.items() if epoch < leader_epoch]
        return max(earlier, default=(0, NO_EPOCH))

    def committed_before(self, leader_epoch: int) -> int:
        """The offset up to which leaders of earlier leader epochs have committed records."""
        return self.before(leader_epoch)[0]


def _end(log: Log, offset: int) -> str:
    """Describes how a log differs from one that has every record committed before `offset`."""
    if log.log_end_offset < offset:
        return f"a log that ends at {log.log_end_offset}"
    return f"a log whose record {offset - 1} is of epoch {log.epochs.epoch_at(offset - 1)}"


def stored_batches(disk: SimDisk, directory: str) -> dict[int, tuple[int, int]]:
    """Leader epoch and checksum of each batch in a log's files, by base offset, as the batch headers state
    them.

    This function does not verify the checksums: the judges at the end of the run do. It reads the files as
    the broker wrote them, before any bit changed: the broker refuses to serve a damaged segment and copies it
    from another replica."""
    found: dict[int, tuple[int, int]] = {}
    for data in disk.contents(directory, ".log"):
        position = 0
        while len(data) - position >= _HEADER.size:
            base_offset, length, leader_epoch, _, checksum = _HEADER.unpack_from(data, position)
            if length <= 0:
                break
            found[base_offset] = leader_epoch, checksum
            position += _LENGTH_FROM + length
    return found


def _told(committed: tuple[int, int]) -> str:
    return f"committed is everything before {committed[0]}, the last record of epoch {committed[1]}"


class CommittedJudge:
    """Compares replicas with the promised records, whenever a role, a high watermark or an in-sync set
    changes.

    It skips topics in the history's `may_lose`, because their leaders may be elected uncleanly.
    """

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster = cluster
        self._history = history
        self._promised: dict[Incarnation, _Promised] = {}
        self._in_sync: dict[TopicPartition, frozenset[int]] = {}
        self._highest: WeakKeyDictionary[Leadership, int] = WeakKeyDictionary()
        """The highest high watermark that each leader has had in its term."""
        self._committed: dict[Incarnation, int] = {}
        history.committed = self._committed
        history.acknowledgements.append(self.acknowledged)
        cluster.zookeeper.observers.append(self._written)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every new role, counted fetch, raised high watermark and truncation."""
        with ExitStack() as stack:
            stack.enter_context(self._wrapped("lead", self._lead))
            stack.enter_context(self._wrapped("follow", self._follow))
            stack.enter_context(self._wrapped("record_fetch", self._record_fetch))
            stack.enter_context(self._wrapped("advance_high_watermark", self._advance))
            stack.enter_context(self._wrapped("truncate_to", self._truncate))
            stack.enter_context(self._wrapped("start_at", self._truncate))
            yield

    def _wrapped(self, name: str, judged: Any) -> Any:
        method = getattr(Partition, name)

        def call(partition: Partition, *arguments: Any) -> Any:
            return judged(method, partition, *arguments)

        return mock.patch.object(Partition, name, call)

    # Promises

    def acknowledged(self, batch: Batch, checksum: int) -> None:
        """Record that a producer got the acknowledgement of a batch whose records have this checksum."""
        if batch.acks != -1 or batch.offset is None or batch.at[0] in self._history.may_lose:
            return
        state = self._state(batch.at)
        if state is None:
            return
        # The broker that sent the acknowledgement led in this leader epoch or an earlier one.
        next_offset = batch.offset + len(batch.values)
        promise = Promise(state.leader_epoch, batch.offset, next_offset, checksum, str(batch))
        place = Incarnation(batch.at, batch.topic_id)
        self._of(place).batches.append(promise)
        for partition in self._leaders(place, state.leader_epoch):
            if partition.log.log_end_offset < next_offset:
                self._found(
                    place,
                    f"{promise.what} was acknowledged at offset {promise.offset}, but the leader "
                    f"{partition.local_id} of epoch {partition.leader_epoch} "
                    f"ends at {partition.log.log_end_offset}",
                )

    def _of(self, place: Incarnation) -> _Promised:
        return self._promised.setdefault(place, _Promised())

    def _state(self, at: TopicPartition) -> PartitionState | None:
        zookeeper, path = self._cluster.zookeeper, partition_state_path(*at)
        return decode_partition_state(*at, zookeeper.read(path).data) if zookeeper.exists(path) else None

    def _leaders(self, place: Incarnation, from_epoch: int) -> Iterator[Partition]:
        """The replicas on running brokers that lead in `from_epoch` or later."""
        for machine in self._cluster.machines:
            partition = machine.partition(place.at)
            if (
                partition is not None
                and partition.topic_id == place.topic_id
                and isinstance(partition.role, Leadership)
                and partition.role.leader_epoch >= from_epoch
            ):
                yield partition

    # Checks

    def _lead(self, method: Any, partition: Partition, assignment: LeaderAndIsr, now_ms: int) -> bool:
        begins: bool = method(partition, assignment, now_ms)
        if begins and partition.topic not in self._history.may_lose:
            self._check_leader(partition)
        return begins

    def _has(self, place: Incarnation, log: Log, committed: tuple[int, int]) -> bool:
        """Whether a log has a committed record, or had it until an operator deleted it."""
        offset, leader_epoch = committed
        if log.log_end_offset < offset:
            return False
        return offset <= log.log_start_offset or self._is_of_epoch(place, log, offset, leader_epoch)

    def _is_of_epoch(self, place: Incarnation, log: Log, offset: int, leader_epoch: int) -> bool:
        """Whether a log's last record before `offset` is of a leader epoch, or may be.

        After a crash a log may begin before the records that were deleted last, as in Kafka, while the leader
        epochs that it knows begin after them.
        """
        found = log.epochs.epoch_at(offset - 1)
        is_deleted = offset <= self._history.deleted.get(place, 0)
        return found == leader_epoch or (is_deleted and found == NO_EPOCH)

    def _check_leader(self, partition: Partition) -> None:
        place = Incarnation(partition.key, partition.topic_id)
        promised, log = self._of(place), partition.log
        committed = promised.before(partition.leader_epoch)
        if not self._has(place, log, committed):
            self._found(
                place,
                f"broker {partition.local_id} leads in epoch {partition.leader_epoch} with "
                f"{_end(log, committed[0])}; {_told(committed)}",
            )
        if partition.topic in self._history.compacted:
            return  # Compaction may have removed a batch. The judges at the end know its key.
        stored = self._stored(partition)
        for promise in promised.batches:
            if (
                promise.leader_epoch <= partition.leader_epoch
                and promise.next_offset > log.log_start_offset
                and stored.get(promise.offset, (0, None))[1] != promise.checksum
            ):
                self._found(
                    place,
                    f"broker {partition.local_id} leads in epoch {partition.leader_epoch} without "
                    f"{promise.what}, acknowledged at offset {promise.offset}",
                )
                return

    def _follow(self, method: Any, partition: Partition, assignment: LeaderAndIsr) -> bool:
        begins: bool = method(partition, assignment)
        if begins and partition.topic not in self._history.may_lose and not partition.is_offline:
            self._check_follower(partition)
        return begins

    def _check_follower(self, partition: Partition) -> None:
        """Check a follower's log if its broker may be elected without a comparison of logs: it is in sync or
        eligible, and the controller has already recorded the start of its present process.

        The in-sync set of a partition without a leader may still name unclean replicas. The controller
        compares their logs before it elects one of them, and the judge then checks that leader."""
        state = self._state(partition.key)
        machine = self._cluster.machine(partition.local_id)
        if state is None or partition.local_id not in (*state.isr, *state.eligible):
            return
        if partition.local_id in state.unclean:
            return
        if not self._cluster.is_start_recorded(machine):
            return
        place = Incarnation(partition.key, partition.topic_id)
        committed = self._of(place).before(partition.leader_epoch)
        if not self._has(place, partition.log, committed):
            self._found(
                place,
                f"broker {partition.local_id} may be elected after epoch {state.leader_epoch} without a "
                f"comparison of logs, with {_end(partition.log, committed[0])}; {_told(committed)}",
            )

    def _record_fetch(
        self, method: Any, partition: Partition, replica_id: int, wanted: FetchPartition, *more: Any
    ) -> bool:
        counts: bool = method(partition, replica_id, wanted, *more)
        offset, epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        if counts and epoch != NO_EPOCH and offset > partition.log.log_start_offset:
            place = Incarnation(partition.key, partition.topic_id)
            if not self._is_of_epoch(place, partition.log, offset, epoch):
                self._found(
                    place,
                    f"the leader {partition.local_id} of epoch {partition.leader_epoch} counts the position "
                    f"{offset} of follower {replica_id}, whose last record is of epoch {epoch}; its own is "
                    f"of epoch {partition.log.epochs.epoch_at(offset - 1)}",
                )
        return counts

    def _advance(self, method: Any, partition: Partition, now_ms: int, lag_ms_max: int) -> bool:
        rose: bool = method(partition, now_ms, lag_ms_max)
        role = partition.role
        if isinstance(role, Leadership):
            before = self._highest.get(role, 0)
            if partition.high_watermark < before:
                self._found(
                    Incarnation(partition.key, partition.topic_id),
                    f"the high watermark of the leader {partition.local_id} in epoch {role.leader_epoch} "
                    f"goes back from {before} to {partition.high_watermark}",
                )
            if partition.high_watermark != before:
                self._highest[role] = partition.high_watermark
                if rose:
                    self._commit(partition, role)
        return rose

    def _commit(self, partition: Partition, role: Leadership) -> None:
        place, committed = Incarnation(partition.key, partition.topic_id), partition.high_watermark
        self._committed[place] = max(committed, self._committed.get(place, 0))
        settings = partition.log.settings
        if (
            partition.topic in self._history.may_lose
            or not role.remotes
            or len(role.isr) < settings.min_insync_replicas
        ):
            return
        who = f"the leader {partition.local_id} of epoch {role.leader_epoch}"
        last_epoch = partition.log.epochs.epoch_at(committed - 1)
        self._of(place).committed[role.leader_epoch] = committed, last_epoch
        for member in role.maximal_isr - {partition.local_id}:
            # A broker that has registered again may have lost the end of its log. The controller removes it
            # from the in-sync set, so it is not judged here.
            counted = role.remotes.get(member)
            if counted is None or counted.broker_epoch != self._registration(member):
                continue
            copy = self._cluster.machine(member).partition(partition.key)
            if copy is None or copy.topic_id != partition.topic_id or copy.is_offline:
                continue
            what = ""
            if not self._has(place, copy.log, (committed, last_epoch)):
                what = _end(copy.log, committed)
            elif settings.flush_before_ack and copy.log.recovery_point < committed:
                what = f"a log that is durable up to {copy.log.recovery_point}"
            if what:
                self._found(
                    place,
                    f"{who} commits, its in-sync member {member} has {what}; "
                    f"{_told((committed, last_epoch))}",
                )
        for later in self._leaders(place, role.leader_epoch + 1):
            if not self._has(place, later.log, (committed, last_epoch)):
                self._found(
                    place,
                    f"{who} commits, while broker {later.local_id} leads in epoch {later.leader_epoch} with "
                    f"{_end(later.log, committed)}; {_told((committed, last_epoch))}",
                )

    def _registration(self, broker_id: int) -> int:
        zookeeper, path = self._cluster.zookeeper, broker_path(broker_id)
        return zookeeper.read(path).czxid if zookeeper.exists(path) else -2

    def _truncate(self, method: Any, partition: Partition, *arguments: Any) -> None:
        place = Incarnation(partition.key, partition.topic_id)
        is_judged = (
            partition.topic not in self._history.may_lose
            and place in self._promised
            and not self._is_damaged_outside(partition)
        )
        stored = self._stored(partition) if is_judged else {}
        method(partition, *arguments)
        if not is_judged:
            return
        end_offset = partition.log.log_end_offset
        # The leader may have committed further records in the present epoch.
        committed = self._promised[place].committed_before(partition.leader_epoch + 1)
        if end_offset >= committed or end_offset not in stored:
            return
        # Records at or after `committed` may come from a leader that never committed them: a follower may
        # truncate those.
        for leader in self._leaders(place, partition.leader_epoch):
            if self._stored(leader).get(end_offset) == stored[end_offset]:
                self._found(
                    place,
                    f"broker {partition.local_id} truncates its log to {end_offset} in epoch "
                    f"{partition.leader_epoch}, though it agrees with the leader's there, and committed is "
                    f"everything before {committed}",
                )

    def _is_damaged_outside(self, partition: Partition) -> bool:
        """Whether a replica is damaged and out of sync. It may truncate records that agree with the leader's:
        where no batch can be read, it truncates its log to the damage, and copies the rest again."""
        state = self._state(partition.key)
        return bool(partition.log.damages) and (state is None or partition.local_id not in state.isr)

    def _stored(self, partition: Partition) -> dict[int, tuple[int, int]]:
        return stored_batches(self._cluster.machine(partition.local_id).disk, partition.log.directory)

    def _written(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if not operation.path.startswith(TOPICS) or not operation.path.endswith("/state"):
                continue
            *_, topic, _, number, _ = operation.path.split("/")
            at = (topic, int(number))
            match operation:
                case Create() | SetData():
                    state = decode_partition_state(*at, operation.data)
                    joined = frozenset(state.isr) - self._in_sync.get(at, frozenset(state.isr))
                    self._in_sync[at] = frozenset(state.isr)
                    for member in joined:
                        self._check_member(at, state, member)
                case Delete():
                    self._in_sync.pop(at, None)

    def _check_member(self, at: TopicPartition, state: PartitionState, member: int) -> None:
        """Check a replica that joins an in-sync set, because from now on it may become leader."""
        partition = self._cluster.machine(member).partition(at)
        if partition is None or partition.is_offline or at[0] in self._history.may_lose:
            return
        place = Incarnation(at, partition.topic_id)
        if place not in self._promised:
            return
        committed = self._promised[place].before(state.leader_epoch + 1)
        if not self._has(place, partition.log, committed):
            self._found(
                place,
                f"broker {member} joins the in-sync set {list(state.isr)} in epoch {state.leader_epoch} with "
                f"{_end(partition.log, committed[0])}; {_told(committed)}",
            )

    def _found(self, place: Incarnation, what: str) -> None:
        self._history.violation(f"{place}: {what}")
