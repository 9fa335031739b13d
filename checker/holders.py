"""Judges that a resource has at most one confirmed owner at a time.

The server numbers the grants of a resource, and the numbers only rise. A call is compared with another only
if it was asked after the other was answered. These are violations:

1. *Two holders.* An owner is confirmed by a grant, after a client was confirmed by a later grant. A
   confirmation is any answer that says "yours": to a claim, a renewal, a resumption, an owned read, an owned
   or guarded write.
2. *Ended grant.* An owner is confirmed by a grant, after it was answered that it has lost or released it.
3. *One grant, two owners.* Two clients are confirmed by the same grant.
4. *A session cut short.* A claim that takes nothing by force is granted, wholly between the answer to the
   former owner's last confirmation and the end of the session that this confirmation promised. That owner
   must have sent no release since, no call that was answered "lost", and no call whose outcome is unknown
   (its connection may have closed, which ends a session); and no claim that takes by force may be
   unanswered.
5. *Stale claim.* A claim is granted that names a generation, although its client was answered before that a
   later one is in force.
6. *Intruder.* A client that is not the owner reads or writes what only the owner may, wholly between two
   confirmations of one grant on one connection, which its owner never left silent for a session. A read
   counts only at the broker that confirmed: a broker that was replaced does not know the owner, and may still
   serve those who are not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from holdfast_log.checker.calls import ANY_BROKER, NO_CONNECTION, NO_GRANT, Action, Outcome, OwnershipCall
from holdfast_log.checker.order import Sighting, falls

_GRANTED, _CONFIRMED, _ENDED = range(3)
"""The life of one grant. It never runs backwards."""


def holder_violations(calls: Iterable[OwnershipCall]) -> Iterator[str]:
    """Yield each violation of the rules above."""
    by_resource: dict[str, list[OwnershipCall]] = defaultdict(list)
    for call in calls:
        by_resource[call.resource].append(call)
    for resource, about in sorted(by_resource.items()):
        yield from _late_confirmations(about)
        yield from _shared_grants(resource, about)
        yield from _sessions_cut_short(about)
        yield from _stale_claims(about)
        yield from _intruders(about)


def _late_confirmations(calls: Sequence[OwnershipCall]) -> Iterator[str]:
    sightings = []
    for call in calls:
        stage = _stage(call)
        if stage is not None:
            rank = (call.grant, stage)
            sightings.append(Sighting(call.asked_s, call.answered_s, rank, rank, call))
    for earlier, later in falls(sightings):
        assert isinstance(later.call, OwnershipCall)
        if later.call.is_confirmation:
            rule = "ended grant" if earlier.left[0] == later.seen[0] else "two holders"
            yield f"{rule}: {later.call}; but before: {earlier.call}"


def _stage(call: OwnershipCall) -> int | None:
    """The stage of its grant that a call proves; None if it proves none."""
    if call.grant == NO_GRANT or call.outcome is Outcome.UNKNOWN:
        return None
    if call.outcome is Outcome.REFUSED or call.action is Action.RELEASE:
        return _ENDED
    return _GRANTED if call.action is Action.CLAIM else _CONFIRMED


def _shared_grants(resource: str, calls: Sequence[OwnershipCall]) -> Iterator[str]:
    owners: dict[int, set[str]] = defaultdict(set)
    for call in calls:
        if call.is_confirmation:
            owners[call.grant].add(call.client)
    for grant, clients in sorted(owners.items()):
        if len(clients) > 1:
            yield f"one grant, two owners: grant {grant} of {resource} was confirmed to {sorted(clients)}"


def _sessions_cut_short(calls: Sequence[OwnershipCall]) -> Iterator[str]:
    by_grant: dict[int, list[OwnershipCall]] = defaultdict(list)
    for call in calls:
        if call.grant != NO_GRANT:
            by_grant[call.grant].append(call)
    lost_claims = [call for call in calls if call.is_taking and call.outcome is Outcome.UNKNOWN]
    claims = [call for call in calls if call.action is Action.CLAIM and call.outcome is Outcome.DONE]
    claims.sort(key=lambda call: call.grant)
    for former, claim in pairwise(claims):
        if claim.is_taking or claim.client == former.client or former.asked_s > claim.answered_s:
            continue
        before = [call for call in by_grant[former.grant] if call.asked_s <= claim.answered_s]
        last = max(before, key=lambda call: call.asked_s)
        if not (last.is_confirmation and all(call.outcome is Outcome.DONE for call in before)):
            continue
        if any(lost.asked_s < claim.answered_s and last.asked_s < lost.answered_s for lost in lost_claims):
            continue
        if last.answered_s < claim.asked_s and claim.answered_s < last.asked_s + last.session_s:
            yield f"a session cut short: {claim}; but before: {last}, for {last.session_s:g} s"


def _stale_claims(calls: Sequence[OwnershipCall]) -> Iterator[str]:
    for call in calls:
        if call.is_stale and call.outcome is Outcome.DONE:
            yield f"stale claim: {call}"


def _intruders(calls: Sequence[OwnershipCall]) -> Iterator[str]:
    stays = list(_stays(calls))
    for call in calls:
        if call.action is not Action.INTRUDE or call.outcome is not Outcome.DONE:
            continue
        for first, last in stays:
            is_during = first.answered_s < call.asked_s and call.answered_s < last.asked_s
            if is_during and call.broker in (ANY_BROKER, first.broker):
                yield f"intruder: {call}; but the owner was confirmed before and after: {first}; {last}"
                break


def _stays(calls: Sequence[OwnershipCall]) -> Iterator[tuple[OwnershipCall, OwnershipCall]]:
    """Yield the first and the last confirmation of each unbroken stay of an owner on one connection.

    Between these two the owner had the grant all the time: on the same connection, which it never left silent
    for as long as its session. A resumption begins a new stay: the grant was detached before, and nobody may
    have had it for a moment.
    """
    by_connection: dict[tuple[str, int, int], list[OwnershipCall]] = defaultdict(list)
    for call in calls:
        if call.connection != NO_CONNECTION and call.grant != NO_GRANT:
            by_connection[call.client, call.grant, call.connection].append(call)
    for about in by_connection.values():
        first: OwnershipCall | None = None
        last: OwnershipCall | None = None
        for call in sorted(about, key=lambda call: call.asked_s):
            is_next = last is not None and call.answered_s - last.asked_s < last.session_s
            if first is not None and (
                not is_next or call.action is Action.RESUME or not call.is_confirmation
            ):
                if last is not None and last is not first:
                    yield first, last
                first = last = None
            if call.is_confirmation:
                first, last = first or call, call
        if first is not None and last is not None and last is not first:
            yield first, last
