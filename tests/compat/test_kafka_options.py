"""Kafka's own tools have the options with which those of the scripts are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.clients.tools.kafka_options import EVERYWHERE, TOOLS
from tests.compat.kafka_tools import run_kafka_tool

_DRIVER = Path(__file__).parent / "drivers" / "ToolHelps.java"
_OPTION = re.compile(r"^ {0,2}--([a-z][a-z0-9.-]*)", re.MULTILINE)
"""An option at the beginning of a line of --help; lines of descriptions are indented."""


def call_of(name: str) -> str:
    """The class of a tool, and what makes it print its options."""
    _, _, command = name.partition(" ")
    return " ".join([TOOLS[name].main_class, *([command] if command else []), "--help"])


@pytest.fixture(scope="module")
def printed() -> Mapping[str, str]:
    """What each tool prints. One process runs them all, because its start takes most of the time, or several,
    because some tools end it."""
    left, found = [call_of(name) for name in TOOLS], dict[str, str]()
    while left:
        told = run_kafka_tool(str(_DRIVER), *left)
        parts = [part.partition("\n") for part in f"\n{told}".split("\n=== ")[1:]]
        assert parts, told[:3000]
        found |= {call: text for call, _, text in parts}
        left = [call for call in left if call not in found]
    return found


@pytest.mark.parametrize("name", TOOLS)
def test_kafkas_tool_has_these_options(name: str, printed: Mapping[str, str]) -> None:
    found = printed[call_of(name)]
    assert set(_OPTION.findall(found)) - EVERYWHERE == TOOLS[name].options - EVERYWHERE, found[:3000]
