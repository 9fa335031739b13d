"""The metrics of requests: how many, and how long they take, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from holdfast_log.broker.metrics.row import MetricRow, Sample, counters, summary
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.times import AnsweredRequest, RequestTimes, quantiles, recent

_FETCH_KINDS = ("FetchConsumer", "FetchFollower")
_LABELS = ("request", "quantile")
_OF_THE_LATEST = (
    "Quantiles of the latest 1000 timed requests of each version within ten minutes. Of frequent requests "
    "one in sixteen is timed."
)


def _kinds(dispatcher: Dispatcher) -> dict[str, list[RequestTimes]]:
    """The times by kind of request. Fetch is both kinds of fetches together, as in Kafka."""
    kinds = dispatcher.times()
    fetches = [times for kind in _FETCH_KINDS for times in kinds.get(kind, ())]
    return kinds | {"Fetch": fetches} if fetches else kinds


def _requests(dispatcher: Dispatcher) -> Iterator[Sample]:
    for kind, versions in _kinds(dispatcher).items():
        counts: dict[int, int] = {}
        for times in versions:
            counts[times.version] = counts.get(times.version, 0) + times.count
        for version, count in counts.items():
            yield Sample((kind, str(version)), count)


def _phase(value: Callable[[AnsweredRequest], float], dispatcher: Dispatcher) -> Iterator[Sample]:
    """The quantiles of one phase in ms, and the number of requests."""
    now_s = dispatcher.clock_s()
    for kind, versions in _kinds(dispatcher).items():
        yield from _of_kind(kind, versions, [value(each) for each in recent(versions, now_s)])


def _of_kind(kind: str, versions: Iterable[RequestTimes], values: Iterable[float]) -> Iterator[Sample]:
    for quantile, value in quantiles(values):
        yield Sample((kind, quantile), value)
    yield Sample((kind,), sum(times.count for times in versions), "_count")


def _total(dispatcher: Dispatcher) -> Iterator[Sample]:
    yield from _phase(lambda each: 1000 * each.total_s, dispatcher)
    for kind, versions in _kinds(dispatcher).items():
        yield Sample((kind,), 1000 * sum(times.total_s for times in versions), "_sum")


REQUEST_METRICS: tuple[MetricRow[Dispatcher], ...] = (
    counters(
        "kafka_network_requestmetrics_requests_total",
        "Requests answered, by API and version. Fetch is FetchConsumer and FetchFollower together.",
        ("request", "version"),
        _requests,
    ),
    summary(
        "kafka_network_requestmetrics_totaltimems",
        f"Time from a request's arrival to its response in ms. {_OF_THE_LATEST}",
        _LABELS,
        _total,
    ),
    summary(
        "kafka_network_requestmetrics_requestqueuetimems",
        "Time in ms for which a request waits behind earlier requests of its connection. " + _OF_THE_LATEST,
        _LABELS,
        partial(_phase, lambda each: 1000 * each.queued_s),
    ),
    summary(
        "kafka_network_requestmetrics_localtimems",
        "Time in ms in which the broker handles a request, until it is answered or waits for something. "
        + _OF_THE_LATEST,
        _LABELS,
        partial(_phase, lambda each: 1000 * each.local_s),
    ),
    summary(
        "kafka_network_requestmetrics_remotetimems",
        "Time in ms for which a request waits: for followers, records, a disk, or another broker. "
        + _OF_THE_LATEST,
        _LABELS,
        partial(_phase, lambda each: 1000 * each.remote_s),
    ),
    summary(
        "kafka_network_requestmetrics_throttletimems",
        f"Time in ms for which a quota throttles the client from the response on. {_OF_THE_LATEST}",
        _LABELS,
        partial(_phase, lambda each: float(each.throttle_ms)),
    ),
)
