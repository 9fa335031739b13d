"""Parses times."""

from __future__ import annotations

from datetime import UTC, datetime

import click


def parse_moment(text: str, option: str) -> int:
    """`YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless it says otherwise, as ms since the epoch.

    Raises click.UsageError, in which `option` is what had this text.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss, in UTC unless a zone follows"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_time(text: str, option: str) -> int:
    """The same, or ms since the epoch as a number. Raises click.UsageError."""
    if text.isascii() and text.isdigit():
        return int(text)
    return parse_moment(text, option)
