"""Prints events as JSON objects, one per line, as Kafka's verifiable clients do."""

from __future__ import annotations

import json
import time

import click


def tell(name: str, **fields: object) -> None:
    """Print an event with its time in ms since the epoch, and flush standard output."""
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    click.echo(json.dumps(event, separators=(",", ":"), ensure_ascii=False))
