"""Describes a failure in plain words: the cluster and its clients, the events in order, the violations.

This is for people who look for a bug. The option `--trace` prints the trace, which has more detail.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.models.network import Weather
from tests.sim.plan import Plan, TenantsPlan, Topic
from tests.sim.producer import ProducerHabits
from tests.sim.scenario import Verdict

_LINES_MAX = 120
_LINES_AFTER = 10
_ALIKE_MAX = 3
_VIOLATIONS_MAX = 10
_VIOLATION_CHARACTERS_MAX = 400
_PARTITION = re.compile(r"\b[a-z]+-\d+\b")
_ACKS = {-1: "all", 0: "0", 1: "1"}


def account(plan: Plan, verdict: Verdict) -> Iterator[str]:
    """Lines that describe a failure: the cluster and its clients, the events in order, the violations."""
    yield f"There were {_count(plan.shape.brokers, 'broker')}. Faults happened for {plan.faulty_s:.1f} s."
    yield from _actors(plan)
    yield "This happened, in seconds since the start:"
    for line in relevant_lines(verdict):
        yield f"  {line}"
    yield "This was violated:"
    for violation in verdict.violations[:_VIOLATIONS_MAX]:
        yield f"  {violation.strip().splitlines()[-1][:_VIOLATION_CHARACTERS_MAX]}"
    if len(verdict.violations) > _VIOLATIONS_MAX:
        yield f"  … and {len(verdict.violations) - _VIOLATIONS_MAX} more"


def _actors(plan: Plan) -> Iterator[str]:
    yield from (_topic(topic) for topic in plan.topics)
    yield from (_producer(name, habits) for name, habits in plan.producers.items())
    if plan.consumers:
        yield f"{_listed(list(plan.consumers))} read all topics from their starts."
    for group in plan.groups:
        protocol = "the client rewrite's" if group.is_managed else "Kafka's"
        yield f"Members of the group {group.name} ({protocol} protocol) read {group.topic}, come and go."
    if plan.tenants is not None:
        yield _tenants(plan.tenants)
    if plan.keyed_writers and any(topic.is_keyed for topic in plan.topics):
        writers = _count(plan.keyed_writers, "client")
        yield f"{writers} wrote to keyed-0, under conditions on the versions of its keys."
    if plan.blind_writers:
        more = ", deleted keys, and tried records without keys" if plan.has_tombstones else ""
        yield f"{_count(plan.blind_writers, 'client')} wrote records with keys to compacted-0{more}."
    if plan.payers:
        payers = _count(plan.payers, "application")
        yield f"{payers} wrote payments to {plan.payers_topic}-0, with append ids."
    if plan.transactions is not None:
        ids = _count(plan.transactions.ids, "transactional id")
        timeout = f"with a timeout of {plan.transactions.timeout_ms} ms"
        yield f"Producers of {ids} wrote transactions to {plan.transactions.topic}, {timeout}."
        if plan.transactions.owners:
            owners = _count(plan.transactions.owners, "owner")
            yield f"{owners} contended for {plan.transactions.estate}-0, and wrote to it in transactions."
    if plan.moves_pause_s:
        yield f"About every {plan.moves_pause_s:g} s a replica was to move to another log directory."
    if plan.quotas is not None:
        changes = _listed([f"{change} after {change.at_s:.1f} s" for change in plan.quotas.changes])
        yield f"mw0 and mw1 wrote to metered-0, and mr0 read it, under quotas: {changes}."
    if plan.changes:
        yield f"An administrator made changes: {_listed([change.value for change in plan.changes])}."
    yield from _conditions(plan)


def _topic(topic: Topic) -> str:
    configs = "".join(f", {name}={value}" for name, value in topic.configs)
    size = f"{_count(topic.partitions, 'partition')} with {_count(topic.replicas, 'replica')}"
    return f"Topic {topic.name} had {size}{configs}."


def _producer(name: str, habits: ProducerHabits) -> str:
    kind = "an idempotent producer" if habits.is_idempotent else "a producer"
    pace = f"a round about every {habits.interval_ms} ms, {_count(habits.in_flight_max, 'batch', 'batches')}"
    return f"{name} was {kind} with acks={_ACKS[habits.acks]}: {pace} in flight."


def _tenants(tenants: TenantsPlan) -> str:
    who = _counts(
        (len(tenants.are_conditional), "owner"),
        (tenants.producers, "exclusive producer"),
        (tenants.readers, "single reader"),
    )
    what = f"of many names, {tenants.names_kept} kept" if tenants.names_kept else "for a name"
    names = f", and {_count(tenants.names, 'owner')} {what}" if tenants.names else ""
    others = _counts((tenants.strangers, "stranger"), (tenants.stray_readers, "stray reader"))
    without = f" {_listed(others)} used it without claiming it." if others else ""
    return f"{_listed(who)} contended for {tenants.topic}-0{names}.{without}"


def _counts(*numbers: tuple[int, str]) -> list[str]:
    return [_count(number, what) for number, what in numbers if number]


def _conditions(plan: Plan) -> Iterator[str]:
    if plan.weather != Weather():
        broken = f", and {plan.weather.break_share:.1%} of what was sent broke its connection"
        yield (
            f"The network took up to {plan.weather.delay_ms_max:g} ms, {plan.weather.slow_ms_max:g} ms for "
            f"{plan.weather.slow_share:.0%}{broken if plan.weather.break_share else ''}."
        )
    late = f", and up to {plan.result_ms_max:g} ms more for its result" if plan.result_ms_max else ""
    yield (
        f"ZooKeeper's messages took up to {plan.zookeeper_delay_ms_max:g} ms, "
        f"the brokers' worker threads up to {plan.work_ms_max:g} ms for a job{late}."
    )


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def _count(number: int, what: str, many: str | None = None) -> str:
    return f"{number} {what if number == 1 else many or f'{what}s'}"


def relevant_lines(verdict: Verdict) -> list[str]:
    """The last lines of a failing run's trace, up to shortly after the first violation.

    Lines that name only partitions other than the violation's are left out. If many lines differ only in
    their numbers, the first few are kept."""
    lines = list(verdict.trace)
    named = _PARTITION.search(verdict.violations[0])
    if named:
        lines = [line for line in lines if named[0] in line or not _PARTITION.search(line)]
    lines = list(_without_repetition(lines))
    at = next((number for number, line in enumerate(lines) if "VIOLATION" in line), len(lines))
    return lines[max(0, at - _LINES_MAX) : at + _LINES_AFTER]


def _without_repetition(lines: Sequence[str]) -> Iterator[str]:
    kinds = [re.sub(r"\d+", "0", line.split(maxsplit=1)[-1]) for line in lines]
    told: Counter[str] = Counter()
    totals = Counter(kinds)
    for kind, line in zip(kinds, lines, strict=True):
        told[kind] += 1
        if told[kind] < _ALIKE_MAX or "VIOLATION" in kind or kind.startswith("fault"):
            yield line
        elif told[kind] == _ALIKE_MAX:
            more = totals[kind] - _ALIKE_MAX
            yield f"{line} ({more} more like this)" if more else line
