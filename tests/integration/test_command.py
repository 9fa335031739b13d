"""The program `holdfast`: its commands, from a directory that is not the checkout, as a user types them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.command import main
from holdfast_log.command.main import COMMANDS
from holdfast_log.coordinator.tools.zookeeper_process import free_port

TIMEOUT_S = 300


class Shell:
    """Runs `holdfast …` in a directory of its own, with the user's state below it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "HOLDFAST_STATE": str(directory / "state")}

    def __call__(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast_log.command.main", *arguments],
            cwd=self.directory,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def done(self, *arguments: str, text: str | None = None) -> str:
        """What a command prints that must succeed."""
        answer = self(*arguments, text=text)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Shell]:
    yield Shell(tmp_path)


def test_every_command_explains_itself(holdfast: Shell) -> None:
    overview = holdfast.done("--help")
    for name in COMMANDS:
        assert f"  {name} " in overview


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_can_be_imported_and_has_a_usage(name: str) -> None:
    answer = CliRunner().invoke(main.holdfast, [name, "--help"])

    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(f"Usage: holdfast {name}")


def test_a_missing_package_is_named_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "find_spec", lambda package: None)

    answer = CliRunner().invoke(main.holdfast, ["cluster", "start"])

    assert answer.exit_code == 1
    assert "needs twisted and kazoo, which" in answer.output and "holdfast-log[server]" in answer.output


def test_data_can_be_moved_by_commands(holdfast: Shell, broker: BackgroundBroker) -> None:
    where = ("--bootstrap-server", broker.address)
    holdfast.done("topics", *where, "--create", "--topic", "typed", "--partitions", "1")
    holdfast.done("produce", *where, "--topic", "typed", text="one\ntwo\n")

    read = holdfast.done("consume", *where, "--topic", "typed", "--from-beginning", "--max-messages", "2")

    assert read.splitlines() == ["one", "two"]


def test_servers_run_from_the_properties_that_are_installed(holdfast: Shell) -> None:
    """In the background, with nothing but ports given: the data are in the directory of the user's state."""
    port, zookeeper_port = free_port(), free_port()
    broker = (
        "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "--override", f"zookeeper.connect=127.0.0.1:{zookeeper_port}",
    )  # fmt: skip
    state = holdfast.directory / "state"
    started = holdfast.done("zookeeper", "--daemon", "--override", f"clientPort={zookeeper_port}")
    assert started.startswith("ZooKeeper started")
    try:
        said = holdfast.done("server", "--daemon", *broker)
        try:
            assert said.startswith("The broker has started")
            assert str(state / "log") in said
            assert (state / "data" / "meta.properties").exists() and (
                state / "zookeeper" / "version-2"
            ).exists()
            assert [stat.S_IMODE((state / name).stat().st_mode) for name in ("data", "zookeeper", "log")] == [
                0o700
            ] * 3
            assert holdfast.done("topics", "--bootstrap-server", f"127.0.0.1:{port}", "--list") == ""
        finally:
            assert holdfast.done("server-stop", *broker).startswith("Stopped the broker")
    finally:
        assert holdfast.done("zookeeper-stop").startswith("Stopped ZooKeeper")


def test_the_quickstart_counts_what_it_moves(holdfast: Shell) -> None:
    said = holdfast.done("quickstart")

    written = next(line for line in said.splitlines() if line.startswith("Written:")).split()[1]
    assert f"Read:    {written} lines" in said and int(written.replace(",", "")) > 10_000
    assert "a second one got PolicyViolationError" in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(holdfast: Shell, shell: str) -> None:
    assert "_HOLDFAST_COMPLETE" in holdfast.done("completion", shell)


def test_bash_completes_commands_and_options(holdfast: Shell) -> None:
    holdfast.environment |= {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast top",
        "COMP_CWORD": "1",
    }
    assert "plain,topics" in holdfast("completion").stdout
