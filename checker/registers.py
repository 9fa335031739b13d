"""Judges that the key-value register is linearizable, key by key.

Deciding that for arbitrary registers takes exponential time. Here the log has put all puts of a key in one
order, and a version is an offset of that log, so every call has a place in the order: a put at its version, a
get right after the put whose version it saw. The history is linearizable exactly if

1. *Out of order.* no call has a lower place than a call that was answered before it was asked,
2. *Lost update.* each put found the version that it expected: that of the put before it,
3. *Invented.* each get saw the version of a put, or none.

A put without an answer counts as carried out if the log has its value at the end, at any time after it was
asked; otherwise it never happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from holdfast_log.checker.calls import ABSENT, CallHistory, KeyCall, Outcome
from holdfast_log.checker.order import Sighting, falls

_PUT, _GET = range(2)


def register_violations(history: CallHistory) -> Iterator[str]:
    """Yield each violation of the rules above, in the partitions whose stored records the history has."""
    stored = {(log.topic, log.partition) for log in history.stored}
    offsets = {
        (log.topic, log.partition, value): offset for log in history.stored for offset, value in log.records
    }
    by_key: dict[tuple[str, int, str], list[KeyCall]] = defaultdict(list)
    for call in history.keys:
        if (call.topic, call.partition) not in stored:
            continue
        if call.outcome is Outcome.UNKNOWN and call.is_put:
            version = offsets.get((call.topic, call.partition, call.value), ABSENT)
            call = replace(call, version=version, answered_s=inf)
            if version == ABSENT:
                continue
        elif call.outcome is not Outcome.DONE:
            continue
        by_key[call.topic, call.partition, call.key].append(call)
    for _, calls in sorted(by_key.items()):
        yield from _about_key(calls)


def _about_key(calls: Sequence[KeyCall]) -> Iterator[str]:
    puts = sorted((call for call in calls if call.is_put), key=lambda call: call.version)
    before = ABSENT
    for put in puts:
        if put.expected_version != before:
            yield f"lost update: {put}, expected version {put.expected_version}, but found {before}"
        before = put.version
    versions = {ABSENT, *(put.version for put in puts)}
    sightings = []
    for call in calls:
        if call.version not in versions:
            yield f"invented: {call}, but no put made that version"
        rank = (call.version, _PUT if call.is_put else _GET)
        sightings.append(Sighting(call.asked_s, call.answered_s, rank, rank, call))
    for earlier, later in falls(sightings):
        yield f"out of order: {later.call}; but before: {earlier.call}"
