"""Parsing of options that select topics by a regular expression."""

from __future__ import annotations

import re

import click


def topic_pattern(text: str, option: str = "--topic") -> re.Pattern[str]:
    """The expression that a topic's whole name must match. As in Kafka's tools a comma means "or".

    Raises click.UsageError that names the `option`.
    """
    try:
        return re.compile("|".join(name.strip() for name in text.split(",")))
    except re.error as error:
        raise click.UsageError(f"{option} {text!r} is not a regular expression: {error}") from None
