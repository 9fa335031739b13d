"""What a seed draws before its run: topics, client habits, settings, and the possible faults and changes.

Each seed draws only some kinds of faults and changes. That keeps a minute cheap and makes rare combinations
more frequent: if only disks fill up and leaders move, both happen more often in that minute.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.models.network import Weather
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.consumer import IDS_VERSION, NAMES_VERSION
from tests.sim.producer import ProducerHabits


class Change(enum.Enum):
    """A change to a topic during the faulty minute."""

    GROW = "more partitions"
    MOVE = "replicas move"
    ELECT = "preferred leaders lead"
    REMAKE = "deleted and created again"


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a simulated cluster and its topics, and limits on its clients."""

    brokers: int = 3
    replicas: int = 3
    min_in_sync: int = 2
    producers_max: int = 4
    consumers_max: int = 2


SINGLE = Shape(brokers=1, replicas=1, min_in_sync=1)
THREE = Shape()
SHAPES = {"single": SINGLE, "three": THREE}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the simulation. `may_lose` is true if unclean leader election is enabled for it."""

    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]
    may_lose: bool = False
    is_remade: bool = False
    is_owned: bool = False
    """Whether the topic has a `single.writer` policy: tenants contend for its partition."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group of consumers of one topic. `is_managed`: its members speak the client rewrite's protocol."""

    name: str
    topic: str
    is_managed: bool
    has_single_readers: bool = False


@dataclass(frozen=True, slots=True)
class TenantsPlan:
    """The tenants that contend for the partition of `topic`, and for a name.

    `are_conditional` has one entry per owner (own API): whether it appends conditionally. `producers` counts
    producers that ask for access, `names` owners of a name, `readers` single readers. If the topic
    `is_strict`, only its owner may write (single.writer=required); else others may while it has no owner.
    """

    topic: str
    is_strict: bool
    are_conditional: tuple[bool, ...] = ()
    producers: int = 0
    names: int = 0
    readers: int = 0
    has_guards: bool = False
    has_resets: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one seed has drawn. `consumers` lists the Fetch version of each consumer, `faults` the
    names of the possible faults."""

    shape: Shape
    topics: tuple[Topic, ...]
    producers: tuple[ProducerHabits, ...]
    consumers: tuple[int, ...]
    faults: tuple[str, ...]
    fault_pause_s: float
    changes: tuple[Change, ...]
    groups: tuple[GroupPlan, ...]
    tenants: TenantsPlan | None
    weather: Weather
    is_flushed: bool = False
    """Whether every broker flushes before it acknowledges. If so, any machine may lose power at any time."""
    work_ms_max: float = 5.0
    """Longest time that a broker's worker thread takes for one job, in ms."""
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    zookeeper_delay_ms_max: float = NORMAL_DELAY_MS_MAX
    """How long ZooKeeper's requests and answers travel at most."""


def draw(shape: Shape, kinds: Sequence[str], rng: random.Random) -> Plan:
    """Draw the plan of a seed, with some of the fault kinds in `kinds`."""
    is_flushed = shape.replicas == 1 or rng.random() < 0.2
    topics = _topics(shape, rng, is_flushed=is_flushed)
    # With tenants there are fewer other clients, so that every minute costs about the same.
    has_tenants = any(topic.is_owned for topic in topics)
    producers = rng.randint(2, 2 if has_tenants else shape.producers_max)
    return Plan(
        shape,
        topics,
        tuple(_habits(number, rng) for number in range(producers)),
        _consumers(1 if has_tenants else shape.consumers_max, topics, rng),
        _some(kinds, rng, at_least=4),
        rng.choice([3.0, 5.0, 8.0]),
        _changes(topics, rng) if shape.brokers > 1 else (),
        _groups(topics, rng) if shape.brokers > 1 else (),
        _tenants(topics, rng),
        Weather(
            delay_ms_max=rng.choice([1.0, 3.0, 20.0]),
            slow_share=rng.choice([0.0, 0.0, 0.01]),
            break_share=rng.choice([0.0, 0.0, 0.001]),
        ),
        is_flushed,
        rng.choice([5.0, 5.0, 400.0]),
        {
            "leader.imbalance.check.interval.seconds": rng.choice([7, 300]),
            "min.insync.replicas": shape.min_in_sync,
            "flush.before.ack": is_flushed,
        },
        zookeeper_delay_ms_max=rng.choice([NORMAL_DELAY_MS_MAX] * 3 + [60.0, 400.0]),
    )


def _topics(shape: Shape, rng: random.Random, *, is_flushed: bool) -> tuple[Topic, ...]:
    """Draw the topics. The first has the strongest guarantees."""
    flushed = (("flush.before.ack", "true"),)
    common = flushed if is_flushed else ()
    promised = (("min.insync.replicas", str(shape.min_in_sync)), *common)
    topics = [Topic("t", 3, shape.replicas, promised)]
    if shape.replicas == 1:
        return tuple(topics)
    if not is_flushed and rng.random() < 0.2:
        topics.append(Topic("flushed", 1, shape.replicas, (*promised, *flushed)))
    if rng.random() < 0.25:
        topics.append(Topic("moving", 2, shape.replicas - 1, (("min.insync.replicas", "1"), *common)))
    if rng.random() < 0.4:
        policy = ("single.writer", rng.choice(["required", "claimed"]))
        topics.append(Topic("owned", 1, shape.replicas, (*promised, policy), is_owned=True))
    if rng.random() < 0.2:
        topics.append(Topic("remade", 1, shape.replicas, promised, is_remade=True))
    if rng.random() < 0.2:
        loose = (("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true"), *common)
        topics.append(Topic("loose", 2, shape.replicas, loose, may_lose=True))
    return tuple(topics)


def _habits(number: int, rng: random.Random) -> ProducerHabits:
    """Draw one producer's habits. The first two producers have the strongest guarantees."""
    interval_ms = rng.choice([400, 700, 1000])
    lanes_max = rng.randint(1, 4)
    if number < 2:
        return ProducerHabits(-1, True, interval_ms, lanes_max, in_flight_max=rng.randint(1, 5))
    acks = rng.choice([-1, 1, 0])
    return ProducerHabits(acks, acks == 1 and rng.random() < 0.5, interval_ms, lanes_max)


def _consumers(at_most: int, topics: Sequence[Topic], rng: random.Random) -> tuple[int, ...]:
    by_name_too = not any(topic.is_remade for topic in topics)
    versions = [NAMES_VERSION, IDS_VERSION] if by_name_too else [IDS_VERSION]
    return tuple(rng.choice(versions) for _ in range(rng.randint(1, at_most)))


def _changes(topics: Sequence[Topic], rng: random.Random) -> tuple[Change, ...]:
    possible = [Change.GROW, Change.MOVE, Change.ELECT]
    chosen = [change for change in possible if rng.random() < 0.35]
    if any(topic.is_remade for topic in topics):
        chosen.append(Change.REMAKE)
    return tuple(chosen)


def _groups(topics: Sequence[Topic], rng: random.Random) -> tuple[GroupPlan, ...]:
    """Draw the groups. All consume the first topic: the deletion of any other would delete their offsets."""
    kinds = rng.choice([(), (), (), (False,), (True,), (False, True)])
    names = {False: "classic", True: "managed"}
    # A managed group has single readers only if there is no classic group beside it.
    return tuple(
        GroupPlan(names[is_managed], topics[0].name, is_managed, kinds == (True,)) for is_managed in kinds
    )


def _tenants(topics: Sequence[Topic], rng: random.Random) -> TenantsPlan | None:
    topic = next((topic for topic in topics if topic.is_owned), None)
    if topic is None:
        return None
    owners, producers = rng.choice([(2, 0), (3, 0), (0, 3), (2, 2)])
    return TenantsPlan(
        topic.name,
        ("single.writer", "required") in topic.configs,
        tuple(rng.random() < 0.5 for _ in range(owners)),
        producers,
        rng.choice([0, 2]),
        rng.choice([0, 2]),
        has_guards=rng.random() < 0.5,
        has_resets=rng.random() < 0.2,
    )


def _some(names: Sequence[str], rng: random.Random, at_least: int) -> tuple[str, ...]:
    """Draw about half of the names, at least `at_least`, in their order."""
    while True:
        chosen = tuple(name for name in names if rng.random() < 0.5)
        if len(chosen) >= min(at_least, len(names)):
            return chosen
