"""The parts of a plan by name, and plans without some of them.

Faults are named by their numbers (fault3), clients and topics by their names, and conditions of the whole
cluster by words (weather, slow-workers, slow-zookeeper, last-sequences). Without any part, a plan still has a
cluster with one topic and one consumer, which the judges need, on a good network and without faults.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tests.models.network import Weather
from tests.models.zookeeper import NORMAL_DELAY_MS_MAX
from tests.sim.plan import METERED, Change, Plan, QuotasPlan, TenantsPlan, TransactionsPlan

_FAULT = "fault"
_CALM = Weather()
_FAST_WORK_MS = 5.0


def faults(plan: Plan) -> list[str]:
    """The names of a plan's faults, by time."""
    return [f"{_FAULT}{strike.number}" for strike in plan.strikes]


def surroundings(plan: Plan) -> list[str]:
    """The names of all other parts that can be left out of a plan."""
    return list(_surroundings(plan))


def _surroundings(plan: Plan) -> Iterator[str]:
    yield from (topic.name for topic in plan.topics[1:])
    yield from (group.name for group in plan.groups)
    if plan.tenants is not None:
        yield from (name for name in ("names", "readers", "strangers") if getattr(plan.tenants, name))
        if plan.tenants.stray_readers:
            yield "stray-readers"
        if plan.tenants.has_guards:
            yield "guards"
    yield from (change.name.lower() for change in plan.changes)
    yield from plan.producers
    yield from list(plan.consumers)[1:]
    if plan.payers:
        yield "payers"
    if plan.transactions is not None and plan.transactions.has_offsets:
        yield "offsets"
    if plan.reads_times:
        yield "times"
    if plan.moves_pause_s:
        yield "moves"
    if plan.first_sequence:
        yield "last-sequences"
    if plan.weather != _CALM:
        yield "weather"
    if plan.work_ms_max > _FAST_WORK_MS or plan.result_ms_max:
        yield "slow-workers"
    if plan.zookeeper_delay_ms_max > NORMAL_DELAY_MS_MAX:
        yield "slow-zookeeper"


def without(plan: Plan, names: Collection[str]) -> Plan:
    """The plan without the parts of these names and the parts that depend on them. Raises ValueError if no
    part has one of the names."""
    unknown = sorted({*names} - {*faults(plan), *_surroundings(plan)})
    if unknown:
        raise ValueError(f"the plan has no {', '.join(unknown)}")
    return replace(
        plan,
        topics=tuple(topic for topic in plan.topics if topic.name not in names),
        strikes=tuple(strike for strike in plan.strikes if f"{_FAULT}{strike.number}" not in names),
        producers={name: habits for name, habits in plan.producers.items() if name not in names},
        consumers={name: version for name, version in plan.consumers.items() if name not in names},
        changes=tuple(change for change in plan.changes if not _is_gone(change, names)),
        groups=tuple(group for group in plan.groups if group.name not in names),
        tenants=None if plan.tenants is None else _tenants(plan.tenants, names),
        weather=_CALM if "weather" in names else plan.weather,
        work_ms_max=_FAST_WORK_MS if "slow-workers" in names else plan.work_ms_max,
        payers=0 if "payers" in names else plan.payers,
        transactions=_transactions(plan, names),
        result_ms_max=0.0 if "slow-workers" in names else plan.result_ms_max,
        moves_pause_s=0.0 if "moves" in names else plan.moves_pause_s,
        quotas=None if METERED in names else plan.quotas,
        reads_times=plan.reads_times and "times" not in names,
        first_sequence=0 if "last-sequences" in names else plan.first_sequence,
        zookeeper_delay_ms_max=(
            NORMAL_DELAY_MS_MAX if "slow-zookeeper" in names else plan.zookeeper_delay_ms_max
        ),
    )


def _is_gone(change: Change, names: Collection[str]) -> bool:
    needed = {Change.REMAKE: "remade", Change.TRIM: "trimmed"}
    return change.name.lower() in names or needed.get(change) in names


def _transactions(plan: Plan, names: Collection[str]) -> TransactionsPlan | None:
    kept = plan.transactions
    if kept is None or kept.topic in names:
        return None
    return replace(
        kept,
        has_offsets=kept.has_offsets and "offsets" not in names,
        owners=0 if kept.estate in names else kept.owners,
    )


def _tenants(tenants: TenantsPlan, names: Collection[str]) -> TenantsPlan | None:
    if tenants.topic in names:
        return None
    return replace(
        tenants,
        names=0 if "names" in names else tenants.names,
        readers=0 if "readers" in names else tenants.readers,
        strangers=0 if "strangers" in names else tenants.strangers,
        stray_readers=0 if "stray-readers" in names else tenants.stray_readers,
        has_guards=tenants.has_guards and "guards" not in names,
    )


def between(plan: Plan, from_s: float, until_s: float) -> Plan:
    """The plan with only that part of its faulty phase between `from_s` and `until_s`, in seconds since the
    faulty phase began."""
    return replace(
        plan,
        faulty_s=min(plan.faulty_s, until_s) - from_s,
        strikes=tuple(
            replace(strike, at_s=strike.at_s - from_s)
            for strike in plan.strikes
            if from_s <= strike.at_s < until_s
        ),
        quotas=None if plan.quotas is None else _quotas_between(plan.quotas, from_s, until_s),
    )


def _quotas_between(quotas: QuotasPlan, from_s: float, until_s: float) -> QuotasPlan:
    """The quotas with the changes before `until_s`; those before `from_s` are made at the beginning."""
    changes = tuple(
        replace(change, at_s=max(0.0, change.at_s - from_s))
        for change in quotas.changes
        if change.at_s < until_s
    )
    return replace(quotas, changes=changes)


# Short forms for lists of names


def abbreviated(names: Iterable[str]) -> list[str]:
    """The names, with each run of consecutive faults as one range: fault2-5."""
    numbers = sorted(int(name.removeprefix(_FAULT)) for name in names if re.fullmatch(rf"{_FAULT}\d+", name))
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = [f"{_FAULT}{first}" if first == last else f"{_FAULT}{first}-{last}" for first, last in spans]
    return told + [name for name in names if not re.fullmatch(rf"{_FAULT}\d+", name)]


def in_full(names: Iterable[str]) -> list[str]:
    """The full names for the short forms that `abbreviated` makes."""
    found = []
    for name in names:
        span = re.fullmatch(rf"{_FAULT}(\d+)-(\d+)", name)
        if span is None:
            found.append(name)
        else:
            found += [f"{_FAULT}{number}" for number in range(int(span[1]), int(span[2]) + 1)]
    return found
