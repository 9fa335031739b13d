"""Draws the plan of a seed: its topics, its clients, its settings, and its faults.

Sizes are drawn as well. Most seeds are small, because many short runs find more bugs in an hour than a few
long ones. Some are large, because some bugs need long logs and many changes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from tests.models.network import Weather
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.consumer import IDS_VERSION
from tests.sim.drawn_faults import (
    draw_strikes,
    has_long_fault,
    keeps_two_in_sync,
    with_long_fault,
    with_power_losses,
    with_undisturbed_fault,
)
from tests.sim.drawn_workload import (
    draw_changes,
    draw_consumers,
    draw_groups,
    draw_habits,
    draw_tenants,
    draw_topics,
    with_compaction,
    with_keys,
    with_many_names,
    with_moves,
    with_payers,
    with_quotas,
    with_retention,
    with_strangers,
    with_stray_readers,
    with_tombstones,
    with_transactions,
    with_unclean_compaction,
)
from tests.sim.faults import Kind, Strike
from tests.sim.long_faults import (
    DIVERGENCE,
    LONE_LEADER,
    OUTDATED_PROPOSAL,
    UNFOLLOWED_LEADER,
    UNNOTICED_SUCCESSION,
)
from tests.sim.plan import Plan, Shape, Topic
from tests.sim.producer import SEQUENCES, ProducerHabits

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
_STRANGERS_SHARE = 0.8
_STRAY_READERS_SHARE = 0.4
_POWER_LOSSES_SHARE = 0.3
_MANY_NAMES_SHARE = 0.4
_LATE_RESULTS_SHARE = 0.2
_RETAINED_SHARE = 0.25
_COMPACTED_SHARE = 0.25
_QUOTAS_SHARE = 0.15
_TOMBSTONES_SHARE = 0.6
_PAYERS_SHARE = 0.3
_MOVED_TRANSACTIONS_SHARE = 0.4


def draw(shape: Shape, kinds: Sequence[Kind], streams: Callable[[str], random.Random]) -> Plan:
    """The plan of a seed, with faults of some of the `kinds`. `streams` returns the seed's generator of a
    name: what was added later has its own, so that a seed without it has the plan that it had before."""
    plan = _draw(shape, kinds, streams("plan"))
    if shape.is_gentle:
        return plan
    rng = streams("plan of quotas")
    if rng.random() < _QUOTAS_SHARE:
        plan = with_quotas(plan, rng)
    rng = streams("plan of tombstones")
    if plan.blind_writers and rng.random() < _TOMBSTONES_SHARE:
        plan = with_tombstones(plan, rng)
    rng = streams("plan of payers")
    if rng.random() < _PAYERS_SHARE:
        plan = with_payers(plan, rng)
    rng = streams("plan of unclean compaction")
    if plan.blind_writers and not plan.has_tombstones and rng.random() < _UNCLEAN_SHARE:
        plan = with_unclean_compaction(plan, rng)
    rng = streams("plan of an unfollowed leader")
    if plan.tenants is not None and not has_long_fault(plan) and rng.random() < _UNFOLLOWED_SHARE:
        plan = with_undisturbed_fault(plan, UNFOLLOWED_LEADER, rng)
    rng = streams("plan of an unnoticed succession")
    if plan.tenants is not None and not has_long_fault(plan) and rng.random() < _UNNOTICED_SHARE:
        plan = with_undisturbed_fault(plan, UNNOTICED_SUCCESSION, rng)
    rng = streams("plan of a lone leader")
    if shape.brokers > 2 and not has_long_fault(plan) and rng.random() < _LONE_SHARE:
        plan = with_undisturbed_fault(plan, LONE_LEADER, rng)
    rng = streams("plan of the last sequences")
    if rng.random() < _LAST_SEQUENCES_SHARE:
        # A broker accepts any sequence as a producer's first (KIP-360). These soon reach the last one.
        plan = dataclasses.replace(plan, first_sequence=SEQUENCES - rng.randint(1, 20))
    rng = streams("plan of strangers")
    if plan.tenants is not None and not plan.tenants.is_strict and rng.random() < _STRANGERS_SHARE:
        plan = with_strangers(plan, plan.tenants, rng)
    rng = streams("plan of stray readers")
    if plan.tenants is not None and rng.random() < _STRAY_READERS_SHARE:
        plan = with_stray_readers(plan, plan.tenants, rng)
    if shape.has_moves:
        rng = streams("plan of moves")
        if rng.random() < _MOVED_TRANSACTIONS_SHARE:
            plan = with_transactions(plan, streams("plan of transactions"))
        plan = with_moves(plan, rng)
    if shape.has_transactions:
        plan = with_transactions(plan, streams("plan of transactions"))
    reads_times = streams("plan of readers by time").random() < _TIMES_SHARE
    return dataclasses.replace(plan, reads_times=reads_times)


def _draw(shape: Shape, kinds: Sequence[Kind], rng: random.Random) -> Plan:
    if shape.is_gentle:
        return _gentle(shape, kinds, rng)
    is_large = rng.random() < _LARGE_SHARE
    faulty_s = rng.uniform(30.0, 60.0) if is_large else rng.uniform(8.0, 25.0)
    is_flushed = shape.replicas == 1 or rng.random() < 0.2
    topics = draw_topics(shape, rng, is_flushed=is_flushed)
    # With tenants there are fewer other clients, so that a simulated second costs about the same.
    is_crowded = is_large and not any(topic.is_owned for topic in topics)
    producers = rng.randint(2, shape.producers_max) if is_crowded else rng.randint(1, 2)
    plan = Plan(
        shape,
        faulty_s,
        topics,
        {f"p{number}": draw_habits(number, rng) for number in range(producers)},
        draw_consumers(shape.consumers_max if is_crowded else 1, topics, rng),
        tuple(draw_strikes(kinds, faulty_s, rng)),
        draw_changes(topics, rng) if shape.brokers > 1 else (),
        draw_groups(topics, rng) if shape.brokers > 1 else (),
        draw_tenants(topics, rng),
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
        plan = with_keys(plan, rng)
    if rng.random() < _OUTDATED_SHARE and keeps_two_in_sync(plan):
        plan = with_undisturbed_fault(plan, OUTDATED_PROPOSAL, rng)
    if rng.random() < _LATE_RESULTS_SHARE:
        plan = dataclasses.replace(plan, result_ms_max=rng.choice([50.0, 400.0]))
    if plan.tenants is not None and rng.random() < _MANY_NAMES_SHARE:
        plan = with_many_names(plan, plan.tenants, rng)
    if _names_appends(plan) and rng.random() < _DIVERGENCE_SHARE:
        plan = with_long_fault(plan, DIVERGENCE, rng)
    if rng.random() < _RETAINED_SHARE:
        plan = with_retention(plan, rng)
    if shape.brokers == 1 and rng.random() < _POWER_LOSSES_SHARE:
        plan = with_power_losses(plan, rng)
    if rng.random() < _COMPACTED_SHARE:
        plan = with_compaction(plan, rng)
    return plan


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


def _names_appends(plan: Plan) -> bool:
    """Whether any client gives its appends ids, which a log has to forget when it is truncated."""
    return plan.tenants is not None and any(plan.tenants.are_conditional)
