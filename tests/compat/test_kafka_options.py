"""Kafka's own tools have the options with which those of the scripts are compared."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.clients.tools.kafka_options import EVERYWHERE, TOOLS
from tests.compat.kafka_tools import VERSION, class_path

_OPTION = re.compile(r"^ {0,2}--([a-z][a-z0-9.-]*)", re.MULTILINE)
"""An option at the beginning of a line of --help; lines of descriptions are indented."""


@pytest.mark.parametrize("name", TOOLS)
def test_kafkas_tool_has_these_options(name: str) -> None:
    jars = class_path()
    if jars is None or not shutil.which("java"):
        pytest.skip(f"no Kafka {VERSION} tools in ~/.m2 or HOLDFAST_KAFKA_TOOLS, or no Java")
    _, _, command = name.partition(" ")
    arguments = [command, "--help"] if command else ["--help"]
    done = subprocess.run(
        ["java", "-cp", jars, TOOLS[name].main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert set(_OPTION.findall(printed)) - EVERYWHERE == TOOLS[name].options - EVERYWHERE, printed[:3000]
