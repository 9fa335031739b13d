"""Counts of requests and connections, by API and by broker.

Only the thread that runs the event loop counts; any thread may read.
"""

from __future__ import annotations

from holdfast_log.clients.feedback.connection_log import ConnectionLog
from holdfast_log.clients.feedback.events import (
    ConnectionFailed,
    ConnectionLost,
    ConnectionOpened,
    Events,
    Throttled,
)


class RequestTally:
    """Requests of one API, or to one broker, and how they ended."""

    __slots__ = ("failures", "latency_max_ms", "latency_ms", "requests", "responses", "throttled_ms")

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.failures = 0
        self.throttled_ms = 0
        self.latency_ms = 0
        self.latency_max_ms = 0

    def answered(self, latency_ms: int) -> None:
        """A response has arrived."""
        self.responses += 1
        self.latency_ms += latency_ms
        if latency_ms > self.latency_max_ms:
            self.latency_max_ms = latency_ms


class BrokerTally(RequestTally):
    """Requests to one address, its connections, and the bytes on them."""

    __slots__ = ("bytes_in", "bytes_out", "closed", "failed", "lost", "node", "opened")

    def __init__(self) -> None:
        super().__init__()
        self.node = -1
        self.opened = 0
        self.closed = 0
        self.lost = 0
        self.failed = 0
        self.bytes_in = 0
        self.bytes_out = 0


class Traffic:
    """The counts of one `Connection`. All connections to one address are counted together, those before a
    reconnect included."""

    def __init__(self, events: Events, log: ConnectionLog) -> None:
        self.apis: dict[str, RequestTally] = {}
        self.brokers: dict[str, BrokerTally] = {}
        self.events = events
        self.log = log

    def meter(self, address: str) -> Meter:
        """A meter for a link to this address."""
        return Meter(self, address, self.brokers.setdefault(address, BrokerTally()))

    def api(self, name: str) -> RequestTally:
        """The counts of one API."""
        tally = self.apis.get(name)
        if tally is None:
            tally = self.apis[name] = RequestTally()
        return tally


class Meter:
    """Counts what happens on one link."""

    __slots__ = ("_address", "_traffic", "tally")

    def __init__(self, traffic: Traffic, address: str, tally: BrokerTally) -> None:
        self.tally = tally
        self._traffic = traffic
        self._address = address

    def opened(self) -> None:
        """A connection was established."""
        self.tally.opened += 1
        self._traffic.log.opened(self._address)
        self._traffic.events.note(ConnectionOpened(self.tally.node, self._address))

    def broke(self, error: Exception, *, had_stood: bool) -> None:
        """The connection broke, or could not be established."""
        node = self.tally.node
        self._traffic.log.failed(self._address, error)
        if had_stood:
            self.tally.lost += 1
            self._traffic.events.note(ConnectionLost(node, self._address, error))
        else:
            self.tally.failed += 1
            self._traffic.events.note(ConnectionFailed(node, self._address, error))

    def requested(self, api: str) -> None:
        """A request was handed over."""
        self.tally.requests += 1
        self._traffic.api(api).requests += 1

    def answered(self, api: str, latency_ms: int) -> None:
        """A response came."""
        self.tally.answered(latency_ms)
        self._traffic.api(api).answered(latency_ms)

    def failed(self, api: str) -> None:
        """A request got no response, or could not be sent."""
        self.tally.failures += 1
        self._traffic.api(api).failures += 1

    def throttled(self, api: str, throttle_ms: int, asked_ms: int) -> None:
        """The broker throttles this client for `throttle_ms`; it has asked for `asked_ms`."""
        self._traffic.log.throttled(self._address, throttle_ms, asked_ms)
        self.tally.throttled_ms += throttle_ms
        self._traffic.api(api).throttled_ms += throttle_ms
        self._traffic.events.note(Throttled(self.tally.node, self._address, api, throttle_ms))
