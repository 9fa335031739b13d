"""The run of one seed: a cluster and its clients, a phase of faults, then recovery, then the judgement.

Everything is drawn from the seed: the length of the faulty phase, the producers and their habits, network
conditions, and the faults and their times. A fault that would destroy the only copy of a committed record is
not made, because no software survives that. Each fault states its own restrictions.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast_log.broker.replication.leadership import Leadership
from tests.models.network import Weather
from tests.models.world import StandsStill, World
from tests.sim.checkers import StoredLog, check_all
from tests.sim.checkpoint_judge import CheckpointJudge
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import Cluster, logs_in_trace
from tests.sim.committed_judge import CommittedJudge
from tests.sim.consumer import Consumer
from tests.sim.drawing import draw
from tests.sim.end_watcher import EndWatcher
from tests.sim.faults import KINDS
from tests.sim.group_history import GroupHistory
from tests.sim.group_life import GroupLife
from tests.sim.high_watermark_judge import HighWatermarkJudge
from tests.sim.history import NO_ID, History, Incarnation
from tests.sim.in_sync_judge import InSyncJudge
from tests.sim.keyed_history import KeyedHistory
from tests.sim.keyed_writer import KeyedWriter
from tests.sim.long_faults import LongFaults
from tests.sim.member import SESSION_TIMEOUT_MS
from tests.sim.move_judge import MoveJudge
from tests.sim.open_transactions import open_transactions
from tests.sim.operator import Operator
from tests.sim.owner_history import OwnerHistory
from tests.sim.pass_judge import PassJudge
from tests.sim.payer import Payer
from tests.sim.plan import (
    METERED,
    METERED_READER,
    METERED_WRITERS,
    NAMES_RETENTION_MS,
    THREE,
    Plan,
    Shape,
    Topic,
)
from tests.sim.producer import Producer
from tests.sim.quota_judge import QuotaJudge
from tests.sim.quota_setter import QuotaSetter
from tests.sim.recovery_times import RECOVERY_S_MAX, RecoveryTimes
from tests.sim.replica_mover import ReplicaMover
from tests.sim.retention_judge import RetentionJudge
from tests.sim.stored_reads import misread, without_indexes
from tests.sim.tenant_life import TenantLife
from tests.sim.time_reader import TimeReader
from tests.sim.told_offsets import ToldOffsets
from tests.sim.tombstone_judge import TombstoneJudge
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transaction_life import TransactionLife

HEALING_S_MAX = 60.0
_QUIET_S = 1.5
_SESSIONS_OVER_S = SESSION_TIMEOUT_MS / 1000 + 1.5


@dataclass(slots=True)
class Verdict:
    """The outcome of one seed."""

    seed: int
    digest: str
    violations: list[str]
    trace: list[str]
    simulated_s: float
    operations: int
    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    """Seconds that partitions took after faults to accept appends with acks=all again."""

    @property
    def holds(self) -> bool:
        return not self.violations


def plan_of(seed: int, shape: Shape = THREE) -> Plan:
    """The plan that a seed draws."""
    return draw(shape, KINDS, World(seed).rng)


def run_seed(seed: int, shape: Shape = THREE, *, keep_lines: int | None = 4000) -> Verdict:
    """Run one seed."""
    return run_plan(plan_of(seed, shape), seed, keep_lines=keep_lines)


def run_plan(plan: Plan, seed: int, luck: int = 0, *, keep_lines: int | None = 4000) -> Verdict:
    """Run a plan: the seed's own, or a part of it. All values that the plan does not fix are drawn from
    `seed` and `luck`."""
    world = World(seed, luck=luck, keep_lines=keep_lines)
    with logs_in_trace(world), _collecting_at_the_end():
        story = Story(world, plan)
        try:
            with (
                story.in_sync_judge.watching(),
                story.committed_judge.watching(),
                story.high_watermark_judge.watching(),
                story.checkpoint_judge.watching(),
                story.pass_judge.watching(),
                story.retention_judge.watching(),
                story.quota_judge.watching(),
                story.tombstone_judge.watching(),
                story.move_judge.watching(),
            ):
                story.live()
        except StandsStill as error:
            world.problem("clock", str(error))
        verdict = story.verdict()
        del story
    # Unhandled failures are reported when the last reference to them is gone.
    verdict.violations += [problem for problem in world.problems if problem not in verdict.violations]
    return verdict


def _remembers_all(plan: Plan, topic: Topic) -> bool:
    """Whether every replica of a topic has seen all append ids, and has room for them."""
    loses_bits = any(strike.kind == "bit rot" for strike in plan.strikes)
    return "append.ids.max" not in plan.settings and not topic.is_trimmed and not loses_bits


@contextmanager
def _collecting_at_the_end() -> Iterator[None]:
    """Collect garbage once, at the end, so that its timing cannot change a simulation."""
    was_collecting = gc.isenabled()
    gc.disable()
    if not gc.get_freeze_count():
        # Modules need not be looked at. What a run leaves behind is collected at the end of the next one.
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if was_collecting:
            gc.enable()


class Story:
    """A cluster, its clients, and the events of one seed's run."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.cluster = Cluster(
            world,
            plan.shape.brokers,
            plan.settings,
            work_ms_max=plan.work_ms_max,
            result_ms_max=plan.result_ms_max,
        )
        topics = plan.topics
        self.history = History(
            world,
            may_lose=frozenset(topic.name for topic in topics if topic.may_lose),
            may_go=frozenset(topic.name for topic in topics if topic.is_remade),
            compacted=frozenset(topic.name for topic in topics if topic.is_compacted),
            keeps_acks=frozenset({-1, 1} if plan.shape.is_gentle else {-1}),
        )
        self.in_sync_judge = InSyncJudge(self.cluster, self.history.violation)
        self.committed_judge = CommittedJudge(self.cluster, self.history)
        self.high_watermark_judge = HighWatermarkJudge(self.cluster, self.history)
        self.checkpoint_judge = CheckpointJudge(self.cluster, self.history)
        self.pass_judge = PassJudge(self.cluster, self.history)
        self.retention_judge = RetentionJudge(self.cluster, self.history, topics)
        self.quota_judge = QuotaJudge(self.cluster, self.history, plan.quotas)
        self.tombstone_judge = TombstoneJudge(self.cluster, self.history, topics)
        self.move_judge = MoveJudge(self.cluster, self.history)
        self.recovery = RecoveryTimes(self.cluster, world)
        self.faults: Counter[str] = Counter()
        self.is_faulty = False
        self._found: list[str] = []
        around = self.around = Surroundings(
            world,
            self.cluster.network,
            self.history,
            [machine.address for machine in self.cluster.machines],
            self.cluster.life_of,
            self.cluster.decider,
        )
        names = [topic.name for topic in plan.topics]
        free = [
            topic.name
            for topic in plan.topics
            if not topic.is_owned and not topic.is_compacted and topic.name != METERED
        ]
        self.operator = Operator(around, "admin", plan.topics, plan.changes, plan.shape.brokers)
        self.producers = [
            Producer(around, name, follows=free, habits=habits, first_sequence=plan.first_sequence)
            for name, habits in plan.producers.items()
        ]
        quotas = plan.quotas
        self.quota_setter = None if quotas is None else QuotaSetter(around, "quotas", quotas)
        if quotas is not None:
            self.producers += [
                Producer(around, name, follows=[METERED], habits=quotas.habits) for name in METERED_WRITERS
            ]
        ends = ToldOffsets(self.history)
        self.metered_reader = (
            None if quotas is None else Consumer(around, METERED_READER, follows=[METERED], told=ends)
        )
        self.consumers = [
            Consumer(around, name, follows=names, version=version, told=ends)
            for name, version in plan.consumers.items()
        ]
        # Topics that may be deleted and created again are left out: ListOffsets has no topic ids, so answers
        # about the old and the new topic would look alike.
        lasting = [topic.name for topic in plan.topics if not topic.is_remade]
        self.watcher = EndWatcher(around, "ends", follows=lasting, told=ends)
        self.time_reader = TimeReader(around, "times", follows=lasting) if plan.reads_times else None
        told = GroupHistory(self.history)
        self.groups = [GroupLife(around, group, told) for group in plan.groups]
        tenants = plan.tenants
        self.owned = OwnerHistory(self.history, has_resets=tenants is not None and tenants.has_resets)
        self.owned.has_forgotten_ids = "append.ids.max" in plan.settings
        if tenants is not None and tenants.names_kept:
            self.owned.names_forgotten_after_s = NAMES_RETENTION_MS / 1000
        self.tenants = None if tenants is None else TenantLife(around, tenants, self.owned)
        self.keyed = KeyedHistory(self.history)
        keyed = next((topic.name for topic in plan.topics if topic.is_keyed), None)
        self.keyed_writers = [
            KeyedWriter(around, f"k{number}", (keyed, 0), self.keyed)
            for number in range(plan.keyed_writers)
            if keyed is not None
        ]
        self.keyed_writers += [
            KeyedWriter(
                around,
                f"b{number}",
                (topic.name, 0),
                self.keyed,
                blind_share=1.0,
                has_tombstones=plan.has_tombstones,
            )
            for topic in plan.topics
            if topic.is_compacted
            for number in range(plan.blind_writers)
        ]
        payers_topic = next((topic for topic in topics if topic.name == plan.payers_topic), None)
        self.payers = [
            Payer(
                around,
                f"payer{number}",
                (payers_topic.name, 0),
                remembers_all=_remembers_all(plan, payers_topic),
            )
            for number in range(plan.payers)
            if payers_topic is not None
        ]
        self.transactions = TransactionHistory(
            self.history, may_time_out_early=any("clock" in strike.kind for strike in plan.strikes)
        )
        self.estate = OwnerHistory(self.history)
        self.transactors = (
            None
            if plan.transactions is None
            else TransactionLife(around, plan.transactions, self.transactions, self.estate, ends)
        )
        if plan.moves_pause_s:
            self.move_judge.mover = ReplicaMover(around, "mover", plan.moves_pause_s)
        self.cluster.network.weather = plan.weather
        self._disasters = LongFaults(self)

    @property
    def clients(self) -> list[Client]:
        members = [member for group in self.groups for member in group.members]
        life = self.tenants
        tenants = [] if life is None else [*life.tenants, *life.strangers]
        writers = [*self.producers, *self.keyed_writers, *self.payers]
        seldom = (self.quota_setter, self.metered_reader, self.time_reader, self.move_judge.mover)
        some = [each for each in seldom if each]
        transactors = [] if self.transactors is None else self.transactors.clients
        others = [*members, *tenants, *transactors]
        return [self.operator, self.watcher, *writers, *self.consumers, *some, *others]

    # The course of events

    def live(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        self.operator.start()
        if not self._wait(self._is_whole, 30):
            self._found.append("the cluster was not whole 30 s after its start")
            return
        cluster.zookeeper.delay_ms_max = self.plan.zookeeper_delay_ms_max
        for producer in (*self.producers, *self.keyed_writers, *self.payers):
            producer.start()
        for consumer in self.consumers:
            consumer.start()
        self.watcher.start()
        if self.time_reader is not None:
            self.time_reader.start()
        if self.quota_setter is not None and self.metered_reader is not None:
            self.quota_setter.start()
            self.metered_reader.start()
        for group in self.groups:
            group.begin()
        if self.tenants is not None:
            self.tenants.begin()
        if self.transactors is not None:
            self.transactors.begin()
        if self.move_judge.mover is not None:
            self.move_judge.mover.start()
        self.is_faulty = True
        until_s = world.clock.rightNow + self.plan.faulty_s
        self._disasters.begin()
        self.operator.begin_changes()
        world.run(until_s - world.clock.rightNow)
        self._heal()

    def _is_whole(self) -> bool:
        is_restored = self.is_faulty or self._disasters.is_restored()
        return self.operator.is_done and is_restored and self.cluster.is_whole()

    def _heal(self) -> None:
        world = self.world
        self.is_faulty = False
        self.cluster.network.weather = Weather()
        world.trace("scenario", "peace")
        self.cluster.mend()
        self.operator.end_changes()
        self.recovery.faults_ended()
        if not self._wait(self._is_whole):
            self._found.append(f"the cluster did not heal: {self.cluster.topics()}, {self.cluster.states()}")
            return
        if self.quota_setter is not None:
            self.quota_setter.end()
        if self.move_judge.mover is not None:
            self.move_judge.mover.is_moving = False
        for group in self.groups:
            group.end()
        if self.transactors is not None:
            self.transactors.end()
        world.run(2.0)
        writers = (*self.producers, *self.keyed_writers, *self.payers)
        for writer in writers:
            writer.is_making = False
        for consumer in self._readers():
            consumer.is_rewinding = False
        if self.recovery.late:
            self._found.append(f"{self.recovery.late} did not accept acks=all {RECOVERY_S_MAX} s after peace")
        if not self._wait(lambda: all(writer.is_idle for writer in writers)):
            self._found.append("producers make no progress in a healthy cluster")
            return
        if self.tenants is not None:
            self._end_tenants(self.tenants)
        if self.transactors is not None:
            self._end_transactions(self.transactors)
        world.run(_QUIET_S)
        if not self._wait(self._is_whole):
            self._found.append("the cluster did not stay whole")
        if not self._wait_for_readers():
            self._found.append("consumers make no progress in a healthy cluster")
        # Few readers meet an index that the disk has changed, so every batch is looked up.
        if self.faults["bit rot"] and not self._wait(lambda: not any(misread(self.cluster))):
            self._found.extend(misread(self.cluster))
        if not self._wait(lambda: not any(without_indexes(self.cluster))):
            self._found.extend(without_indexes(self.cluster))
        if not self._wait(lambda: not any(self.retention_judge.overdue())):
            self._found.extend(self.retention_judge.overdue())
        if self.plan.moves_pause_s and not self._wait(lambda: not any(self.move_judge.unfinished())):
            self._found.extend(self.move_judge.unfinished())
        self.tombstone_judge.check_end()
        for group in self.groups:
            self._end_group(group)
        if self.groups:
            world.run(_SESSIONS_OVER_S)

    def _end_tenants(self, tenants: TenantLife) -> None:
        tenants.end()
        if not self._wait(lambda: tenants.is_idle):
            self._found.append("owners make no progress in a healthy cluster")
            return
        tenants.leave()
        if not self._wait(lambda: tenants.is_empty):
            self._found.append(f"claims do not resolve in a healthy cluster: {tenants.stuck()}")
            return
        tenants.leave_it_to_the_last()
        if not self._wait(lambda: tenants.is_over):
            self._found.append("a partition cannot be owned in a healthy cluster")

    def _end_transactions(self, transactors: TransactionLife) -> None:
        transactors.finish()
        if not self._wait(lambda: transactors.is_idle):
            self._found.append("transactional producers make no progress in a healthy cluster")
        elif not self._wait(lambda: not any(open_transactions(self.cluster))):
            hanging = list(open_transactions(self.cluster))
            self._found.append(f"transactions hang in a healthy cluster: {hanging}")
        transactors.ask_for_final_offsets()
        if not self._wait(lambda: transactors.has_final_offsets):
            self._found.append("the offsets of transactions are not stable in a healthy cluster")

    def _end_group(self, group: GroupLife) -> None:
        name = group.plan.name
        if not self._wait(group.is_stable):
            self._found.append(f"the group {name} did not become stable")
            return
        group.tool.look()
        if not self._wait(lambda: group.tool.is_in_order):
            self._found.append(f"the group {name} has no single coordinator that describes it as Stable")
        group.dissolve()

    def _wait(self, condition: Callable[[], bool], seconds: float = HEALING_S_MAX) -> bool:
        """Run until a condition holds, checked ten times per simulated second. Returns whether it held."""
        for _ in range(int(seconds * 10)):
            if condition():
                return True
            self.world.run(0.1)
        return False

    def _wait_for_readers(self) -> bool:
        """Wait until everything is read, as long as somebody makes progress: a consumer may have fallen
        further behind than its quota, or the size of its fetches, lets it catch up in the usual time."""
        position = -1
        while not self._wait(self._all_is_read):
            before, position = position, sum(sum(each.positions().values()) for each in self._readers())
            if position <= before:
                return False
        return True

    def _readers(self) -> list[Consumer]:
        metered = [] if self.metered_reader is None else [self.metered_reader]
        return [*self.consumers, *metered, *self._committed_readers()]

    def _committed_readers(self) -> Sequence[Consumer]:
        return () if self.transactors is None else self.transactors.readers

    def _all_is_read(self) -> bool:
        topics = self.cluster.topics()
        ends = {
            Incarnation(partition.key, topics[partition.topic].topic_id or NO_ID): (
                partition.log.log_end_offset
            )
            for machine in self.cluster.machines
            for partition in machine.partitions()
            if isinstance(partition.role, Leadership)
        }
        if any(Incarnation(at, topics[at[0]].topic_id or NO_ID) not in ends for at in self.cluster.states()):
            return False  # The leadership of a partition is moving.
        reader = self.metered_reader
        some = [*self._committed_readers(), *([] if reader is None else [reader])]
        if any(ends.get(at, 0) > to for each in some for at, to in each.positions().items()):
            return False
        return all(
            consumer.positions().get(place, -1) >= end
            for consumer in self.consumers
            for place, end in ends.items()
            if not place.is_internal
        )

    # The judgement

    def verdict(self) -> Verdict:
        world, history = self.world, self.history
        violations = [*self._found, *world.problems]
        if not self._found:
            violations += self._judge()
        else:
            violations += history.violations
        return Verdict(
            world.seed,
            world.trace.digest(),
            violations,
            list(world.trace.lines),
            world.seconds(),
            history.operations,
            self.faults,
            world.trace.events,
            self.recovery.times_s,
        )

    def _judge(self) -> list[str]:
        topics, plan = self.cluster.topics(), self.plan.transactions
        logs: dict[Incarnation, list[StoredLog]] = {}
        try:
            for at, state in self.cluster.states().items():
                # The leader's log comes first: the checkers compare the clients' history with it.
                holders = [state.leader, *(member for member in state.isr if member != state.leader)]
                logs[Incarnation(at, topics[at[0]].topic_id or NO_ID)] = [
                    self.cluster.machine(holder).stored(at) for holder in holders
                ]
        except ValueError as error:
            return [str(error)]
        found = check_all(self.history, logs)
        for place, replicas in logs.items():
            found += self.owned.check(place, replicas[0])
            if plan is not None and place.at[0] == plan.estate:
                found += self.estate.check(place, replicas[0])
            found += self.keyed.check(place, replicas[0])
        found += self.transactions.check(logs)
        return found
