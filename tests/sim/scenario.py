"""One seed's story: a cluster and its clients, a minute of faults, then peace, and the judgement.

Everything is drawn from the seed: how many producers of which habits, how the network is, and what goes wrong
when. A fault that would destroy the only copy of a committed record is not made: no software survives that.
What is allowed at a time is said beside each fault.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from broker.replication.leadership import Leadership
from tests.sim.checkers import StoredLog, check_all, read_log
from tests.sim.clients import Administrator, Consumer, Producer, ProducerHabits
from tests.sim.cluster import LOG_DIRECTORIES, Cluster, logs_in_trace
from tests.sim.faults import Faults
from tests.sim.history import History, TopicPartition
from tests.sim.network import Weather
from tests.sim.world import StandsStill, World

FAULTY_S = 60.0
HEALING_S_MAX = 60.0
_QUIET_S = 1.5


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a world is."""

    brokers: int = 3
    partitions: int = 3
    replication: int = 3
    min_in_sync: int = 2
    producers: int = 4
    consumers: int = 2


SINGLE = Shape(brokers=1, partitions=3, replication=1, min_in_sync=1)
THREE = Shape()
SHAPES = {"single": SINGLE, "three": THREE}


@dataclass(slots=True)
class Verdict:
    """What became of one seed."""

    seed: int
    digest: str
    violations: list[str]
    trace: list[str]
    simulated_s: float
    operations: int
    faults: Counter[str] = field(default_factory=Counter)
    events: int = 0

    @property
    def holds(self) -> bool:
        return not self.violations


def run_seed(seed: int, shape: Shape = THREE, *, keep_lines: int | None = 4000) -> Verdict:
    """Live through one seed."""
    world = World(seed, keep_lines=keep_lines)
    with logs_in_trace(world), _collecting_at_the_end():
        story = Story(world, shape)
        try:
            story.live()
        except StandsStill as error:
            world.problem("clock", str(error))
        verdict = story.verdict()
        del story
    # Failures that nobody has looked at are found when the last reference to them goes.
    verdict.violations += [problem for problem in world.problems if problem not in verdict.violations]
    return verdict


@contextmanager
def _collecting_at_the_end() -> Iterator[None]:
    """When garbage is collected must not matter to a simulation: it is once, when all is over."""
    was_collecting = gc.isenabled()
    gc.disable()
    gc.freeze()  # What was there before need not be looked at.
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_collecting:
            gc.enable()


class Story:
    """A cluster, its clients and what happens to them."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.rng = world.rng("scenario")
        self.cluster = Cluster(world, shape.brokers)
        self.history = History(world)
        self.faults: Counter[str] = Counter()
        self.topics = self._topics()
        self.partitions: list[TopicPartition] = [
            (name, number) for name, (count, _, _) in self.topics.items() for number in range(count)
        ]
        self.is_faulty = False
        self._found: list[str] = []
        bootstrap = [machine.address for machine in self.cluster.machines]
        cluster, history = self.cluster, self.history

        def common(name: str) -> tuple[Any, ...]:
            return world, cluster.network, name, bootstrap, history, cluster.life_of

        self.administrator = Administrator(*common("admin"))
        self.producers = [
            Producer(*common(f"p{number}"), partitions=self.partitions, habits=self._habits(number))
            for number in range(shape.producers)
        ]
        self.consumers = [
            Consumer(*common(f"c{number}"), partitions=self.partitions) for number in range(shape.consumers)
        ]
        self.cluster.network.weather = Weather(
            delay_ms_max=self.rng.choice([1.0, 3.0, 20.0]),
            slow_share=self.rng.choice([0.0, 0.0, 0.01]),
            break_share=self.rng.choice([0.0, 0.0, 0.001]),
        )

    def _topics(self) -> dict[str, tuple[int, int, dict[str, str]]]:
        shape = self.shape
        configs = {
            "min.insync.replicas": str(shape.min_in_sync),
            "flush.before.ack": "true" if shape.replication == 1 else "false",
        }
        return {"t": (shape.partitions, shape.replication, configs)}

    def _habits(self, number: int) -> ProducerHabits:
        """The first two producers are always those to whom most is promised."""
        if number < 2:
            return ProducerHabits(-1, is_idempotent=True, in_flight_max=self.rng.randint(1, 5))
        acks = self.rng.choice([-1, 1, 0])
        return ProducerHabits(acks, is_idempotent=acks == 1 and self.rng.random() < 0.5)

    # The course of events

    def live(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        self.administrator.create(self.topics)
        if not world.run_until(lambda: self.administrator.is_done and self._is_whole(), 30):
            self._found.append("the cluster was not whole 30 s after its start")
            return
        for producer in self.producers:
            producer.start()
        for consumer in self.consumers:
            consumer.start()
        self.is_faulty = True
        until_s = world.clock.rightNow + FAULTY_S
        Faults(self).begin()
        world.run(until_s - world.clock.rightNow)
        self._heal()

    def _is_whole(self) -> bool:
        return self.cluster.is_whole(len(self.partitions), self.shape.replication)

    def _heal(self) -> None:
        world = self.world
        self.is_faulty = False
        self.cluster.network.weather = Weather()
        world.trace("scenario", "peace")
        self.cluster.zookeeper.written = None
        self.cluster.mend()
        if not self._wait(self._is_whole):
            self._found.append(f"the cluster did not heal: {self.cluster.states()}")
            return
        world.run(2.0)
        for producer in self.producers:
            producer.is_making = False
        if not self._wait(lambda: all(producer.is_idle for producer in self.producers)):
            self._found.append("producers make no progress in a healthy cluster")
            return
        world.run(_QUIET_S)
        if not self._wait(self._is_whole):
            self._found.append("the cluster did not stay whole")
        self._wait(self._all_is_read)

    def _wait(self, condition: Callable[[], bool]) -> bool:
        """Let time pass until a condition holds, looked at ten times a second."""
        for _ in range(int(HEALING_S_MAX * 10)):
            if condition():
                return True
            self.world.run(0.1)
        return False

    def _all_is_read(self) -> bool:
        ends = {
            partition.key: partition.log.log_end_offset
            for machine in self.cluster.machines
            for partition in machine.partitions()
            if isinstance(partition.role, Leadership)
        }
        return all(
            position >= ends.get(at, 0)
            for consumer in self.consumers
            for at, position in consumer.positions().items()
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
        )

    def _judge(self) -> list[str]:
        states = self.cluster.states()
        logs: dict[TopicPartition, list[StoredLog]] = {}
        try:
            for at, state in states.items():
                # The leader's first: it is the one that clients talk to.
                holders = [state.leader, *(member for member in state.isr if member != state.leader)]
                logs[at] = [
                    read_log(self.cluster.machine(holder).disk, LOG_DIRECTORIES, at, f"b{holder}")
                    for holder in holders
                ]
        except ValueError as error:
            return [str(error)]
        return check_all(self.history, logs)
