"""The scripts have the options of Kafka's tools of the same names, but for some that docs/tools.md lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_log.clients.tools import command as command_module
from holdfast_log.clients.tools.topics import topics
from tests.clients.tools.kafka_options import EVERYWHERE, LEFT_OUT, TOOLS, own_options

PAGE = Path(__file__).parents[3] / "docs" / "tools.md"


@pytest.mark.parametrize("name", TOOLS)
def test_a_script_has_the_options_of_kafkas_tool(name: str) -> None:
    tool = TOOLS[name]
    wanted = tool.options - EVERYWHERE
    assert wanted - own_options(tool) == set(LEFT_OUT.get(name, "").split())


def test_the_page_lists_what_is_left_out() -> None:
    section = PAGE.read_text().split("## Options of Kafka's tools that are left out\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)\.sh` \| (.*?) \|", section, re.MULTILINE))
    assert {name: set(re.findall(r"`--([a-z-]+)`", cells)) for name, cells in rows.items()} == {
        name: set(options.split()) for name, options in LEFT_OUT.items()
    }


def test_every_script_says_its_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["topics.sh", "--version"])
    with pytest.raises(SystemExit) as ended:
        command_module.run(topics)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"topics.sh, version {command_module.installed_version()}\n"
    assert CliRunner().invoke(topics, ["--help"]).exit_code == 0
