"""The page /metrics: every metric as text for Prometheus, made in turns of the reactor.

Thousands of partitions make a page of megabytes, which takes half a second to write. It is made on the
reactor's thread all the same, because only that thread may read the broker's state, and a few milliseconds of
it in each turn: between two turns every client is served. A second thread would read counts while they
change, and hold up the reactor by Python's lock for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.coordinator.clock import Clock

TURN_S = 0.002
"""Time in seconds after which the page waits for the reactor's next turn."""


@dataclass(slots=True, eq=False)
class _Making:
    """A page that is being made: for whom, what is left of it, and what there is."""

    asked: list[Deferred[bytes]]
    pieces: Iterator[bytes]
    made: list[bytes] = field(default_factory=list)


class MetricsPage:
    """Makes the page of a registry, once for all who ask while it is being made.

    A question that comes during that gets the next page, so that no page is older than its question.
    `prepare` is called before each page; the page waits for its Deferred.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        prepare: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._prepare = prepare
        self._waiting: list[Deferred[bytes]] = []
        self._is_busy = False

    def make(self) -> Deferred[bytes]:
        """The page, as it is from now on."""
        done: Deferred[bytes] = Deferred()
        self._waiting.append(done)
        self._begin()
        return done

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        self._is_busy = True
        asked, self._waiting = self._waiting, []
        making = _Making(asked, page_pieces(self._registry))
        self._prepare().addCallbacks(
            lambda _: self._go_on(making), lambda failure: self._end(making, failure)
        )

    def _go_on(self, making: _Making) -> None:
        """Make the page for one turn, and the rest of it in further turns."""
        ends_s = self._clock.seconds() + TURN_S
        try:
            for piece in making.pieces:
                making.made.append(piece)
                if self._clock.seconds() >= ends_s:
                    self._clock.callLater(0, self._go_on, making)
                    return
        except Exception:
            self._end(making, Failure())
        else:
            self._end(making, b"".join(making.made))

    def _end(self, making: _Making, page: bytes | Failure) -> None:
        self._is_busy = False
        for done in making.asked:
            done.callback(page)  # A Failure makes it fail.
        self._begin()


class _OneFamily:
    """What prometheus-client's encoder takes: a collector with one metric."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> tuple[Metric, ...]:
        return (self._family,)


def page_pieces(registry: CollectorRegistry) -> Iterator[bytes]:
    """The page in pieces of up to some hundred lines. Parts of one metric follow each other."""
    last_name = ""
    for family in registry.collect():
        text = generate_latest(_OneFamily(family))
        if family.name == last_name:
            # The lines # HELP and # TYPE come once for each metric.
            _, _, text = text.split(b"\n", 2)
        last_name = family.name
        yield text
