"""The controller's decisions on leaders and in-sync sets. Pure.

Each method decides for all its partitions at once, writes their states together and adds the requests for
brokers to the event's batch. If a znode turns out to hold an unexpected state, that partition is decided
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from holdfast_log.coordinator.controller import election
from holdfast_log.coordinator.controller.effects import (
    DecisionSteps,
    Pause,
    StateWrite,
    StateWritten,
    WriteStates,
)
from holdfast_log.coordinator.controller.election import ElectedLeader
from holdfast_log.coordinator.controller.eligible import EligibleReplicas, trusted
from holdfast_log.coordinator.controller.recovery import UncleanRecovery
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, PartitionRecord
from holdfast_log.coordinator.controller.yields import Yields
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

Decide = Callable[[TopicPartition, PartitionRecord], PartitionState | None]
"""A partition's next state; None leaves it unchanged."""

PARTITIONS_AT_ONCE = 500
"""Partitions decided, or learned about, between two pauses: each takes some microseconds."""

ELECTION_PENDING = ErrorCode.REQUEST_TIMED_OUT
"""Result of an election that waits for the present leader, and its error at the request's timeout."""


class Leaders:
    """Elects leaders. `unclean_allowed(topic)` is the topic's unclean.leader.election.enable."""

    def __init__(
        self,
        state: ControllerState,
        batch: RequestBatch,
        eligible: EligibleReplicas,
        recovery: UncleanRecovery,
        yields: Yields,
        unclean_allowed: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._batch = batch
        self._eligible = eligible
        self._recovery = recovery
        self._yields = yields
        self._preferred: dict[TopicPartition, None] = {}
        """The partitions whose preferred leaders are elected once their present leaders have yielded."""
        self._unclean_allowed = unclean_allowed

    def elect_leaderless(
        self, among: Iterable[TopicPartition] | None = None
    ) -> DecisionSteps[list[TopicPartition]]:
        """Elect leaders for leaderless and new partitions, of all or `among` some; the changed partitions."""
        candidates = self._state.leaderless(among)
        return (yield from self.write(candidates, self._decide_leaderless))

    def lose_brokers(
        self,
        gone: Collection[int],
        *,
        unclean: bool = False,
        among: Sequence[TopicPartition] | None = None,
    ) -> DecisionSteps[None]:
        """Replace the brokers in `gone` as leaders and remove them from in-sync sets, in all partitions or in
        those `among`. The caller has already removed the brokers from the state.

        `unclean`: they have restarted and may have lost unflushed records. A partition without a possible
        leader then waits for its other in-sync and eligible replicas, and compares the logs if all of them
        may have lost records. The only replica of a partition needs no comparison.
        """
        if not gone:
            return

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            assert state is not None
            if not unclean:
                if state.leader == NO_LEADER:
                    return None  # Nothing is appended without a leader, so its members stay in sync.
                if state.leader not in gone:
                    return self._shrunk(at, state, gone)
                return self._decide_leaderless(at, partition)
            left = trusted(state, gone) if len(partition.assignment.replicas) > 1 else state
            if state.leader in gone:
                return self._decide_leaderless(at, partition, left)
            if left is state:
                return None
            return self.next_state(at, left, ElectedLeader(state.leader, left.isr), without=gone)

        yield from self.write(self._concerning(gone, among), decide)

    def lose_replicas(self, broker_id: int, partitions: Sequence[TopicPartition]) -> DecisionSteps[None]:
        """Replace a live broker where the log directory of its replicas has failed."""

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            assert partition.state is not None
            if partition.state.leader == broker_id:
                return self._decide_leaderless(at, partition, failed=(broker_id,))
            return self._shrunk(at, partition.state, (broker_id,), failed=(broker_id,))

        with_state = [at for at in partitions if self._state.partition(at).state is not None]
        yield from self.write(with_state, decide)

    def shut_down(self, broker_id: int) -> DecisionSteps[list[TopicPartition]]:
        """Move leadership off a broker that is about to stop, and remove it from in-sync sets.

        Returns the partitions that it still leads. Partitions with a single replica are not counted: no other
        broker could lead them.
        """
        shutting_down = self._state.shutting_down

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            assert state is not None
            if state.leader != broker_id:
                return self._shrunk(at, state, (broker_id,)) if len(state.isr) > 1 else None
            return self.next_state(
                at,
                state,
                election.elect_for_controlled_shutdown(
                    partition.assignment.replicas, state.isr, self._state.may_lead(at), shutting_down
                ),
            )

        concerned = [
            at
            for at in self._state.partitions_on(broker_id)
            if len(self._state.partition(at).assignment.replicas) > 1
            and self._state.partition(at).state is not None
            and not self._state.is_deleting(at)
        ]
        yield from self.write(concerned, decide)
        led = [at for at in concerned if self._leader(at) == broker_id]
        followed = [at for at in concerned if self._leader(at) != broker_id]
        if followed:
            self._batch.stop_replica(broker_id, followed, delete=False)
        return led

    def elect_preferred(
        self, partitions: Sequence[TopicPartition]
    ) -> DecisionSteps[dict[TopicPartition, ErrorCode]]:
        """Elect preferred leaders; an error code for each partition.

        It is `ELECTION_PENDING` where the present leader has not yielded yet: `elect_yielded` goes on then.
        """
        known, results = yield from self._known(partitions)

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            target = partition.assignment.target
            if state is not None and state.leader == target[0]:
                results[at] = ErrorCode.ELECTION_NOT_NEEDED
                return None
            found = state and election.elect_preferred(target, state.trusted_isr, self._state.may_lead(at))
            results[at] = ErrorCode.NONE if found else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            return self.next_state(at, state, found) if state and found else None

        yield from self.write(known, decide)
        for number, (at, code) in enumerate(list(results.items()), 1):
            if number % PARTITIONS_AT_ONCE == 0:
                yield Pause()
            self._preferred.pop(at, None)
            preferred = None if code else self._state.partition(at).assignment.target[0]
            if preferred is not None and self._leader(at) != preferred and self._yields.is_asked(at):
                results[at] = ELECTION_PENDING
                self._preferred[at] = None
        return results

    def elect_yielded(
        self, partitions: Sequence[TopicPartition]
    ) -> DecisionSteps[dict[TopicPartition, ErrorCode]]:
        """Decide the pending elections of preferred leaders again, among these partitions."""
        return (yield from self.elect_preferred([at for at in partitions if at in self._preferred]))

    def elect_unclean(
        self, partitions: Sequence[TopicPartition]
    ) -> DecisionSteps[dict[TopicPartition, ErrorCode]]:
        """Elect leaders for leaderless partitions, in sync or not (KIP-460), with the ends of logs that are
        known; an error code for each partition."""
        known, results = yield from self._known(partitions)

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            decided = self._decide_leaderless(at, partition, at_once=True)
            if decided is None or decided.leader == NO_LEADER:
                results[at] = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            else:
                results[at] = ErrorCode.NONE
            return decided

        leaderless = dict.fromkeys(self._state.leaderless(known))
        results.update({at: ErrorCode.ELECTION_NOT_NEEDED for at in known if at not in leaderless})
        yield from self.write(leaderless, decide)
        return results

    def review_eligible(self, name: str) -> DecisionSteps[None]:
        """Remove eligible replicas that a topic no longer needs because its min.insync.replicas has fallen:
        its leaders may then raise their high watermarks."""
        topic = self._state.topics.get(name)
        if topic is None or name in self._state.deletions:
            return

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            if state is None or not state.eligible:
                return None
            next_state = self.next_state(at, state, ElectedLeader(state.leader, state.isr))
            return next_state if next_state and next_state.eligible != state.eligible else None

        yield from self.write([TopicPartition(name, number) for number in topic.partitions], decide)

    def _known(
        self, partitions: Sequence[TopicPartition]
    ) -> DecisionSteps[tuple[list[TopicPartition], dict[TopicPartition, ErrorCode]]]:
        """The partitions that exist, and the error codes of the others."""
        known: list[TopicPartition] = []
        unknown: dict[TopicPartition, ErrorCode] = {}
        for number, at in enumerate(partitions, 1):
            if number % PARTITIONS_AT_ONCE == 0:
                yield Pause()
            topic = self._state.topics.get(at[0])
            if topic is None or at[1] not in topic.partitions or self._state.is_deleting(at):
                unknown[at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                known.append(at)
        return known, unknown

    def imbalanced(self, percentage_max: float) -> list[TopicPartition]:
        """The partitions to give back to preferred leaders that are out of balance.

        A broker is out of balance when other brokers lead more than `percentage_max` percent of the
        partitions that prefer it.
        """
        preferred: dict[int, list[TopicPartition]] = {}
        for at, partition in self._state.partitions():
            if not self._state.is_deleting(at) and not partition.assignment.is_reassigning:
                preferred.setdefault(partition.assignment.target[0], []).append(at)
        lost: list[TopicPartition] = []
        for broker_id, mine in preferred.items():
            elsewhere = [at for at in mine if self._leader(at) != broker_id]
            if broker_id in self._state.brokers and len(elsewhere) * 100 > percentage_max * len(mine):
                lost += elsewhere
        return lost

    def write(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> DecisionSteps[list[TopicPartition]]:
        """Decide and write states, and batch the requests for brokers; the partitions that changed.

        A partition whose leadership would move stays unchanged until its leader has yielded (`Yields`).
        """
        changed: list[TopicPartition] = []
        pending = list(partitions)
        while pending:
            writes = []
            for number, at in enumerate(pending, 1):
                if number % PARTITIONS_AT_ONCE == 0:
                    yield Pause()
                partition = self._state.partition(at)
                state = decide(at, partition)
                if state is not None and self._may_write(at, partition.state, state):
                    writes.append(StateWrite(at, state, partition.version if partition.state else None))
            pending = []
            if writes:
                written: list[StateWritten] = yield WriteStates(writes)
                for number, (write, result) in enumerate(zip(writes, written, strict=True), 1):
                    if number % PARTITIONS_AT_ONCE == 0:
                        yield Pause()
                    self.learn(write.at, result)
                    if result.done:
                        changed.append(write.at)
                        self._batch_requests(write)
                    elif result.state is not None:
                        pending.append(write.at)
        return changed

    def _may_write(self, at: TopicPartition, now: PartitionState | None, then: PartitionState) -> bool:
        return now is None or now.leader == then.leader or self._yields.may_move(at, now)

    def learn(self, at: TopicPartition, written: StateWritten) -> None:
        """Remember what a partition's znode holds."""
        partition = self._state.partition(at)
        partition.state, partition.version = written.state, written.version
        self._yields.learned(at)

    def _batch_requests(self, write: StateWrite) -> None:
        if write.state.leader != NO_LEADER:
            replicas = self._state.partition(write.at).assignment.replicas
            self._batch.leader_and_isr(replicas, [write.at], is_new=write.version is None)
        self._batch.metadata([write.at])

    def _decide_leaderless(
        self,
        at: TopicPartition,
        partition: PartitionRecord,
        left: PartitionState | None = None,
        *,
        at_once: bool = False,
        failed: Collection[int] = (),
    ) -> PartitionState | None:
        """A partition's next state if its leader, or its first one, is missing.

        `left` is its state with only the replicas that may be elected cleanly, the whole state by default;
        the disks of the brokers in `failed` have failed. `at_once` elects any live replica, without asking
        which log is the longest.
        """
        state = partition.state if left is None else left
        adding = partition.assignment.adding
        # Replicas being added come last: in an unclean election they have the fewest records.
        replicas = (*(each for each in partition.assignment.replicas if each not in adding), *adding)
        live = self._state.may_lead(at)
        if state is None:
            first = election.elect_for_new_partition(replicas, live)
            if first is None:
                return None
            return self._first_state(first)
        if state.leader in live:
            return None
        found = election.elect_after_failure(
            replicas, state.trusted_isr, live, eligible=state.eligible
        ) or self._recovery.elect(
            at,
            state,
            replicas,
            live,
            # Looked up only if needed: it costs far more than the election.
            unclean_allowed=lambda: at_once or self._unclean_allowed(at[0]),
            at_once=at_once,
        )
        if found is None and state.leader != NO_LEADER:
            found = ElectedLeader(NO_LEADER, state.isr)
        return self.next_state(at, state, found, failed=failed)

    def _shrunk(
        self,
        at: TopicPartition,
        state: PartitionState,
        gone: Collection[int],
        *,
        failed: Collection[int] = (),
    ) -> PartitionState | None:
        isr = election.isr_without(state.isr, gone)
        if isr == state.isr and not any(member in failed for member in state.eligible):
            return None
        return self.next_state(at, state, ElectedLeader(state.leader, isr), failed=failed)

    def _first_state(self, first: ElectedLeader) -> PartitionState:
        """The state of a new partition. Its leader epoch is above those of all deleted partitions: a client
        that remembers the end of a deleted log by its leader epoch must not find it in the new one."""
        epoch = self._state.first_leader_epoch
        return PartitionState(first.leader, epoch, first.isr, self._state.controller_epoch)

    def next_state(
        self,
        at: TopicPartition,
        state: PartitionState,
        leadership: ElectedLeader | None,
        *,
        without: Collection[int] = (),
        failed: Collection[int] = (),
    ) -> PartitionState | None:
        """`state` with `leadership` under the next leader epoch; None if `leadership` is None.

        Brokers in `without` are not eligible afterwards: they may have lost records, or are to be replicas no
        longer. Neither are those in `failed`, whose disks have failed; they are remembered. Without a leader,
        the state's unclean replicas stay as they are.
        """
        if leadership is None:
            return None
        leader, isr = leadership.leader, leadership.isr
        last_known_leader = NO_LEADER
        eligible: tuple[int, ...] = ()
        unclean: tuple[int, ...] = ()
        if not leadership.unclean:
            eligible = self._eligible.after(at, state, leader, isr, without=(*without, *failed))
        if leader == NO_LEADER:
            unclean = state.unclean
            last_known_leader = state.last_known_leader if state.leader == NO_LEADER else state.leader
        elif not leadership.unclean:
            unclean = self._eligible.remembered(at, leader, isr, failed=failed, without=without)
        return PartitionState(
            leader,
            state.leader_epoch + 1,
            isr,
            self._state.controller_epoch,
            eligible,
            last_known_leader,
            unclean,
        )

    def next_in_sync(self, at: TopicPartition, state: PartitionState, isr: tuple[int, ...]) -> PartitionState:
        """`state` with the in-sync set that its leader has proposed, in the same leader epoch."""
        return PartitionState(
            state.leader,
            state.leader_epoch,
            isr,
            self._state.controller_epoch,
            self._eligible.after(at, state, state.leader, isr),
            unclean=self._eligible.remembered(at, state.leader, isr),
        )

    def _leader(self, at: TopicPartition) -> int:
        state = self._state.partition(at).state
        return NO_LEADER if state is None else state.leader

    def _concerning(
        self, gone: Collection[int], among: Sequence[TopicPartition] | None
    ) -> list[TopicPartition]:
        """The partitions, of all or `among` some, with any of these brokers as leader, in sync or eligible;
        not those being deleted."""
        partitions = (
            self._state.partitions() if among is None else [(at, self._state.partition(at)) for at in among]
        )
        return [
            at
            for at, partition in partitions
            if partition.state is not None
            and (
                partition.state.leader in gone
                or any(member in gone for member in partition.state.isr)
                or any(member in gone for member in partition.state.eligible)
            )
            and not self._state.is_deleting(at)
        ]
