"""The replicas of this broker: finds, writes and reads them, and wakes the requests that wait for them.

All calls are made on the reactor's thread. `Partition` decides; `Replicas` acts: it advances high watermarks
and proposes in-sync sets. `Roles` gives the replicas their roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.log.flusher import Flusher
from holdfast_log.broker.replication import in_sync_changes
from holdfast_log.broker.replication.admission import NO_CONNECTION, NO_TOKEN, MakeWay, Origin
from holdfast_log.broker.replication.appends import ACKS_ALL, ACKS_LEADER, Append
from holdfast_log.broker.replication.conditions import Conditions
from holdfast_log.broker.replication.fetch_sessions import FetchSessions
from holdfast_log.broker.replication.introducing import Introducing
from holdfast_log.broker.replication.last_writes import LastWrites
from holdfast_log.broker.replication.leadership import NO_BROKER_EPOCH, IsrProposal, Leadership
from holdfast_log.broker.replication.partition import CONSUMER_ID, Partition
from holdfast_log.broker.replication.partition_values import PartitionRead
from holdfast_log.broker.replication.replica_choice import may_follow
from holdfast_log.broker.replication.right_to_acknowledge import RightToAcknowledge
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.replication.settings import SETTINGS
from holdfast_log.broker.replication.throttle import leader_throttle
from holdfast_log.broker.replication.traffic import BrokerTraffic
from holdfast_log.broker.replication.waiting import Waiting
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, TimeOfDay, now_ms
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

_PROOF_INTERVAL_S = 0.1
"""Time in s after which this broker looks again at what its followers have proven, while it needs that."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Maximum lag of an in-sync follower, maximum number of waiting requests of each kind, and maximum time
    that a follower's fetch waits."""

    lag_time_ms_max: Annotated[int, "replica.lag.time.max.ms"]
    waiting_requests_max: Annotated[int, "waiting.requests.max"]
    fetch_wait_ms_max: Annotated[int, "replica.fetch.wait.max.ms"] = 500


class Replicas:
    """The map of this broker's partitions.

    `propose_isr` sends a proposal to the controller and calls `settle_isr` or `withdraw_isr` with the answer.
    `right` says whether this broker is registered for certain; while it is not, followers prove what it may
    acknowledge (`RightToAcknowledge`). Without `introducing` every producer id is taken.
    """

    def __init__(
        self,
        local_id: int,
        clock: Clock,
        flusher: Flusher,
        metadata: MetadataCache,
        limits: ReplicaLimits,
        propose_isr: Callable[[IsrProposal], None],
        sessions: FetchSessions,
        date_ms: TimeOfDay,
        right: RightToConfirm,
        introducing: Introducing | None = None,
    ) -> None:
        self.date_ms = date_ms
        self._introducing = introducing
        self.local_id = local_id
        self.sessions = sessions
        """Fetch sessions that hold partitions of this broker; a change in a partition stirs them."""
        self.throttle = leader_throttle(local_id)
        """Limits the rate of followers that are not in sync."""
        self.is_handing_over = False
        """Whether writes with acks=1 are refused where another broker may lead soon."""
        self.readers = Waiting(clock, limits.waiting_requests_max)
        """Consumers, woken when a high watermark rises."""
        self.followers = Waiting(clock, limits.waiting_requests_max)
        """Followers, woken when a log grows."""
        self.writers = Waiting(clock, limits.waiting_requests_max)
        """Producers, woken when a high watermark rises or an fsync is done."""
        self.deleters = Waiting(clock, limits.waiting_requests_max)
        """DeleteRecords requests, woken when a low watermark may have risen."""
        self._committed = (self.writers, self.deleters)
        waiting = self.readers, self.followers, self.writers, self.deleters
        self.watched = (sessions.watchers, *(each.parked for each in waiting))
        """The keys of partitions for which a session or a request waits."""
        self._clock = clock
        self.clock_s = clock.seconds
        """The clock by which lag is measured, in seconds."""
        self._flusher = flusher
        self._metadata = metadata
        self._limits = limits
        self._propose_isr = propose_isr
        self.shrinking = in_sync_changes.Shrinking(clock, limits.lag_time_ms_max, propose_isr)
        self.topics: dict[str, dict[int, Partition]] = {}
        """By name and index; only `add` and `remove` change it."""
        self.traffic = BrokerTraffic()
        self.right_to_acknowledge = RightToAcknowledge(right, sessions, limits.fetch_wait_ms_max)
        self._unproven = Alarm(clock, self._ask_followers)
        """Rings while followers prove what this broker may answer: their fetches wake nobody."""
        self.conditions = Conditions(right.may_confirm)
        self._role_listeners: list[Callable[[Partition], None]] = []

    def add_role_listener(self, listener: Callable[[Partition], None]) -> None:
        """Call `listener` with a partition whose leadership, by this broker, begins in a new leader epoch or
        may have ended; its role says which. Listeners run before the requests that wait for the partition."""
        self._role_listeners.append(listener)

    def role_changed(self, partition: Partition) -> None:
        """Call the role listeners."""
        for listener in self._role_listeners:
            listener(partition)

    def monotonic_ms(self) -> int:
        """The time in ms by which lag is measured."""
        return now_ms(self._clock)

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.topics.values():
            yield from partitions.values()

    def add(self, partition: Partition) -> None:
        """Add a replica of this broker."""
        partition.traffic = self.traffic.of(partition.topic)
        self.topics.setdefault(partition.topic, {})[partition.index] = partition

    def remove(self, partition: Partition) -> None:
        """Remove a replica of this broker."""
        partitions = self.topics[partition.topic]
        del partitions[partition.index]
        if not partitions:
            del self.topics[partition.topic]
            self.traffic.forget(partition.topic)

    def has(self, topic: str) -> bool:
        """Whether this broker has replicas of the topic."""
        return topic in self.topics

    def find(self, topic: str, index: int) -> Partition | None:
        """This broker's replica of a partition, if it has one."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        """This broker's replicas of a topic's partitions."""
        return list(self.topics.get(topic, {}).values())

    def expects_offsets(self, topic: str) -> bool:
        """Whether the base offset of a batch for the topic is a condition (KIP-27)."""
        partitions = self.topics.get(topic, {}).values()
        return bool(partitions) and next(iter(partitions)).log.settings.check_expected_offsets

    def partition(self, topic: str, index: int) -> Partition:
        """This broker's replica of a partition. Raises BrokerError: NOT_LEADER_OR_FOLLOWER if only other
        brokers have one, KAFKA_STORAGE_ERROR if its directory failed, UNKNOWN_TOPIC_OR_PARTITION if no broker
        has one."""
        partitions = self.topics.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            known = self._metadata.partition(topic, index)
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if partition.log.failure is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory of this partition failed")
        return partition

    def known_leader(self, topic: str, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) of a partition as this broker last learned; None if unknown.

        Uses the replica's own role first, which is newer than the metadata: otherwise a replaced leader would
        redirect its clients to itself (KIP-951).
        """
        known = self._metadata.partition(topic, index)
        partition = self.find(topic, index)
        if partition is not None and (known is None or partition.leader_epoch > known.leader_epoch):
            return partition.leader, partition.leader_epoch
        return None if known is None else (known.leader, known.leader_epoch)

    def is_eligible(self, broker_id: int) -> bool:
        """Whether a follower on that broker may join an in-sync set."""
        return self._metadata.is_live(broker_id)

    # -- without ZooKeeper -------------------------------------------------------------------------------

    def right_changed(self) -> None:
        """Call when this broker may be registered no more, or is again."""
        self._ask_followers()

    def _ask_followers(self) -> None:
        """Check all writes that wait, as long as followers prove what may be answered."""
        for key in list(self.writers.parked):
            self.writers.wake(key)
        if self.right_to_acknowledge.needs_followers:
            self._unproven.set(_PROOF_INTERVAL_S)

    def stop(self) -> None:
        """Look no more at what followers prove, and who lags: the broker stops."""
        self._unproven.cancel()
        self.shrinking.stop()

    # -- before a stop -----------------------------------------------------------------------------------

    def begin_hand_over(self) -> list[LastWrites]:
        """Refuse writes with acks=1 from now on in the partitions that another broker may lead soon. Returns
        for each of them the records that its followers must copy first."""
        self.is_handing_over = True
        return [
            LastWrites(partition, partition.log.log_end_offset)
            for partition in self
            if isinstance(partition.role, Leadership) and len(partition.replicas) > 1
        ]

    def end_hand_over(self) -> None:
        """Accept writes with acks=1 again, because the controller has not moved leadership."""
        self.is_handing_over = False

    # -- writing -----------------------------------------------------------------------------------------

    def append(
        self, appends: Sequence[Append], acks: int, origin: Origin | None, *, may_wait: bool = False
    ) -> Sequence[MakeWay]:
        """Carry out the appends of one request; each records its own outcome.

        With `may_wait`, returns what has to be done before some of them may land; if there is anything,
        nothing has been appended, and the caller calls this again afterwards. Without it, such appends fail
        with NOT_LEADER_OR_FOLLOWER, on which clients try again.
        """
        date_ms = self.date_ms()
        is_guarded = is_conditional = False
        needs_followers = acks == ACKS_ALL and self.right_to_acknowledge.needs_followers
        for append in appends:
            self._prepare(append, acks, date_ms)
            if needs_followers:
                self._refuse_unproven(append)
            partition = append.partition
            is_guarded = (
                is_guarded
                or append.fence is not None
                or (partition is not None and partition.admission is not None)
            )
            is_conditional = is_conditional or append.condition is not None
        if is_guarded:
            for append in appends:
                append.admit(origin, acks)
                if append.make_way is not None and not may_wait:
                    append.fail(_in_the_way(append))
        if self._introducing is not None:
            for append in appends:
                self._introducing.judge(append, origin, date_ms)
        if is_conditional:
            self.conditions.judge(appends, origin, acks)
        if is_guarded and (awaited := _awaited(appends)):
            for append in appends:
                append.begin_again()
            return awaited
        for append in appends:
            append.append(date_ms)
            if append.result is not None and append.partition is not None:
                self.grown(append.partition)
            elif append.error is not None and self._introducing is not None:
                self._introducing.note_failed(append, date_ms)
        return ()

    def _prepare(self, append: Append, acks: int, date_ms: int) -> None:
        if append.topic in INTERNAL_TOPICS and append.origin is AppendOrigin.CLIENT:
            append.error = BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"only brokers write to the internal topic {append.topic}"
            )
            return
        partitions = self.topics.get(append.topic)
        partition = None if partitions is None else partitions.get(append.index)
        if partition is None or partition.log.failure is not None:
            try:
                partition = self.partition(append.topic, append.index)
            except BrokerError as error:
                append.fail(error)
                return
        if self.is_handing_over and acks == ACKS_LEADER and len(partition.replicas) > 1:
            # The client finds the next leader as soon as there is one.
            append.fail(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is about to stop"))
            return
        append.prepare(partition, acks, date_ms)

    def _refuse_unproven(self, append: Append) -> None:
        """Refuse a write with acks=all that followers cannot prove (`RightToAcknowledge`)."""
        if append.partition is None:
            return
        refusal = self.right_to_acknowledge.refusal(append.partition, self.monotonic_ms())
        if refusal is not None:
            append.settles_at = None
            append.fail(refusal)

    def grown(self, partition: Partition) -> None:
        """Call after a partition's log has grown, or this broker has become its leader."""
        log = partition.log
        if log.settings.flush_before_ack:
            durable = self._flusher.durable(log, log.log_end_offset)
            # A failed fsync takes the directory offline, and the log manager calls its failure listeners.
            durable.addCallbacks(lambda _: self._flushed(partition), lambda failure: None)
        key = partition.key
        if key in self.followers.parked:
            self.followers.wake(key)
        if key in self.sessions.watchers:
            for follower, fetched_ms in self.sessions.content(key):
                partition.confirm(follower, fetched_ms)
            self.sessions.stir(key, followers=True)
        self.advance(partition)

    def grown_unwatched(self, partition: Partition) -> None:
        """As `grown`, for a partition that nothing has `watched`, without flush.before.ack."""
        partition.advance_high_watermark(now_ms(self._clock), self._limits.lag_time_ms_max)

    def _flushed(self, partition: Partition) -> None:
        if not self.advance(partition):
            self.writers.wake(partition.key)

    def _wake_undecided(self, partition: Partition) -> None:
        """Wake what waits until every replica that may lead next has followed this leader: refusals of
        conditional appends, fences, and deletions."""
        for waiting in (self.writers, self.readers, self.deleters):
            waiting.wake(partition.key)

    def advance(self, partition: Partition) -> bool:
        """Raise the high watermark to its new value, and wake requests that wait for it."""
        if not partition.advance_high_watermark(now_ms(self._clock), self._limits.lag_time_ms_max):
            return False
        key = partition.key
        for waiting in self._committed:
            if key in waiting.parked:
                waiting.wake(key)
        is_watched = key in self.sessions.watchers
        if is_watched or key in self.readers.parked:
            partition.begin_sharing()
            try:
                self.readers.wake(key, partition.log.written_bytes)
                if is_watched:
                    self.sessions.stir(key, consumers=True, written_bytes=partition.log.written_bytes)
            finally:
                partition.end_sharing()
        return True

    def high_watermark_taken(self, partition: Partition) -> None:
        """Wake consumers that read from this follower: it has a higher high watermark from its leader."""
        key, written_bytes = partition.key, partition.log.written_bytes
        if key in self.readers.parked:
            self.readers.wake(key, written_bytes)
        if key in self.sessions.watchers:
            self.sessions.stir(key, consumers=True, written_bytes=written_bytes)

    def start_moved(self, partition: Partition) -> None:
        """Call after a partition's log start has moved forward. Consumers that wait for records before it are
        told at once that there are none; other readers learn of it by their next fetch."""
        key, start = partition.key, partition.log.log_start_offset
        self.sessions.stir(key, before=start)
        if key in self.readers.parked:
            self.readers.wake_before(key, start)

    def topic_settings_changed(self, topic: str) -> None:
        """Advance high watermarks after a change of settings: a lower min.insync.replicas may commit
        records."""
        for partition in self.of_topic(topic):
            self.advance(partition)

    def wake_all(self, partition: Partition) -> None:
        """Check all requests that wait for a partition: its role may have changed."""
        for waiting in (self.writers, self.readers, self.followers, self.deleters):
            waiting.wake(partition.key)
        self.sessions.stir(partition.key, followers=True, consumers=True)

    def is_settled(self, append: Append, acks: int) -> bool:
        """Whether an append may be answered."""
        if acks == ACKS_ALL and self.right_to_acknowledge.needs_followers:
            return self.right_to_acknowledge.is_settled(append, acks, self.monotonic_ms())
        return append.is_settled(acks)

    # -- reading -----------------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        wanted: FetchPartition,
        max_bytes: int,
        *,
        replica_id: int = CONSUMER_ID,
        min_one_batch: bool = True,
        connection: int = NO_CONNECTION,
        isolation: int = 0,
        from_follower: bool = False,
    ) -> PartitionRead:
        """Read one partition for a fetch of `connection`; `from_follower`: also where this broker follows.
        Raises BrokerError, also if another client owns the partition to read it."""
        partition = self.partition(topic, wanted.partition)
        if replica_id == CONSUMER_ID and (
            partition.read_admission is not None or wanted.owner_token != NO_TOKEN
        ):
            partition.admit_reader(wanted, connection)
        return partition.read(
            wanted.fetch_offset,
            max_bytes,
            replica_id=replica_id,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            min_one_batch=min_one_batch,
            isolation=isolation,
            from_follower=from_follower and may_follow(partition, wanted),
        )

    def record_fetch(
        self, topic: str, wanted: FetchPartition, replica_id: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> None:
        """Record a follower's position from its fetch; if it may join the in-sync set, propose that. Raises
        BrokerError as `Partition.record_fetch` does."""
        partition = self.partition(topic, wanted.partition)
        was_followed = partition.leadership().is_followed
        now_ms = self.monotonic_ms()
        if not partition.record_fetch(replica_id, wanted, now_ms, broker_epoch):
            return
        proposal = in_sync_changes.expansion(partition, replica_id, self.is_eligible)
        if proposal is not None:
            self._propose_isr(proposal)
        if not self.advance(partition) and not was_followed:
            self._wake_undecided(partition)
        self.deleters.wake(partition.key)

    def try_record_fetch(
        self, topic: str, wanted: FetchPartition, replica_id: int, broker_epoch: int = NO_BROKER_EPOCH
    ) -> BrokerError | None:
        """Call `record_fetch`. Returns its error, if there is one, instead of raising it."""
        try:
            self.record_fetch(topic, wanted, replica_id, broker_epoch)
        except BrokerError as error:
            return error
        return None

    # -- in-sync sets ------------------------------------------------------------------------------------

    def shrink_in_sync_sets(self) -> None:
        """Propose in-sync sets without lagging followers. Called every half of `replica.lag.time.max.ms`."""
        self.shrinking.begin(self)

    def is_isr_pending(self, proposal: IsrProposal) -> bool:
        """Whether a proposal still awaits the controller's decision."""
        partition = self.find(proposal.topic, proposal.partition)
        return partition is not None and partition.is_isr_pending(proposal)

    def settle_isr(
        self,
        proposal: IsrProposal,
        leader_epoch: int,
        isr: Sequence[int],
        partition_epoch: int,
        eligible: Sequence[int] = (),
    ) -> None:
        """Apply an in-sync set that the controller has written."""
        partition = self.find(proposal.topic, proposal.partition)
        if partition is not None and partition.settle_isr(leader_epoch, isr, partition_epoch, eligible):
            self.advance(partition)
            self._wake_undecided(partition)
            # A replica that has left the set may join it again with any fetch.
            self.sessions.stir(partition.key)

    def withdraw_isr(self, proposal: IsrProposal) -> None:
        """Drop a proposal that the controller has not written and never will."""
        partition = self.find(proposal.topic, proposal.partition)
        role = None if partition is None else partition.role
        if partition is not None and isinstance(role, Leadership) and role.is_pending(proposal):
            role.withdraw()
            # Writers no longer wait for the replicas that the proposal would have added.
            self.advance(partition)

    # -- for the next start ------------------------------------------------------------------------------

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks for the checkpoint."""
        return {partition.key: partition.high_watermark for partition in self if not partition.is_offline}


def _awaited(appends: Sequence[Append]) -> list[MakeWay]:
    """What has to be done before those of the appends may land that would land now."""
    return [append.make_way for append in appends if append.make_way is not None and append.error is None]


def _in_the_way(append: Append) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"the owner of {append.topic}-{append.index} is gone, and could come back: nobody else may write "
        "before its grant has been ended in ZooKeeper, which has not succeeded yet. Try again",
    )
