"""What a seed draws before its run: topics, client habits, settings, and the possible faults and changes.

Each seed draws only some kinds of faults and changes, so that these occur more often and rare combinations of
them occur too: a seed whose only faults are full disks and moved leaders has more of both than a seed with
all kinds. Sizes are drawn as well. Most seeds are small, because many short runs find more bugs in an hour
than a few long ones. Some are large, because some bugs need long logs and many changes.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.models.network import Weather
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.consumer import IDS_VERSION, NAMES_VERSION
from tests.sim.faults import POWER_LOSS, Kind, Strike
from tests.sim.long_faults import (
    CUT_COMPACTED,
    DIVERGENCE,
    LONE_LEADER,
    LONG_KINDS,
    OUTDATED_PROPOSAL,
    UNFOLLOWED_LEADER,
    UNNOTICED_SUCCESSION,
)
from tests.sim.producer import SEQUENCES, ProducerHabits


class Change(enum.Enum):
    """Changes to topics during the faulty phase."""

    GROW = "more partitions"
    MOVE = "replicas move"
    ELECT = "preferred leaders lead"
    REMAKE = "deleted and created again"
    TRIM = "records deleted"


@dataclass(frozen=True, slots=True)
class Shape:
    """Upper limits for the sizes of a simulated cluster, its topics and its clients.

    If it `is_gentle`, brokers are shut down in order and started again, one at a time, and there is no other
    fault. Then not even a record that only the leader acknowledged may be lost.
    """

    brokers: int = 3
    replicas: int = 3
    min_in_sync: int = 2
    producers_max: int = 4
    consumers_max: int = 2
    is_gentle: bool = False


_LARGE_SHARE = 0.2
_KEYED_SHARE = 0.25
_OUTDATED_SHARE = 0.05
_DIVERGENCE_SHARE = 0.3
_UNFOLLOWED_SHARE = 0.2
_UNNOTICED_SHARE = 0.3
_LONE_SHARE = 0.15
_TIMES_SHARE = 0.3
_LAST_SEQUENCES_SHARE = 0.2
_UNCLEAN_SHARE = 0.5
_CUT_PASS_SHARE = 0.8
_STRANGERS_SHARE = 0.8
_STRAY_READERS_SHARE = 0.4
_ALONE_SHARE = 0.6
_POWER_LOSSES_SHARE = 0.3
_MANY_NAMES_SHARE = 0.4
NAMES_KEPT = 3
NAMES_RETENTION_MS = 1000
"""In seeds with many names: how many a broker keeps, and for how long without an owner."""
_OTHERS_SHARE = 0.3
_LATE_RESULTS_SHARE = 0.2
_RETAINED_SHARE = 0.25
_COMPACTED_SHARE = 0.25
_QUOTAS_SHARE = 0.15
_TOMBSTONES_SHARE = 0.6
_PAYERS_SHARE = 0.3
_DEFAULT_QUOTAS_SHARE = 0.5
QUOTA_WINDOWS = 3
"""Value of quota.window.num in seeds with quotas; a window takes one second. A client may save up what it
does not use for only as long as that, so that the judge's bound is narrow."""
METERED = "metered"
METERED_WRITERS = ("mw0", "mw1")
METERED_READER = "mr0"
"""The topic of clients that have quotas, its producers and its consumer. Their names are their client ids."""
RETENTION_CHECK_MS = 1000
"""Value of log.retention.check.interval.ms in seeds with retention."""
_LONG_S = 20.0
_FOLLOW_UP_SHARE = 0.35
_FOLLOW_UP_S = 0.05

_EXCLUSIVE = tuple(mode for mode in ProducerAccessMode if mode is not ProducerAccessMode.SHARED)
_SHARED_OR_FENCING = (ProducerAccessMode.SHARED, ProducerAccessMode.EXCLUSIVE_WITH_FENCING)

SINGLE = Shape(brokers=1, replicas=1, min_in_sync=1)
THREE = Shape()
RESTARTS = Shape(is_gentle=True)
SHAPES = {"single": SINGLE, "three": THREE, "restarts": RESTARTS}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the simulation. `may_lose` is true if unclean leader election is enabled for it."""

    name: str
    partitions: int
    replicas: int
    configs: tuple[tuple[str, str], ...]
    may_lose: bool = False
    is_remade: bool = False
    is_trimmed: bool = False
    """Whether the operator deletes the topic's records up to offsets that consumers have read."""
    is_owned: bool = False
    """Whether the topic has a `single.writer` policy: tenants contend for its partition."""
    is_keyed: bool = False
    """Whether the topic has key.versions: keyed writers contend for the keys of its partition."""
    is_compacted: bool = False
    """Whether brokers compact the topic: only writers of records with keys write to it."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group of consumers of one topic. `is_managed`: its members speak the client rewrite's protocol."""

    name: str
    topic: str
    is_managed: bool
    has_single_readers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsPlan:
    """The tenants that contend for the partition of `topic`, and for a name.

    `are_conditional` has one entry per owner (own API): whether it appends conditionally. `producers` counts
    producers that ask for access in one of these `modes`, `names` owners of a name, `readers` single readers,
    `strangers` clients that write to the partition without claiming it, and `stray_readers` clients that read
    it in the group of the single readers.
    If the topic `is_strict`, only its owner may write (single.writer=required); else others may while it has
    no owner. If they `write_rarely`, they skip most opportunities to write; if they `leave_soon`, they keep
    the partition only briefly; if they `break_often`, their connections do.
    """

    topic: str
    is_strict: bool
    are_conditional: tuple[bool, ...] = ()
    producers: int = 0
    modes: tuple[ProducerAccessMode, ...] = ()
    names: int = 0
    names_kept: int = 0
    """If not 0: owners of names use many, one after the other, and brokers keep only as many as this."""
    readers: int = 0
    strangers: int = 0
    stray_readers: int = 0
    has_guards: bool = False
    has_resets: bool = False
    write_rarely: bool = False
    leave_soon: bool = False
    break_often: bool = False


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A quota that is set `at_s` seconds after the faulty phase began, or removed (None). `client` is its
    client id; None for all client ids without a quota. If it `is_of_user`, it is one of the user and the
    client id together, which comes before that of the client id."""

    at_s: float
    client: str | None
    key: QuotaKey
    limit: float | None
    is_of_user: bool = False

    def __str__(self) -> str:
        limit = "no limit" if self.limit is None else f"{self.limit:g}"
        user = " of the user" if self.is_of_user else ""
        return f"{self.key} of {self.client or 'every other client'}{user} becomes {limit}"


@dataclass(frozen=True, slots=True)
class QuotasPlan:
    """The quotas of clients during a run: `changes` in the faulty phase, and the `last` ones after it, under
    which the cluster becomes idle within a minute."""

    habits: ProducerHabits
    changes: tuple[QuotaChange, ...]

    @property
    def last(self) -> tuple[QuotaChange, ...]:
        """Every quota that a change has set, with a limit under which its client catches up, or removed."""
        places = dict.fromkeys((change.client, change.key, change.is_of_user) for change in self.changes)
        return tuple(
            QuotaChange(0.0, client, key, None if client is None or is_of_user else _LAST[key], is_of_user)
            for client, key, is_of_user in places
        )


_LAST = {QuotaKey.PRODUCE: 4000.0, QuotaKey.FETCH: 30_000.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one seed has drawn. Faults happen during `faulty_s` seconds. `producers` and
    `consumers` have their names as keys; the value of a consumer is the version of Fetch that it uses."""

    shape: Shape
    faulty_s: float
    topics: tuple[Topic, ...]
    producers: Mapping[str, ProducerHabits]
    consumers: Mapping[str, int]
    strikes: tuple[Strike, ...]
    changes: tuple[Change, ...]
    groups: tuple[GroupPlan, ...]
    tenants: TenantsPlan | None
    weather: Weather
    is_flushed: bool = False
    """Whether every broker flushes before it acknowledges. If so, any machine may lose power at any time."""
    work_ms_max: float = 5.0
    """Longest time that a broker's worker thread takes for one job, in ms."""
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    keyed_writers: int = 0
    """Number of clients that write with expected versions of keys, if a topic is keyed."""
    blind_writers: int = 0
    """Number of clients that write records with keys to the compacted topic, if there is one."""
    has_tombstones: bool = False
    """Whether these clients delete keys too, and now and then send a record without a key."""
    zookeeper_delay_ms_max: float = NORMAL_DELAY_MS_MAX
    """Longest time in milliseconds that a request to ZooKeeper, or its answer, takes on the network."""
    quotas: QuotasPlan | None = None
    """The quotas of clients that read and write the topic `METERED`."""
    payers: int = 0
    """Number of applications that write payments with append ids to `payers_topic`."""
    payers_topic: str = ""
    first_sequence: int = 0
    """The sequence with which idempotent producers begin."""
    reads_times: bool = False
    """Whether a client looks records up by their times."""
    result_ms_max: float = 0.0
    """Longest time in ms from the end of a worker thread's job to the moment at which the broker has the
    result. The log may grow, or be truncated, in between."""


def draw(shape: Shape, kinds: Sequence[Kind], streams: Callable[[str], random.Random]) -> Plan:
    """The plan of a seed, with faults of some of the `kinds`. `streams` returns the seed's generator of a
    name: what was added later has its own, so that a seed without it has the plan that it had before."""
    plan = _draw(shape, kinds, streams("plan"))
    if shape.is_gentle:
        return plan
    rng = streams("plan of quotas")
    if rng.random() < _QUOTAS_SHARE:
        plan = _with_quotas(plan, rng)
    rng = streams("plan of tombstones")
    if plan.blind_writers and rng.random() < _TOMBSTONES_SHARE:
        plan = _with_tombstones(plan, rng)
    rng = streams("plan of payers")
    if rng.random() < _PAYERS_SHARE:
        plan = _with_payers(plan, rng)
    rng = streams("plan of unclean compaction")
    if plan.blind_writers and not plan.has_tombstones and rng.random() < _UNCLEAN_SHARE:
        plan = _with_unclean_compaction(plan, rng)
    rng = streams("plan of an unfollowed leader")
    if plan.tenants is not None and not _has_long_fault(plan) and rng.random() < _UNFOLLOWED_SHARE:
        plan = _with_undisturbed_fault(plan, UNFOLLOWED_LEADER, rng)
    rng = streams("plan of an unnoticed succession")
    if plan.tenants is not None and not _has_long_fault(plan) and rng.random() < _UNNOTICED_SHARE:
        plan = _with_undisturbed_fault(plan, UNNOTICED_SUCCESSION, rng)
    rng = streams("plan of a lone leader")
    if shape.brokers > 2 and not _has_long_fault(plan) and rng.random() < _LONE_SHARE:
        plan = _with_undisturbed_fault(plan, LONE_LEADER, rng)
    rng = streams("plan of the last sequences")
    if rng.random() < _LAST_SEQUENCES_SHARE:
        # A broker accepts any sequence as a producer's first (KIP-360). These soon reach the last one.
        plan = dataclasses.replace(plan, first_sequence=SEQUENCES - rng.randint(1, 20))
    rng = streams("plan of strangers")
    if plan.tenants is not None and not plan.tenants.is_strict and rng.random() < _STRANGERS_SHARE:
        plan = _with_strangers(plan, plan.tenants, rng)
    rng = streams("plan of stray readers")
    if plan.tenants is not None and rng.random() < _STRAY_READERS_SHARE:
        plan = _with_stray_readers(plan, plan.tenants, rng)
    reads_times = streams("plan of readers by time").random() < _TIMES_SHARE
    return dataclasses.replace(plan, reads_times=reads_times)


def _draw(shape: Shape, kinds: Sequence[Kind], rng: random.Random) -> Plan:
    if shape.is_gentle:
        return _gentle(shape, kinds, rng)
    is_large = rng.random() < _LARGE_SHARE
    faulty_s = rng.uniform(30.0, 60.0) if is_large else rng.uniform(8.0, 25.0)
    is_flushed = shape.replicas == 1 or rng.random() < 0.2
    topics = _topics(shape, rng, is_flushed=is_flushed)
    # With tenants there are fewer other clients, so that a simulated second costs about the same.
    is_crowded = is_large and not any(topic.is_owned for topic in topics)
    producers = rng.randint(2, shape.producers_max) if is_crowded else rng.randint(1, 2)
    plan = Plan(
        shape,
        faulty_s,
        topics,
        {f"p{number}": _habits(number, rng) for number in range(producers)},
        _consumers(shape.consumers_max if is_crowded else 1, topics, rng),
        tuple(_strikes(kinds, faulty_s, rng)),
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
            # Bits change only in closed segments, so some seeds need several segments in each log.
            "log.segment.bytes": rng.choice([32 * 1024, 2 * 1024, 1024]),
            # Kafka's defaults make a dead broker leave the cluster before it leaves in-sync sets. Where its
            # session lasts longer than replica.lag.time.max.ms, it leaves them first.
            "zookeeper.session.timeout.ms": rng.choice([6000, 3000]),
        },
        zookeeper_delay_ms_max=rng.choice([NORMAL_DELAY_MS_MAX] * 3 + [60.0, 400.0]),
    )
    # Drawn last, so that a seed without these has the plan that it had before there were any.
    if rng.random() < _KEYED_SHARE:
        plan = _with_keys(plan, rng)
    if rng.random() < _OUTDATED_SHARE and _keeps_two_in_sync(plan):
        plan = _with_undisturbed_fault(plan, OUTDATED_PROPOSAL, rng)
    if rng.random() < _LATE_RESULTS_SHARE:
        plan = dataclasses.replace(plan, result_ms_max=rng.choice([50.0, 400.0]))
    if plan.tenants is not None and rng.random() < _MANY_NAMES_SHARE:
        plan = _with_many_names(plan, plan.tenants, rng)
    if _names_appends(plan) and rng.random() < _DIVERGENCE_SHARE:
        plan = _with_long_fault(plan, DIVERGENCE, rng)
    if rng.random() < _RETAINED_SHARE:
        plan = _with_retention(plan, rng)
    if shape.brokers == 1 and rng.random() < _POWER_LOSSES_SHARE:
        plan = _with_power_losses(plan, rng)
    if rng.random() < _COMPACTED_SHARE:
        plan = _with_compaction(plan, rng)
    return plan


def _names_appends(plan: Plan) -> bool:
    """Whether any client gives its appends ids, which a log has to forget when it is truncated."""
    return plan.tenants is not None and any(plan.tenants.are_conditional)


def _keeps_two_in_sync(plan: Plan) -> bool:
    """Whether a third broker may lose data at any time, because every partition has two others in sync."""
    return plan.shape.brokers > 2 and not any(
        ("min.insync.replicas", "1") in topic.configs for topic in plan.topics
    )


def _with_long_fault(plan: Plan, kind: Kind, rng: random.Random) -> Plan:
    """The plan with another fault, which takes long, and fewer of the others, which would interrupt it."""
    number = 1 + max((strike.number for strike in plan.strikes), default=0)
    strike = Strike(number, kind.name, rng.uniform(0.0, 3.0), rng.uniform(*kind.seconds), rng.random() < 0.5)
    others = [other for other in plan.strikes if rng.random() < _OTHERS_SHARE]
    strikes = sorted((strike, *others), key=lambda each: each.at_s)
    return dataclasses.replace(plan, faulty_s=max(plan.faulty_s, _LONG_S), strikes=tuple(strikes))


def _has_long_fault(plan: Plan) -> bool:
    names = {kind.name for kind in LONG_KINDS}
    return any(strike.kind in names for strike in plan.strikes)


def _with_undisturbed_fault(plan: Plan, kind: Kind, rng: random.Random) -> Plan:
    """The plan with another fault, which waits twice until a session expires. Sessions therefore expire soon,
    and no other fault begins before the end of this one: most of them would change the partition's state, and
    so undo what this one has done."""
    plan = _with_long_fault(plan, kind, rng)
    (long,) = (strike for strike in plan.strikes if strike.kind == kind.name)
    strikes = [strike for strike in plan.strikes if strike is long or strike.at_s > long.at_s + long.seconds]
    settings = {**plan.settings, "zookeeper.session.timeout.ms": 3000}
    return dataclasses.replace(
        plan, strikes=tuple(strikes), settings=settings, zookeeper_delay_ms_max=NORMAL_DELAY_MS_MAX
    )


def _with_power_losses(plan: Plan, rng: random.Random) -> Plan:
    """The plan of a single broker with small segments, slow flushes and more losses of power. While one
    flush runs, records are appended to several segments, and the next flush has to make all of them durable.
    """
    first = 1 + max((strike.number for strike in plan.strikes), default=0)
    losses = [
        Strike(
            number, POWER_LOSS.name, rng.uniform(2.0, plan.faulty_s), rng.uniform(0.5, 2.0), is_aimed=False
        )
        for number in range(first, first + rng.randint(3, 6))
    ]
    others = [other for other in plan.strikes if rng.random() < _OTHERS_SHARE]
    strikes = sorted((*losses, *others), key=lambda each: each.at_s)
    settings = {**plan.settings, "log.segment.bytes": 1024}
    return dataclasses.replace(plan, strikes=tuple(strikes), settings=settings, work_ms_max=400.0)


def _with_keys(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a topic whose keys have versions, and clients that write to it."""
    configs = (
        *plan.topics[0].configs,
        ("key.versions", "true"),
        # A table of two keys is written to a file after every few records.
        ("key.versions.memory.bytes", rng.choice(["400", "800", "1000000"])),
    )
    topic = Topic("keyed", 1, plan.shape.replicas, configs, is_keyed=True)
    return dataclasses.replace(plan, topics=(*plan.topics, topic), keyed_writers=rng.randint(2, 3))


def _with_retention(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a topic whose old records are removed: by age, by size, or by both."""
    by_age = ("retention.ms", rng.choice(["1500", "4000", "8000"]))
    by_size = ("retention.bytes", rng.choice(["0", "1500", "3000"]))
    limits = rng.choice([(by_age,), (by_size,), (by_age, by_size)])
    configs = (
        *plan.topics[0].configs,
        *limits,
        ("segment.bytes", rng.choice(["800", "1024", "4096"])),
        ("file.delete.delay.ms", rng.choice(["0", "1000"])),
    )
    topic = Topic("aged", 1, plan.shape.replicas, configs)
    settings = {**plan.settings, "log.retention.check.interval.ms": RETENTION_CHECK_MS}
    return dataclasses.replace(plan, topics=(*plan.topics, topic), settings=settings)


def _with_compaction(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a topic that brokers compact often, in small segments, and clients that write to it."""
    configs = (
        *plan.topics[0].configs,
        ("cleanup.policy", "compact"),
        ("segment.bytes", rng.choice(["200", "400", "1024"])),
        ("min.cleanable.dirty.ratio", rng.choice(["0.01", "0.3"])),
        ("max.compaction.lag.ms", rng.choice(["2000", "1000000"])),
        ("file.delete.delay.ms", rng.choice(["0", "1000"])),
    )
    topic = Topic("compacted", 1, plan.shape.replicas, configs, is_compacted=True)
    settings = {
        **plan.settings,
        "log.cleaner.backoff.ms": rng.choice([100, 1000]),
        # A table of a few keys makes passes end early.
        "log.cleaner.dedupe.buffer.size": rng.choice([1024, 128 << 20]),
    }
    return dataclasses.replace(
        plan, topics=(*plan.topics, topic), blind_writers=rng.randint(1, 2), settings=settings
    )


def _with_quotas(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a topic whose clients want to read and write more than their quotas, which change.

    A quota of all client ids would delay owners and members of groups until they lose what they own, so only
    seeds without them have one."""
    topic = Topic(METERED, 1, plan.shape.replicas, plan.topics[0].configs)
    clients: list[str | None] = [*METERED_WRITERS, METERED_READER]
    if plan.tenants is None and not plan.groups and rng.random() < _DEFAULT_QUOTAS_SHARE:
        clients.append(None)
    changes = [_quota_change(0.0, METERED_WRITERS[0], rng), _quota_change(0.0, METERED_READER, rng)]
    if None in clients:
        # Followers fetch more than this: no quota may apply to them.
        changes.append(QuotaChange(0.0, None, QuotaKey.FETCH, 1000.0))
    times_s = sorted(rng.uniform(0.0, plan.faulty_s) for _ in range(rng.randint(2, 8)))
    changes += [_quota_change(at_s, rng.choice(clients), rng) for at_s in times_s]
    in_flight_max = rng.randint(1, 3)
    habits = ProducerHabits(-1, rng.random() < 0.5, 100, 1, records_max=6, in_flight_max=in_flight_max)
    settings = {**plan.settings, "quota.window.num": QUOTA_WINDOWS}
    return dataclasses.replace(
        plan,
        topics=(*plan.topics, topic),
        quotas=QuotasPlan(habits, tuple(changes)),
        settings=settings,
    )


def _with_tombstones(plan: Plan, rng: random.Random) -> Plan:
    """The plan with tombstones in the compacted topic, which go soon, and in some seeds with retention of the
    topic's old records."""
    more = [("delete.retention.ms", rng.choice(["500", "2000"]))]
    settings = dict(plan.settings)
    if rng.random() < 0.5:
        more += [("cleanup.policy", "compact,delete"), ("retention.ms", rng.choice(["6000", "12000"]))]
        settings["log.retention.check.interval.ms"] = RETENTION_CHECK_MS
    topics = tuple(
        dataclasses.replace(topic, configs=tuple({**dict(topic.configs), **dict(more)}.items()))
        if topic.is_compacted
        else topic
        for topic in plan.topics
    )
    return dataclasses.replace(plan, topics=topics, settings=settings, has_tombstones=True)


def _with_unclean_compaction(plan: Plan, rng: random.Random) -> Plan:
    """The plan with unclean elections for the compacted topic, after which followers truncate what a pass may
    be compacting, and with slow passes. Then acknowledged records may be lost, and the judges of tombstones
    would not know which of them are: the topic has none."""
    more = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    is_cut = plan.shape.brokers > 2 and not _has_long_fault(plan) and rng.random() < _CUT_PASS_SHARE
    if is_cut:
        # The end of what all replicas have must lie within a file, not between two.
        more["segment.bytes"] = rng.choice(["400", "1024"])
    topics = tuple(
        dataclasses.replace(topic, configs=tuple({**dict(topic.configs), **more}.items()), may_lose=True)
        if topic.is_compacted
        else topic
        for topic in plan.topics
    )
    rate = rng.choice([200, 400]) if is_cut else rng.choice([500, 2000, 10_000])
    settings = {**plan.settings, "log.cleaner.io.max.bytes.per.second": rate}
    plan = dataclasses.replace(plan, topics=topics, settings=settings)
    if not is_cut:
        return plan
    plan = _with_undisturbed_fault(plan, CUT_COMPACTED, rng)
    return dataclasses.replace(plan, faulty_s=max(plan.faulty_s, CUT_COMPACTED.seconds[1]))


def _quota_change(at_s: float, client: str | None, rng: random.Random) -> QuotaChange:
    if client is None:
        return QuotaChange(at_s, None, rng.choice(list(_LAST)), rng.choice([1000.0, 3000.0, None]))
    key = QuotaKey.FETCH if client == METERED_READER else QuotaKey.PRODUCE
    limit = rng.choice([500.0, 1000.0, 2000.0, None] if at_s else [500.0, 1000.0])
    return QuotaChange(at_s, client, key, limit, is_of_user=rng.random() < 0.3)


def _with_payers(plan: Plan, rng: random.Random) -> Plan:
    """The plan with applications that write payments with append ids. In some of these seeds brokers remember
    only a few ids, and so forget some of them, or do not know them, because they began their replicas after
    earlier records had been deleted."""
    names = [topic.name for topic in plan.topics if topic.name == "t" or topic.is_trimmed]
    settings = dict(plan.settings)
    if rng.random() < 0.7:
        settings["append.ids.max"] = rng.choice([2, 6, 20])
        settings["append.ids.max.per.producer"] = rng.choice([1, 4, 5000])
        settings["append.ids.retention.ms"] = rng.choice([0, 1000, 86_400_000])
    return dataclasses.replace(
        plan, payers=rng.randint(2, 3), payers_topic=rng.choice(names), settings=settings
    )


def _with_strangers(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
    """The plan with clients that write to the owned partition without claiming it. Its owners lose their
    connections more often; in most of these seeds there is only one, which nobody replaces while it is
    gone."""
    tenants = dataclasses.replace(tenants, strangers=rng.randint(1, 2), break_often=True)
    if rng.random() < _ALONE_SHARE:
        if tenants.are_conditional:
            alone = dataclasses.replace(tenants, are_conditional=tenants.are_conditional[:1], producers=0)
        else:
            alone = dataclasses.replace(tenants, producers=1, modes=(ProducerAccessMode.EXCLUSIVE,))
        tenants = dataclasses.replace(alone, leave_soon=False)
    return dataclasses.replace(plan, tenants=tenants)


def _with_stray_readers(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
    """The plan with clients that read the owned partition in the group of its single readers, without
    claiming it. The readers lose their connections more often; in most of these seeds there is only one,
    which nobody replaces while it is gone."""
    readers = 1 if rng.random() < _ALONE_SHARE else 2
    more = dataclasses.replace(tenants, readers=readers, stray_readers=rng.randint(1, 2), break_often=True)
    return dataclasses.replace(plan, tenants=more)


def _with_many_names(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
    """The plan with owners of more names than brokers keep: they forget those that nobody has owned for a
    moment."""
    settings = {**plan.settings, "own.names.max": NAMES_KEPT, "own.names.retention.ms": NAMES_RETENTION_MS}
    many = dataclasses.replace(tenants, names=rng.randint(2, 4), names_kept=NAMES_KEPT)
    return dataclasses.replace(plan, tenants=many, settings=settings)


def _gentle(shape: Shape, kinds: Sequence[Kind], rng: random.Random) -> Plan:
    """The plan of a seed in which brokers are shut down in order and started again, without other faults."""
    faulty_s = 40.0
    stop = next(kind for kind in kinds if kind.name == "stop")
    writers = [ProducerHabits(1, rng.random() < 0.5, rng.choice([30, 100]), lanes_max=3) for _ in range(2)]
    return Plan(
        shape,
        faulty_s,
        (Topic("t", 3, shape.replicas, (("min.insync.replicas", str(shape.min_in_sync)),)),),
        {"p0": writers[0], "p1": writers[1], "p2": ProducerHabits(-1, is_idempotent=True)},
        {"c0": IDS_VERSION},
        tuple(
            Strike(
                number, stop.name, rng.uniform(1, faulty_s), rng.uniform(*stop.seconds), rng.random() < 0.5
            )
            for number in range(15)
        ),
        changes=(),
        groups=(),
        tenants=None,
        weather=Weather(delay_ms_max=rng.choice([1.0, 5.0, 20.0])),
        settings={
            "leader.imbalance.check.interval.seconds": 300,
            "min.insync.replicas": shape.min_in_sync,
        },
    )


def _strikes(kinds: Sequence[Kind], faulty_s: float, rng: random.Random) -> Iterator[Strike]:
    """Draw the faults. A third of them begin immediately after another one."""
    chosen = _some(kinds, rng, at_least=4)
    weights = [kind.weight for kind in chosen]
    pause_s = rng.choice([1.5, 3.0, 5.0])
    at_s = rng.expovariate(1 / pause_s)
    for number in itertools.count(1):
        if at_s >= faulty_s:
            return
        kind = rng.choices(chosen, weights)[0]
        yield Strike(number, kind.name, at_s, rng.uniform(*kind.seconds), rng.random() < 0.5)
        is_follow_up = rng.random() < _FOLLOW_UP_SHARE
        at_s += rng.random() * _FOLLOW_UP_S if is_follow_up else rng.expovariate(1 / pause_s)


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
        durable = promised if is_flushed or rng.random() < 0.5 else (*promised, *flushed)
        topics.append(Topic("remade", 1, shape.replicas, durable, is_remade=True))
    if rng.random() < 0.2:
        small = ("segment.bytes", rng.choice(["1024", "4096"]))
        topics.append(Topic("trimmed", 1, shape.replicas, (*promised, small), is_trimmed=True))
    if rng.random() < 0.2:
        loose = (("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true"), *common)
        topics.append(Topic("loose", 2, shape.replicas, loose, may_lose=True))
    return tuple(topics)


def _habits(number: int, rng: random.Random) -> ProducerHabits:
    """Draw a producer's habits. The first producer has the strongest guarantees."""
    interval_ms = rng.choice([300, 500, 1000])
    lanes_max = rng.randint(1, 4)
    if number == 0 or rng.random() < 0.4:
        return ProducerHabits(-1, True, interval_ms, lanes_max, in_flight_max=rng.randint(1, 5))
    acks = rng.choice([-1, 1, 0])
    return ProducerHabits(acks, acks == 1 and rng.random() < 0.5, interval_ms, lanes_max)


def _consumers(at_most: int, topics: Sequence[Topic], rng: random.Random) -> dict[str, int]:
    by_name_too = not any(topic.is_remade for topic in topics)
    versions = [NAMES_VERSION, IDS_VERSION] if by_name_too else [IDS_VERSION]
    return {f"c{number}": rng.choice(versions) for number in range(rng.randint(1, at_most))}


def _changes(topics: Sequence[Topic], rng: random.Random) -> tuple[Change, ...]:
    possible = [Change.GROW, Change.MOVE, Change.ELECT]
    chosen = [change for change in possible if rng.random() < 0.35]
    if any(topic.is_remade for topic in topics):
        chosen.append(Change.REMAKE)
    if any(topic.is_trimmed for topic in topics):
        chosen.append(Change.TRIM)
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
    is_strict = ("single.writer", "required") in topic.configs
    owners, producers = rng.choice(
        [(2, 0), (3, 0), (0, 3), (2, 2)] if is_strict else [(2, 0), (0, 3), (2, 2)]
    )
    return TenantsPlan(
        topic=topic.name,
        is_strict=is_strict,
        are_conditional=tuple(rng.random() < 0.5 for _ in range(owners)),
        producers=producers,
        modes=_EXCLUSIVE if is_strict else rng.choice([tuple(ProducerAccessMode), _SHARED_OR_FENCING]),
        names=rng.choice([0, 2]),
        readers=rng.choice([0, 2]),
        has_guards=rng.random() < 0.5,
        has_resets=rng.random() < 0.2,
        write_rarely=rng.random() < 0.4,
        leave_soon=rng.random() < 0.4,
    )


def _some(kinds: Sequence[Kind], rng: random.Random, at_least: int) -> tuple[Kind, ...]:
    """About half of the kinds, in their order."""
    while True:
        chosen = tuple(kind for kind in kinds if rng.random() < 0.5)
        if len(chosen) >= min(at_least, len(kinds)):
            return chosen
