"""The faults that a seed draws.

Each seed draws only some kinds, so that these occur more often and rare combinations of them occur too: a
seed whose only faults are full disks and moved leaders has more of both than a seed with all kinds.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.faults import POWER_LOSS, Kind, Strike
from tests.sim.long_faults import LONG_KINDS
from tests.sim.plan import Plan

_OTHERS_SHARE = 0.3
_LONG_S = 20.0
_FOLLOW_UP_SHARE = 0.35
_FOLLOW_UP_S = 0.05


def draw_strikes(kinds: Sequence[Kind], faulty_s: float, rng: random.Random) -> Iterator[Strike]:
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


def _some(kinds: Sequence[Kind], rng: random.Random, at_least: int) -> tuple[Kind, ...]:
    """About half of the kinds, in their order."""
    while True:
        chosen = tuple(kind for kind in kinds if rng.random() < 0.5)
        if len(chosen) >= min(at_least, len(kinds)):
            return chosen


def with_long_fault(plan: Plan, kind: Kind, rng: random.Random) -> Plan:
    """The plan with another fault, which takes long, and fewer of the others, which would interrupt it."""
    number = 1 + max((strike.number for strike in plan.strikes), default=0)
    strike = Strike(number, kind.name, rng.uniform(0.0, 3.0), rng.uniform(*kind.seconds), rng.random() < 0.5)
    others = [other for other in plan.strikes if rng.random() < _OTHERS_SHARE]
    strikes = sorted((strike, *others), key=lambda each: each.at_s)
    return dataclasses.replace(plan, faulty_s=max(plan.faulty_s, _LONG_S), strikes=tuple(strikes))


def has_long_fault(plan: Plan) -> bool:
    """Whether a fault that takes long has been drawn: another one would interrupt it."""
    names = {kind.name for kind in LONG_KINDS}
    return any(strike.kind in names for strike in plan.strikes)


def with_undisturbed_fault(plan: Plan, kind: Kind, rng: random.Random) -> Plan:
    """The plan with another fault, which waits twice until a session expires. Sessions therefore expire soon,
    and no other fault begins before the end of this one: most of them would change the partition's state, and
    so undo what this one has done."""
    plan = with_long_fault(plan, kind, rng)
    (long,) = (strike for strike in plan.strikes if strike.kind == kind.name)
    strikes = [strike for strike in plan.strikes if strike is long or strike.at_s > long.at_s + long.seconds]
    settings = {**plan.settings, "zookeeper.session.timeout.ms": 3000}
    return dataclasses.replace(
        plan, strikes=tuple(strikes), settings=settings, zookeeper_delay_ms_max=NORMAL_DELAY_MS_MAX
    )


def keeps_two_in_sync(plan: Plan) -> bool:
    """Whether a third broker may lose data at any time, because every partition has two others in sync."""
    return plan.shape.brokers > 2 and not any(
        ("min.insync.replicas", "1") in topic.configs for topic in plan.topics
    )


def with_power_losses(plan: Plan, rng: random.Random) -> Plan:
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
