"""The one rule behind most others: something that only rises is never seen to fall in real time.

The end of a log, the grants of a resource and the versions of a key only rise. A call that was answered has
proved that the number had reached some value; every call that is asked after that answer must see at least
that value. Two calls whose times overlap are not ordered, so neither is compared with the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

Rank = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one call saw: at some moment between `asked_s` and `answered_s` the number was `seen`, and then it
    was `left`, which is higher if the call raised it."""

    asked_s: float
    answered_s: float
    seen: Rank
    left: Rank
    call: object


def falls(sightings: Iterable[Sighting]) -> Iterator[tuple[Sighting, Sighting]]:
    """Yield pairs of sightings, an earlier and a later one: the earlier was answered before the later was
    asked, and had left the number higher than the later saw it. Takes n log n steps for n sightings."""
    answered: list[tuple[float, int, Sighting]] = []
    highest: Sighting | None = None
    for number, sighting in enumerate(sorted(sightings, key=lambda each: each.asked_s)):
        while answered and answered[0][0] < sighting.asked_s:
            _, _, earlier = heappop(answered)
            if highest is None or earlier.left > highest.left:
                highest = earlier
        if highest is not None and sighting.seen < highest.left:
            yield highest, sighting
        heappush(answered, (sighting.answered_s, number, sighting))
