"""The topics that a seed draws, and the clients that use and change them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.sim.consumer import IDS_VERSION, NAMES_VERSION
from tests.sim.drawn_faults import has_long_fault, with_undisturbed_fault
from tests.sim.faults import Strike
from tests.sim.long_faults import CUT_COMPACTED, STRUCK_MOVE
from tests.sim.parts import without
from tests.sim.plan import (
    LAST_LIMITS,
    METERED,
    METERED_READER,
    METERED_WRITERS,
    NAMES_KEPT,
    NAMES_RETENTION_MS,
    QUOTA_WINDOWS,
    RETENTION_CHECK_MS,
    Change,
    GroupPlan,
    Plan,
    QuotaChange,
    QuotasPlan,
    Shape,
    TenantsPlan,
    Topic,
    TransactionsPlan,
)
from tests.sim.producer import ProducerHabits

_ALONE_SHARE = 0.6
_CUT_PASS_SHARE = 0.8
_DEFAULT_QUOTAS_SHARE = 0.5
_LEFT_OUT_SHARE = 0.75
_OWNED_TRANSACTIONS_SHARE = 0.5
_EXCLUSIVE = tuple(mode for mode in ProducerAccessMode if mode is not ProducerAccessMode.SHARED)
_SHARED_OR_FENCING = (ProducerAccessMode.SHARED, ProducerAccessMode.EXCLUSIVE_WITH_FENCING)


def draw_topics(shape: Shape, rng: random.Random, *, is_flushed: bool) -> tuple[Topic, ...]:
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


def draw_habits(number: int, rng: random.Random) -> ProducerHabits:
    """Draw a producer's habits. The first producer has the strongest guarantees."""
    interval_ms = rng.choice([300, 500, 1000])
    lanes_max = rng.randint(1, 4)
    if number == 0 or rng.random() < 0.4:
        return ProducerHabits(-1, True, interval_ms, lanes_max, in_flight_max=rng.randint(1, 5))
    acks = rng.choice([-1, 1, 0])
    return ProducerHabits(acks, acks == 1 and rng.random() < 0.5, interval_ms, lanes_max)


def draw_consumers(at_most: int, topics: Sequence[Topic], rng: random.Random) -> dict[str, int]:
    """Draw the consumers. One that asks by name could not tell a topic from the next one of its name."""
    by_name_too = not any(topic.is_remade for topic in topics)
    versions = [NAMES_VERSION, IDS_VERSION] if by_name_too else [IDS_VERSION]
    return {f"c{number}": rng.choice(versions) for number in range(rng.randint(1, at_most))}


def draw_changes(topics: Sequence[Topic], rng: random.Random) -> tuple[Change, ...]:
    """Draw the changes to topics. Topics that are made for a change have it for certain."""
    possible = [Change.GROW, Change.MOVE, Change.ELECT]
    chosen = [change for change in possible if rng.random() < 0.35]
    if any(topic.is_remade for topic in topics):
        chosen.append(Change.REMAKE)
    if any(topic.is_trimmed for topic in topics):
        chosen.append(Change.TRIM)
    return tuple(chosen)


def draw_groups(topics: Sequence[Topic], rng: random.Random) -> tuple[GroupPlan, ...]:
    """Draw the groups. All consume the first topic: the deletion of any other would delete their offsets."""
    kinds = rng.choice([(), (), (), (False,), (True,), (False, True)])
    names = {False: "classic", True: "managed"}
    # A managed group has single readers only if there is no classic group beside it.
    return tuple(
        GroupPlan(names[is_managed], topics[0].name, is_managed, kinds == (True,)) for is_managed in kinds
    )


def draw_tenants(topics: Sequence[Topic], rng: random.Random) -> TenantsPlan | None:
    """Draw the tenants, if there is a topic for them."""
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


def with_keys(plan: Plan, rng: random.Random) -> Plan:
    """The plan with a topic whose keys have versions, and clients that write to it."""
    configs = (
        *plan.topics[0].configs,
        ("key.versions", "true"),
        # A table of two keys is written to a file after every few records.
        ("key.versions.memory.bytes", rng.choice(["400", "800", "1000000"])),
    )
    topic = Topic("keyed", 1, plan.shape.replicas, configs, is_keyed=True)
    return dataclasses.replace(plan, topics=(*plan.topics, topic), keyed_writers=rng.randint(2, 3))


def with_retention(plan: Plan, rng: random.Random) -> Plan:
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


def with_compaction(plan: Plan, rng: random.Random) -> Plan:
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


def with_tombstones(plan: Plan, rng: random.Random) -> Plan:
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


def with_unclean_compaction(plan: Plan, rng: random.Random) -> Plan:
    """The plan with unclean elections for the compacted topic, after which followers truncate what a pass may
    be compacting, and with slow passes. Then acknowledged records may be lost, and the judges of tombstones
    would not know which of them are: the topic has none."""
    more = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    is_cut = plan.shape.brokers > 2 and not has_long_fault(plan) and rng.random() < _CUT_PASS_SHARE
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
    plan = with_undisturbed_fault(plan, CUT_COMPACTED, rng)
    return dataclasses.replace(plan, faulty_s=max(plan.faulty_s, CUT_COMPACTED.seconds[1]))


def with_quotas(plan: Plan, rng: random.Random) -> Plan:
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
        changes.append(QuotaChange(0.0, None, QuotaKey.FETCH, 1024.0))
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


def _quota_change(at_s: float, client: str | None, rng: random.Random) -> QuotaChange:
    if client is None:
        return QuotaChange(at_s, None, rng.choice(list(LAST_LIMITS)), rng.choice([1024.0, 3000.0, None]))
    key = QuotaKey.FETCH if client == METERED_READER else QuotaKey.PRODUCE
    limit = rng.choice([500.0, 1000.0, 2000.0, None] if at_s else [500.0, 1000.0])
    return QuotaChange(at_s, client, key, limit, is_of_user=rng.random() < 0.3)


def with_payers(plan: Plan, rng: random.Random) -> Plan:
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


def with_strangers(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
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


def with_stray_readers(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
    """The plan with clients that read the owned partition in the group of its single readers, without
    claiming it. The readers lose their connections more often; in most of these seeds there is only one,
    which nobody replaces while it is gone."""
    readers = 1 if rng.random() < _ALONE_SHARE else 2
    more = dataclasses.replace(tenants, readers=readers, stray_readers=rng.randint(1, 2), break_often=True)
    return dataclasses.replace(plan, tenants=more)


def with_many_names(plan: Plan, tenants: TenantsPlan, rng: random.Random) -> Plan:
    """The plan with owners of more names than brokers keep: they forget those that nobody has owned for a
    moment."""
    settings = {**plan.settings, "own.names.max": NAMES_KEPT, "own.names.retention.ms": NAMES_RETENTION_MS}
    many = dataclasses.replace(tenants, names=rng.randint(2, 4), names_kept=NAMES_KEPT)
    return dataclasses.replace(plan, tenants=many, settings=settings)


def with_transactions(plan: Plan, rng: random.Random) -> Plan:
    """The plan with transactional producers, and without most of what it has beside them, so that a seed does
    not take much longer."""
    beside = [topic.name for topic in plan.topics[1:]]
    plan = without(plan, [name for name in beside if rng.random() < _LEFT_OUT_SHARE])
    configs = plan.topics[0].configs
    topics = [Topic("ledger", rng.randint(2, 3), plan.shape.replicas, configs)]
    transactions = TransactionsPlan(
        topics[0].name,
        ids=rng.randint(1, 3),
        timeout_ms=rng.choice([2500, 6000]),
        pause_s=rng.choice([0.1, 0.5]),
        has_offsets=rng.random() < 0.6,
    )
    settings = {
        **plan.settings,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": plan.shape.replicas,
        "transaction.state.log.min.isr": plan.shape.min_in_sync,
        "transaction.state.log.segment.bytes": rng.choice([1024, 100 * 1024 * 1024]),
    }
    version = settings["transaction.version"] = rng.choice([0, 1, 2, 2])
    transactions = dataclasses.replace(transactions, bumps=version >= BUMPING_VERSION)
    if rng.random() < _OWNED_TRANSACTIONS_SHARE:
        policy = ("single.writer", rng.choice(["required", "claimed"]))
        topics.append(Topic("estate", 1, plan.shape.replicas, (*configs, policy), is_owned=True))
        transactions = dataclasses.replace(transactions, owners=rng.randint(2, 3), estate="estate")
    return dataclasses.replace(
        plan, topics=(*plan.topics, *topics), transactions=transactions, settings=settings
    )


def with_moves(plan: Plan, rng: random.Random) -> Plan:
    """The plan with replicas that move between the log directories of their brokers, which crash often
    meanwhile, or lose one of the directories. No bit changes: a copy would have it too, and the judges could
    not tell it from one that the broker wrote."""
    first = 1 + max((strike.number for strike in plan.strikes), default=0)
    more = [
        Strike(
            number, STRUCK_MOVE.name, rng.uniform(1.0, plan.faulty_s), rng.uniform(1.0, 4.0), is_aimed=False
        )
        for number in range(first, first + rng.randint(2, 6))
    ]
    others = [strike for strike in plan.strikes if strike.kind != "bit rot"]
    return dataclasses.replace(
        plan,
        strikes=tuple(sorted((*others, *more), key=lambda each: each.at_s)),
        moves_pause_s=rng.choice([0.2, 0.5, 1.5]),
    )
