"""Which topics an option means that takes a regular expression."""

from __future__ import annotations

import re

import click


def topic_pattern(text: str, option: str = "--topic") -> re.Pattern[str]:
    """What a topic's whole name has to match. As in Kafka's tools a comma stands for "or".

    Raises click.UsageError, which names the `option`.
    """
    try:
        return re.compile("|".join(name.strip() for name in text.split(",")))
    except re.error as error:
        raise click.UsageError(f"{option} {text!r} is no regular expression: {error}") from None
