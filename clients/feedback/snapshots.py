"""What clients have counted since they were made, as values: taken at a moment, and not changing after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clients.feedback.traffic import BrokerTally, RequestTally, Traffic
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Latency:
    """How long responses took: from when a request was handed over, waiting in the client included, to its
    response. By the client's clock, which counts whole ms."""

    count: int
    mean_ms: float
    max_ms: int


@dataclass(frozen=True, slots=True)
class RequestFeedback:
    """Requests of one kind. The client's greeting of a broker (ApiVersions) is not counted.

    `failures` are requests that got no response; errors that a response tells are not among them. Those with
    neither are under way, or want no response (`acks=0`). `throttled_ms` is what brokers asked for in pauses.
    """

    requests: int
    responses: int
    failures: int
    throttled_ms: int
    latency: Latency


@dataclass(frozen=True, slots=True)
class BrokerFeedback(RequestFeedback):
    """All requests to one address, its connections, and the bytes on them.

    `node` is the broker's id, -1 where none is known. `lost` are connections that stood and broke, `failed`
    such as did not come about, `closed` those that were closed in order.
    """

    address: str
    node: int
    opened: int
    closed: int
    lost: int
    failed: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class ConnectionFeedback:
    """Requests, connections and bytes: all together, by API, and by broker in the order of first contact."""

    total: RequestFeedback
    connections_opened: int
    connections_closed: int
    connections_lost: int
    connections_failed: int
    bytes_in: int
    bytes_out: int
    apis: Mapping[str, RequestFeedback]
    brokers: tuple[BrokerFeedback, ...]


@dataclass(frozen=True, slots=True)
class ProducerFeedback:
    """What has become of what was sent.

    Records `waiting` are queued or under way; all that were ever queued are waiting, acknowledged or failed.
    `refused` are those that never got into a queue, being too large or finding no room. Bytes are those of
    batches, as they are sent once that is so, uncompressed before. `batch_fill` is how full batches were when
    they were first sent, on average: of 1.0; None before the first. `buffer_used_bytes` is of
    `buffer.memory`, and `buffer_wait_ms` how long calls of `send` have waited for it, added up.
    """

    connection: ConnectionFeedback
    records_waiting: int
    records_acknowledged: int
    records_failed: int
    records_refused: int
    bytes_waiting: int
    bytes_acknowledged: int
    bytes_failed: int
    batches_acknowledged: int
    batches_failed: int
    batches_retried: int
    batches_split: int
    batch_fill: float | None
    buffer_used_bytes: int
    buffer_wait_ms: int

    @property
    def records_queued(self) -> int:
        """How many records have ever been queued."""
        return self.records_waiting + self.records_acknowledged + self.records_failed

    @property
    def bytes_queued(self) -> int:
        """Bytes of all batches there ever were."""
        return self.bytes_waiting + self.bytes_acknowledged + self.bytes_failed


@dataclass(frozen=True, slots=True)
class ConsumerFeedback:
    """What has been read.

    `records` have been handed out; `fetches` is the number of responses with data or without, `fetch_errors`
    that of fetches, or partitions in them, that were to be tried again, and `bytes` what batches took in
    them, compressed as they came. `lag` has every partition that is consumed, and how many offsets are
    between it and the end that it may read to; None where that is not known yet. The others are 0 without
    a group: `rebalances` that have ended, the time they took, and commits, automatic ones included, of which
    one that is given up or replaced under way counts as neither success nor failure.
    """

    connection: ConnectionFeedback
    records: int
    bytes: int
    fetches: int
    fetch_errors: int
    buffered_bytes: int
    lag: Mapping[TopicPartition, int | None]
    rebalances: int
    rebalance_ms: int
    commits: int
    commits_failed: int


@dataclass(frozen=True, slots=True)
class AdminFeedback:
    """What an admin client has asked; `retries` are requests that were sent again, the first having failed
    or met a coordinator or controller that was not ready."""

    connection: ConnectionFeedback
    retries: int


def connection_feedback(traffic: Traffic) -> ConnectionFeedback:
    """The counts of a connection."""
    # Copied at once: the thread that counts may be another.
    by_api = list(traffic.apis.items())
    by_broker = list(traffic.brokers.items())
    brokers = tuple(_broker(address, tally) for address, tally in by_broker)
    return ConnectionFeedback(
        total=_requests(_sum([tally for _, tally in by_api])),
        connections_opened=sum(broker.opened for broker in brokers),
        connections_closed=sum(broker.closed for broker in brokers),
        connections_lost=sum(broker.lost for broker in brokers),
        connections_failed=sum(broker.failed for broker in brokers),
        bytes_in=sum(broker.bytes_in for broker in brokers),
        bytes_out=sum(broker.bytes_out for broker in brokers),
        apis={name: _requests(tally) for name, tally in by_api},
        brokers=brokers,
    )


def _sum(tallies: list[RequestTally]) -> RequestTally:
    total = RequestTally()
    for tally in tallies:
        total.requests += tally.requests
        total.responses += tally.responses
        total.failures += tally.failures
        total.throttled_ms += tally.throttled_ms
        total.latency_ms += tally.latency_ms
        total.latency_max_ms = max(total.latency_max_ms, tally.latency_max_ms)
    return total


def _latency(tally: RequestTally) -> Latency:
    count = tally.responses
    return Latency(count, tally.latency_ms / count if count else 0.0, tally.latency_max_ms)


def _requests(tally: RequestTally) -> RequestFeedback:
    return RequestFeedback(
        tally.requests, tally.responses, tally.failures, tally.throttled_ms, _latency(tally)
    )


def _broker(address: str, tally: BrokerTally) -> BrokerFeedback:
    return BrokerFeedback(
        tally.requests,
        tally.responses,
        tally.failures,
        tally.throttled_ms,
        _latency(tally),
        address=address,
        node=tally.node,
        opened=tally.opened,
        closed=tally.closed,
        lost=tally.lost,
        failed=tally.failed,
        bytes_in=tally.bytes_in,
        bytes_out=tally.bytes_out,
    )
