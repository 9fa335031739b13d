"""How long requests take: what is kept of them, and what is made of it when somebody asks.

Every request is counted. The first ones of an API and version are all timed, and then one in `TIMED_ONE_IN`:
a usual produce request takes 20 µs, and timing it would add one. So those between are counted down, without a
call (`RequestTimes.untimed`). Everything else (quantiles, the sums of versions) is computed on demand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LATEST_MAX = 1000
"""Number of the latest timed requests of an API and version whose times are kept."""

ALL_TIMED = 100
"""So many requests of an API and version are timed one by one: of rare ones, each."""

TIMED_ONE_IN = 16

MAX_AGE_S = 600.0
"""Age in seconds from which on a request no longer counts in quantiles."""

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Those that Kafka has, as the JMX exporter's rules write them."""


class AnsweredRequest(NamedTuple):
    """The times of one request, in seconds by the broker's clock.

    `queued_s`: it waited in its connection for so long. `began_s`, `ended_s`: when its handling began, and
    when it was answered. `parked_s`: when the handler had returned without an answer, because the request
    waits for something; 0 if it was answered at once. `throttle_ms`: for how long its client is throttled.
    """

    queued_s: float
    began_s: float
    parked_s: float
    ended_s: float
    throttle_ms: int

    @property
    def total_s(self) -> float:
        return self.queued_s + self.ended_s - self.began_s

    @property
    def local_s(self) -> float:
        return (self.parked_s or self.ended_s) - self.began_s

    @property
    def remote_s(self) -> float:
        return self.ended_s - self.parked_s if self.parked_s else 0.0


class RequestTimes:
    """The requests of one kind (an API; Fetch has two kinds) and version that were answered."""

    __slots__ = ("_next", "kind", "latest", "total_s", "untimed", "version")

    def __init__(self, kind: str, version: int) -> None:
        self.kind = kind
        self.version = version
        self.untimed = 0
        """Number of requests before the next one that is timed. Each of these takes one off; the next one is
        given to `add`."""
        self.total_s = 0.0
        """Times of all requests together, those that were not timed taken to be as long as the timed ones."""
        self.latest: deque[tuple[float, float, float, float, int]] = deque(maxlen=LATEST_MAX)
        """The latest requests: the fields of `AnsweredRequest`."""
        self._next = 1  # How many requests there are once the next one has been timed.

    @property
    def count(self) -> int:
        """Number of answered requests."""
        return self._next - 1 - self.untimed

    def add(self, queued_s: float, began_s: float, parked_s: float, ended_s: float, throttle_ms: int) -> None:
        """Count a request that is timed, and keep its times: see `AnsweredRequest`."""
        weight = 1 if self._next <= ALL_TIMED else TIMED_ONE_IN
        self.total_s += weight * (ended_s - began_s + queued_s)
        self.latest.append((queued_s, began_s, parked_s, ended_s, throttle_ms))
        interval = 1 if self._next < ALL_TIMED else TIMED_ONE_IN
        self._next += interval
        self.untimed = interval - 1


def recent(times: Iterable[RequestTimes], now_s: float) -> list[AnsweredRequest]:
    """The latest requests of several versions that are not too old."""
    since_s = now_s - MAX_AGE_S
    return [AnsweredRequest(*each) for one in times for each in one.latest if each[3] >= since_s]


def quantiles(values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """The quantiles of `values`; none if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return
    for name in QUANTILES:
        # The value that this share of all values does not exceed.
        rank = min(len(ordered) - 1, int(float(name) * len(ordered)))
        yield name, ordered[rank]
