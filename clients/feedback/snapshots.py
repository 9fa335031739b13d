"""The counts of clients since they were made, as immutable values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast_log.clients.feedback.traffic import BrokerTally, RequestTally, Traffic
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Latency:
    """Response times in whole ms, by the client's clock: from handing over the request to its response, so
    that waiting in the client is included."""

    count: int
    mean_ms: float
    max_ms: int


@dataclass(frozen=True, slots=True)
class RequestFeedback:
    """Requests of one API. The handshake with a broker (ApiVersions) is not counted.

    `failures` are requests that got no response; a response with an error is a response. Requests with
    neither are under way, or expect no response (`acks=0`). `throttled_ms` is the sum of the brokers'
    throttle times.
    """

    requests: int
    responses: int
    failures: int
    throttled_ms: int
    latency: Latency


@dataclass(frozen=True, slots=True)
class BrokerFeedback(RequestFeedback):
    """All requests to one address, its connections, and the bytes on them.

    `node` is the broker's id, -1 if it is unknown. `lost` are connections that broke, `failed` those that
    could not be established, `closed` those that the client closed.
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
    """Requests, connections and bytes: in total, by API, and by broker in the order of first contact."""

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
    """The counts of a producer.

    `waiting` records are queued or under way; every record that was ever queued is waiting, acknowledged or
    failed. `refused` records were not queued, because they were too large or there was no room. Bytes are
    those of batches: as sent, or before compression if not sent yet. `batch_fill` is the mean fill of batches
    when they were first sent, 1.0 for full; None before the first. `buffer_used_bytes` is of `buffer.memory`;
    `buffer_wait_ms` is the sum of the times for which `send` has waited for it.
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
        """Bytes of all batches that were ever made."""
        return self.bytes_waiting + self.bytes_acknowledged + self.bytes_failed


@dataclass(frozen=True, slots=True)
class ConsumerFeedback:
    """The counts of a consumer.

    `records` were returned to the application. `fetches` counts responses, with data or without;
    `fetch_errors` counts fetches, and partitions in them, that had to be tried again; `bytes` is the size of
    the fetched batches, as compressed. `lag` has, for each consumed partition, how many offsets are left to
    the high watermark; None while that is unknown. The other counts are 0 without a group: `rebalances` that
    have ended, the time they took, and commits, automatic ones included. A commit that is abandoned or
    replaced under way counts neither as a success nor as a failure.

    `records_skipped` and `records_dead_lettered` could not be deserialized. A record that is fetched again,
    after a `seek` or by a new owner, counts again. `batches_skipped` were damaged (`on.corrupt.batch`).
    """

    connection: ConnectionFeedback
    records: int
    records_skipped: int
    records_dead_lettered: int
    batches_skipped: int
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
    """The counts of an admin client. `retries` are requests that were sent again, because the first failed or
    the coordinator or controller was not ready."""

    connection: ConnectionFeedback
    retries: int


def connection_feedback(traffic: Traffic) -> ConnectionFeedback:
    """The counts of a connection."""
    # Copied first: another thread may be counting.
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


def counts(feedback: Any, name: str = "") -> Iterator[tuple[str, int | float | None]]:
    """Name and value of every count in feedback. A dotted name begins with its group: the name of an
    API, the id or the address of a broker."""
    if isinstance(feedback, Mapping):
        for key, value in feedback.items():
            yield from counts(value, f"{name}.{key}")
    elif isinstance(feedback, tuple):
        for broker in feedback:
            yield from counts(broker, f"{name}.{broker.address if broker.node < 0 else broker.node}")
    elif hasattr(feedback, "__dataclass_fields__"):
        for field in fields(feedback):
            if isinstance(feedback, BrokerFeedback) and field.name in ("node", "address"):
                continue
            yield from counts(getattr(feedback, field.name), f"{name}.{field.name}".lstrip("."))
    else:
        yield name, feedback
