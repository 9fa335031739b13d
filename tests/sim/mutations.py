"""Known bugs, put back one at a time: judges who do not see them would not see a new one either.

Each has been made by someone before, in Kafka or elsewhere. A mutation replaces functions of the real code
while its seeds run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from broker.handlers import leader_and_isr, stop_replica, update_metadata
from broker.replication import following
from broker.replication.appends import Append
from broker.replication.leadership import Leadership
from broker.replication.partition import Assignment, Partition
from broker.replication.replicas import Replicas
from coordinator import controller_writes, election
from coordinator.candidacy import Candidacy
from coordinator.controller import Controller
from coordinator.controller_isr import InSyncSets
from coordinator.controller_leaders import Leaders
from coordinator.controller_reign import Reign
from coordinator.store import ConnectionLost, SessionExpired, SetData
from protocol.messages.fetch import PartitionData
from tests.sim.scenario import SINGLE, THREE, Shape, Verdict, run_seed

SEEDS_PER_MUTATION = 300

Patch = tuple[Any, str, Any]
"""An object, the name of its attribute, and what to put there."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug: its name, what it does, and how it is made."""

    name: str
    what: str
    patches: Callable[[], Sequence[Patch]]
    shape: Shape = THREE


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    patches = [mock.patch.object(*patch) for patch in mutation.patches()]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


def hunt(mutation: Mutation, first_seed: int, seeds: int = SEEDS_PER_MUTATION) -> tuple[int, int, str] | None:
    """The first seed that catches a mutation, how many were tried, and what was found; None if none does.

    A seed that fails without the mutation catches nothing.
    """
    for tried, seed in enumerate(range(first_seed, first_seed + seeds), start=1):
        with mutated(mutation):
            verdict = run_seed(seed, mutation.shape, keep_lines=0)
        _check_mutant(mutation, verdict)
        if not verdict.holds and run_seed(seed, mutation.shape, keep_lines=0).holds:
            return seed, tried, verdict.violations[0].strip().splitlines()[-1]
    return None


def _check_mutant(mutation: Mutation, verdict: Verdict) -> None:
    """A mutant that cannot run is caught by anybody; it must not count."""
    for violation in verdict.violations:
        if __file__ in violation and re.search("^(Type|Attribute|Name|Key|Unbound|Import)", violation, re.M):
            raise RuntimeError(f"{mutation.name} does not fit the code that it mutates:\n{violation}")


# Followers


def _truncate_to_high_watermark() -> Sequence[Patch]:
    follow = Partition.follow

    def mutant(self: Partition, assignment: Assignment) -> bool:
        is_new = follow(self, assignment)
        if is_new:
            self.truncate_to(self.high_watermark, 0)
        return is_new

    return [(Partition, "follow", mutant)]


def _never_truncate() -> Sequence[Patch]:
    take_good = following._take_good

    def mutant(partition: Partition, data: PartitionData, now_ms: int) -> None:
        if data.diverging_epoch.end_offset < 0:
            take_good(partition, data, now_ms)

    def undivided(self: Partition, offset: int, last_fetched_epoch: int) -> None:
        return None

    return [(following, "_take_good", mutant), (Partition, "_divergence", undivided)]


# Leaders


def _acknowledge_before_in_sync() -> Sequence[Patch]:
    return [(Append, "is_settled", lambda self, acks: True)]


def _count_member_before_caught_up() -> Sequence[Patch]:
    def mutant(
        self: Leadership, replica_id: int, high_watermark: int, is_eligible: Callable[[int], bool]
    ) -> tuple[int, ...] | None:
        if self.pending is not None or replica_id in self.isr or replica_id not in self.remotes:
            return None
        return (*self.isr, replica_id)

    return [(Leadership, "expanded_isr", mutant)]


def _forget_pending_members() -> Sequence[Patch]:
    def mutant(self: Leadership, local_offset: int, end_offset: int, now_ms: int, lag_ms_max: int) -> int:
        counted = [self.remotes[member].log_end_offset for member in self.isr if member in self.remotes]
        if self.pending is not None:
            counted = [
                self.remotes[member].log_end_offset for member in self.pending if member in self.remotes
            ]
        return min([local_offset, *counted])

    return [(Leadership, "committed_offset", mutant)]


def _high_watermark_moves_back() -> Sequence[Patch]:
    def mutant(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        role = self.role
        if not isinstance(role, Leadership):
            return False
        end_offset = self.log.log_end_offset
        before = self.high_watermark
        self.high_watermark = max(0, role.committed_offset(end_offset, end_offset, now_ms, lag_ms_max))
        return self.high_watermark != before

    return [(Partition, "advance_high_watermark", mutant)]


def _show_uncommitted() -> Sequence[Patch]:
    read = Partition.read

    def mutant(self: Partition, *arguments: Any, **keywords: Any) -> Any:
        committed = self.high_watermark
        self.high_watermark = self.log.log_end_offset
        try:
            return read(self, *arguments, **keywords)
        finally:
            self.high_watermark = committed

    return [(Partition, "read", mutant)]


def _acknowledge_before_durable() -> Sequence[Patch]:
    def mutant(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        role = self.role
        if not isinstance(role, Leadership):
            return False
        end_offset = self.log.log_end_offset
        committed = role.committed_offset(end_offset, end_offset, now_ms, lag_ms_max)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    return [(Partition, "advance_high_watermark", mutant)]


def _lose_dedupe_state() -> Sequence[Patch]:
    lead = Partition.lead

    def mutant(self: Partition, assignment: Assignment, now_ms: int) -> bool:
        is_new = lead(self, assignment, now_ms)
        if is_new:
            self.log.producers.clear(self.log.log_end_offset)
        return is_new

    return [(Partition, "lead", mutant)]


def _accept_any_leader_epoch() -> Sequence[Patch]:
    return [(Partition, "check_leader_epoch", lambda self, current_leader_epoch: None)]


# The controller, and those who obey it


def _accept_replaced_controller() -> Sequence[Patch]:
    """The controller writes through whatever session there is, unguarded, and brokers obey whoever speaks."""

    async def unguarded(term: Any, operations: Sequence[Any]) -> Any:
        while True:
            session = term.session._owner.session
            try:
                return await session.multi(operations)
            except SessionExpired:
                if not term.session._owner.process.alive:
                    raise
            except ConnectionLost:
                continue

    write = controller_writes._state_operations

    def unversioned(state_write: Any, existing: Any) -> Any:
        return [
            SetData(operation.path, operation.data) if isinstance(operation, SetData) else operation
            for operation in write(state_write, existing)
        ]

    return [
        (controller_writes, "_guarded", unguarded),
        (controller_writes, "_state_operations", unversioned),
        *_obey_anyone(),
    ]


def _obey_anyone() -> Sequence[Patch]:
    apply, one = Replicas.apply_leader_and_isr, Replicas._apply

    def any_controller(self: Replicas, request: Any) -> Any:
        self.controller_epoch = min(self.controller_epoch, request.controller_epoch)
        return apply(self, request)

    def any_epoch(
        self: Replicas, topic: str, topic_id: Any, index: int, assignment: Assignment, is_new: bool
    ) -> None:
        partition = self.find(topic, index)
        if partition is not None and assignment.leader_epoch < partition.leader_epoch:
            partition.leader_epoch = assignment.leader_epoch
        one(self, topic, topic_id, index, assignment, is_new)

    return [(Replicas, "apply_leader_and_isr", any_controller), (Replicas, "_apply", any_epoch)]


def _accept_any_broker_epoch() -> Sequence[Patch]:
    """Nobody asks in which of its lives a broker is spoken to, or speaks, or has caught up."""
    changed = Controller._brokers_changed

    def by_name(self: Controller, now: Any) -> Any:
        before = self.state.brokers
        for broker_id, broker in now.items():
            if broker_id in before:
                before[broker_id] = broker
        return changed(self, now)

    def eligible(self: InSyncSets, at: Any, members: Any, isr: Sequence[int]) -> bool:
        return all(member in self._state.may_lead(at) for member in members if member not in isr)

    def unseen(self: Controller, snapshot: Any) -> Any:
        gone = {
            replica: None
            for _, partition in self.state.partitions()
            for replica in partition.assignment.replicas
            if replica not in self.state.brokers
        }
        yield from self._leaders.lose_brokers(gone)

    handlers = (leader_and_isr, stop_replica, update_metadata)
    return [
        (Controller, "_brokers_changed", by_name),
        (Controller, "_lose_unseen", unseen),
        (InSyncSets, "_eligible", eligible),
        *((handler, "check_broker_epoch", lambda requested, current: None) for handler in handlers),
    ]


def _elect_anyone() -> Sequence[Patch]:
    elect = election.elect_after_failure

    def mutant(
        replicas: Sequence[int], isr: Sequence[int], live: Sequence[int], *, unclean_allowed: bool
    ) -> Any:
        return elect(replicas, isr, live, unclean_allowed=True)

    return [(election, "elect_after_failure", mutant)]


def _keep_the_dead_in_sync() -> Sequence[Patch]:
    return [(Leaders, "_shrunk", lambda self, state, gone: None)]


def _rule_after_the_end() -> Sequence[Patch]:
    """A candidate that was the controller goes on as one when its session has expired."""

    def expired(self: Candidacy) -> None:
        self._session = None

    return [
        (Candidacy, "expired", expired),
        (Reign, "end", lambda self: None),
        *_accept_replaced_controller(),
    ]


MUTATIONS = (
    Mutation(
        "truncate-to-high-watermark",
        "a follower cuts its log at the high watermark instead of by leader epoch (before KIP-101)",
        _truncate_to_high_watermark,
    ),
    Mutation("never-truncate", "a follower keeps what its leader does not have", _never_truncate),
    Mutation(
        "acknowledge-before-isr", "acks=all is answered when the leader has it", _acknowledge_before_in_sync
    ),
    Mutation(
        "member-before-caught-up",
        "a follower joins the in-sync set with its first fetch",
        _count_member_before_caught_up,
    ),
    Mutation(
        "pending-members-forgotten",
        "the high watermark passes members whose removal the controller has not written yet (KIP-497)",
        _forget_pending_members,
    ),
    Mutation(
        "high-watermark-back",
        "a leader's high watermark follows its followers back",
        _high_watermark_moves_back,
    ),
    Mutation("uncommitted-shown", "consumers are shown what is not committed", _show_uncommitted),
    Mutation(
        "acknowledge-before-durable",
        "flush.before.ack does not wait for the fsync",
        _acknowledge_before_durable,
        SINGLE,
    ),
    Mutation("dedupe-lost", "a new leader knows nothing of producers' sequences", _lose_dedupe_state),
    Mutation(
        "any-leader-epoch", "requests are not fenced by leader epoch (KIP-320)", _accept_any_leader_epoch
    ),
    Mutation(
        "stale-controller", "a replaced controller's writes and words count (KAFKA-6082)", _rule_after_the_end
    ),
    Mutation(
        "any-broker-epoch",
        "lives of a broker are not told apart (KIP-380, KIP-903)",
        _accept_any_broker_epoch,
    ),
    Mutation("unclean-election", "anyone may lead who is alive", _elect_anyone),
    Mutation("dead-in-sync", "brokers that died stay in the in-sync sets", _keep_the_dead_in_sync),
)
