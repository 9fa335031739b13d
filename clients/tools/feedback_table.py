"""Prints a client's feedback as a table: one name and one number per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import click

from clients.feedback.snapshots import AdminFeedback, BrokerFeedback, ConsumerFeedback, ProducerFeedback
from clients.tools.table import table

print_metrics_option = click.option(
    "--print-metrics", is_flag=True, help="Print the client's metrics at the end."
)


def show_feedback(feedback: ProducerFeedback | ConsumerFeedback | AdminFeedback) -> None:
    """Print all counts of a client."""
    rows = [(name, _shown(value)) for name, value in counts(feedback)]
    rows.sort(key=lambda row: row[0].startswith("connection."))  # The client's own counts come first.
    click.echo()
    click.echo(table(("metric", "value"), rows))


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


def _shown(value: int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
