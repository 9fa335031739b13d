"""Regular expressions for topic names on the command line."""

from __future__ import annotations

import click
import pytest

from holdfast_log.clients.tools.topic_pattern import topic_pattern


@pytest.mark.parametrize(
    ("text", "meant", "not_meant"),
    [
        ("orders", ["orders"], ["orders-2", "my-orders"]),
        ("orders.*", ["orders", "orders-2"], ["my-orders"]),
        ("orders, prices-[0-9]", ["orders", "prices-7"], ["prices", "orders,prices-7"]),
    ],
)
def test_a_pattern_matches_whole_names(text: str, meant: list[str], not_meant: list[str]) -> None:
    pattern = topic_pattern(text)
    assert [name for name in meant + not_meant if pattern.fullmatch(name)] == meant


def test_an_invalid_pattern_is_a_usage_error() -> None:
    with pytest.raises(click.UsageError, match=r"--include '\(' is not a regular expression: missing \)"):
        topic_pattern("(", "--include")
