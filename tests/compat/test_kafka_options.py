"""Kafka's own tools have the options with which those of the scripts are compared."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.clients.tools.kafka_options import EVERYWHERE, TOOLS
from tests.compat.kafka_tools import done_by_kafka_tool

_OPTION = re.compile(r"^ {0,2}--([a-z][a-z0-9.-]*)", re.MULTILINE)
"""An option at the beginning of a line of --help; lines of descriptions are indented."""


@cache
def printed(call: str) -> str:
    """What a tool prints for its help."""
    done = done_by_kafka_tool(*call.split())
    return done.output + done.errors


@pytest.mark.parametrize("name", TOOLS)
def test_kafkas_tool_has_these_options(name: str) -> None:
    _, _, command = name.partition(" ")
    found = printed(" ".join([TOOLS[name].main_class, *([command] if command else []), "--help"]))
    assert set(_OPTION.findall(found)) - EVERYWHERE == TOOLS[name].options - EVERYWHERE, found[:3000]
