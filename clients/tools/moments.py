"""Parses times."""

from __future__ import annotations

from datetime import UTC, datetime

import click


def parse_moment(text: str, option: str) -> int:
    """Parse `YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless a zone follows, as ms since the epoch.

    Raises click.UsageError that names `option` and the text.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r} is not of the form YYYY-MM-DDTHH:mm:SS.sss, in UTC unless a zone follows"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_time(text: str, option: str) -> int:
    """Parse a number of ms since the epoch, or the form of `parse_moment`. Raises click.UsageError."""
    if text.isascii() and text.isdigit():
        return int(text)
    return parse_moment(text, option)
