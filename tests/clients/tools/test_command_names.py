"""Who has installed Holdfast has no scripts: help and messages then name the commands of `holdfast`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast_log.clients.tools.command import run
from holdfast_log.clients.tools.command_names import COMMAND_OF_SCRIPT, as_command, as_typed
from holdfast_log.command import zookeeper as zookeeper_command
from holdfast_log.command.installed_config import installed
from holdfast_log.command.main import COMMANDS, holdfast

SCRIPTS = Path(__file__).parents[3] / "scripts"


def helps(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of a command and of all below it."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, (*path, name))


@pytest.mark.parametrize(("script", "command"), COMMAND_OF_SCRIPT.items())
def test_a_script_and_its_command_exist(script: str, command: str) -> None:
    assert (SCRIPTS / f"{script}.sh").exists()
    answer = CliRunner().invoke(holdfast, [*command.split(), "--help"])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_no_script_that_it_replaces(name: str) -> None:
    command = holdfast.get_command(click.Context(holdfast), name)  # type: ignore[attr-defined]
    assert command is not None
    for path in helps(command, (name,)):
        text = CliRunner().invoke(holdfast, [*path, "--help"]).output
        assert not {found for found in re.findall(r"([a-z-]+)\.sh\b", text) if found in COMMAND_OF_SCRIPT}


def test_scripts_are_replaced_where_there_is_a_command_and_nothing_else_is() -> None:
    assert as_command("See scripts/topics.sh --list, or consumer-groups.sh.") == (
        "See holdfast topics --list, or holdfast groups."
    )
    untouched = "scripts/simulate.sh, my-topics.sh, /opt/topics.sh, topics.shell"
    assert as_command(untouched) == untouched


def test_a_message_is_for_the_program_that_was_started() -> None:
    @click.command()
    def say() -> None:
        click.echo(as_typed("cluster-stop.sh stops them."))

    assert CliRunner().invoke(say, [], prog_name="holdfast").output == "holdfast cluster stop stops them.\n"
    assert CliRunner().invoke(say, [], prog_name="cluster-start.sh").output == "cluster-stop.sh stops them.\n"
    assert as_typed("topics.sh") == "topics.sh", "outside of a command"


@pytest.mark.parametrize(
    ("program", "said"), [("holdfast", "holdfast topics --list"), (None, "topics.sh --list")]
)
def test_an_error_is_for_the_program_that_was_started(
    program: str | None, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command("fails")
    def fails() -> None:
        raise click.ClickException("nothing is there; topics.sh --list shows all")

    monkeypatch.setattr("sys.argv", ["fails"])
    with pytest.raises(SystemExit) as ended:
        run(fails, program)
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"Error: nothing is there; {said} shows all\n"


@pytest.mark.parametrize("arguments", [("-daemon", "FILE"), ("--daemon", "--config", "FILE")])
def test_servers_take_the_arguments_of_their_scripts(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "zookeeper.properties"
    path.write_text("clientPort=1\n")
    started: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        zookeeper_command, "start", lambda config, overrides, daemon: started.append((config, daemon))
    )

    given = [str(path) if each == "FILE" else each for each in arguments]
    answer = CliRunner().invoke(zookeeper_command.zookeeper, given)

    assert (answer.exit_code, started) == (0, [(path, True)]), answer.output
    twice = CliRunner().invoke(zookeeper_command.zookeeper, [str(path), "--config", str(path)])
    assert twice.exit_code == 2 and "name the properties file once" in twice.output
    started.clear()
    assert CliRunner().invoke(zookeeper_command.zookeeper, []).exit_code == 0
    assert started == [(installed("zookeeper.properties"), False)]
