"""OpenTelemetry: the counts of clients as instruments, and trace context in the headers of records.

    observe_clients({"orders": producer.feedback})
    producer.send(with_trace_context(Message("orders", value=b"1")))
    ...
    with tracer.start_as_current_span("handle", context=trace_context(record.headers)): ...

Needs the package `opentelemetry-api` (the extra `otel`). The application configures what is exported, and in
which format trace context is written; W3C's `traceparent` is OpenTelemetry's default.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from opentelemetry import metrics, propagate
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.propagators.textmap import Getter, Setter

from holdfast_log.clients.feedback.snapshots import BrokerFeedback
from holdfast_log.clients.message import Message
from holdfast_log.protocol.record_codec import Headers
from holdfast_log.protocol.topic_partition import TopicPartition

_PREFIX = "holdfast."


def observe_clients(clients: Mapping[str, Callable[[], Any]], meter: Meter | None = None) -> None:
    """Make an observable gauge for every count of `feedback()`, with the attribute `client`.

    `clients` maps that attribute's value to the method `feedback` of a client. Counts of an API have the
    attribute `api` too, those of a broker `broker`: its id, or its address while the id is unknown. The lag
    of a consumer has `topic` and `partition`. The methods are called by the thread that collects, once for
    each instrument: those of producers, consumers and admin clients allow it. Without `meter`, the global
    provider's is used.
    """
    meter = metrics.get_meter("holdfast_log") if meter is None else meter
    owners: dict[str, dict[str, Callable[[], Any]]] = {}
    for client, feedback in clients.items():
        for name in dict.fromkeys(_names(type(feedback()), "")):
            owners.setdefault(name, {})[client] = feedback
    for name, having in owners.items():
        meter.create_observable_gauge(_PREFIX + name, [_callback(name, having)])


def with_trace_context(message: Message, context: Context | None = None) -> Message:
    """The message with the trace context in its headers: of `context`, or else the current one.

    Headers of an earlier context with the same names are replaced.
    """
    added: dict[str, str] = {}
    propagate.inject(added, context=context, setter=_INTO_HEADERS)
    kept = tuple(header for header in message.headers if header[0] not in added)
    return dataclasses.replace(
        message, headers=kept + tuple((name, value.encode()) for name, value in added.items())
    )


def trace_context(headers: Headers, context: Context | None = None) -> Context:
    """The context that a record's headers name; `context`, or else the current one, if they name none."""
    return propagate.extract(headers, context=context, getter=_FROM_HEADERS)


class _IntoHeaders(Setter[dict[str, str]]):
    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        carrier[key] = value


class _FromHeaders(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [
            value.decode(errors="replace") for name, value in carrier if name == key and value is not None
        ]
        return found[-1:] or None  # As in Kafka's Java clients, the last header of a name counts.

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_INTO_HEADERS = _IntoHeaders()
_FROM_HEADERS = _FromHeaders()


def _callback(
    name: str, clients: Mapping[str, Callable[[], Any]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for client, feedback in clients.items():
            for found, attributes, value in _counts(feedback(), "", {"client": client}):
                if found == name and value is not None:
                    yield Observation(value, attributes)

    return observe


def _names(kind: Any, prefix: str) -> Iterator[str]:
    """The names of the counts in feedback of this type, those of APIs and brokers yet unknown included."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            if not (kind is BrokerFeedback and field.name in ("node", "address")):
                yield from _names(hints[field.name], f"{prefix}.{field.name}".lstrip("."))
        return
    inner = [each for each in typing.get_args(kind) if dataclasses.is_dataclass(each)]
    if not inner:
        yield prefix
    for each in inner:
        yield from _names(each, prefix)


def _counts(
    feedback: Any, name: str, attributes: dict[str, str]
) -> Iterator[tuple[str, dict[str, str], int | float | None]]:
    if isinstance(feedback, Mapping):
        for key, value in feedback.items():
            if isinstance(key, TopicPartition):
                told = {"topic": key.topic, "partition": str(key.partition)}
            else:
                told = {"api": str(key)}
            yield from _counts(value, name, attributes | told)
    elif isinstance(feedback, tuple):
        for value in feedback:
            broker = value.address if value.node < 0 else str(value.node)
            yield from _counts(value, name, attributes | {"broker": broker})
    elif dataclasses.is_dataclass(feedback):
        for field in dataclasses.fields(feedback):
            if not (isinstance(feedback, BrokerFeedback) and field.name in ("node", "address")):
                yield from _counts(
                    getattr(feedback, field.name), f"{name}.{field.name}".lstrip("."), attributes
                )
    else:
        yield name, attributes, feedback
