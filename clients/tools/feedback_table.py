"""Prints a client's feedback as a table: one name and one number per line."""

from __future__ import annotations

import click

from holdfast_log.clients.feedback.snapshots import AdminFeedback, ConsumerFeedback, ProducerFeedback, counts
from holdfast_log.clients.tools.table import table

print_metrics_option = click.option(
    "--print-metrics", is_flag=True, help="Print the client's metrics at the end."
)


def show_feedback(feedback: ProducerFeedback | ConsumerFeedback | AdminFeedback) -> None:
    """Print all counts of a client."""
    rows = [(name, _shown(value)) for name, value in counts(feedback)]
    rows.sort(key=lambda row: row[0].startswith("connection."))  # The client's own counts come first.
    click.echo()
    click.echo(table(("metric", "value"), rows))


def _shown(value: int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
