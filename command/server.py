"""`holdfast server` and `holdfast server-stop`: a broker in this process, or in the background."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast_log.broker.process.supervisor import PROGRAM
from holdfast_log.broker.tools.server_stop import StopError, stop_broker_of
from holdfast_log.clients.settings import SettingError
from holdfast_log.clients.tools.command import CONTEXT
from holdfast_log.command.installed_config import config_option, daemon_option, override_option
from holdfast_log.coordinator.tools.background import start_in_background, wait_for_start
from holdfast_log.coordinator.tools.directories import import_path, state_directory

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

broker_config = config_option(
    "server.properties", "a broker on 127.0.0.1:9092 with ZooKeeper on 127.0.0.1:2181"
)


@click.command(context_settings=CONTEXT)
@broker_config
@override_option
@daemon_option("broker serves")
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the log file server-ID.log. Default: standard output, and with --daemon $LOG_DIR, or "
    "log in the directory of the user's state.",
)
@click.option(
    "--log-level", type=click.Choice(_LOG_LEVELS), help="The least urgent lines to log. Default: INFO."
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write once the broker serves.",
)
def server(
    config: Path,
    overrides: tuple[str, ...],
    daemon: bool,
    log_dir: Path | None,
    log_level: str | None,
    ready_file: Path | None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    \b
    holdfast server --override log.dirs=/var/lib/holdfast
    holdfast server --daemon server.properties
    """
    given = [str(config)]
    for override in overrides:
        given += ["--override", override]
    if log_level is not None:
        given += ["--log-level", log_level]
    if daemon:
        if ready_file is not None:
            raise click.UsageError("--daemon waits until the broker serves; it takes no --ready-file")
        _start_in_background(given, log_dir or Path(os.environ.get("LOG_DIR") or state_directory() / "log"))
        return
    if log_dir is not None:
        given += ["--log-dir", str(log_dir)]
    if ready_file is not None:
        given += ["--ready-file", str(ready_file)]
    os.environ["PYTHONPATH"] = import_path()
    os.execv(sys.executable, _command(given))


def _command(given: Sequence[str]) -> list[str]:
    """The command line of a broker. -P keeps the caller's directory off the import path."""
    return [sys.executable, "-P", "-m", PROGRAM, *given]


def _start_in_background(given: Sequence[str], log_dir: Path) -> None:
    """Start a broker in a session of its own, and return once it serves. Raises click.ClickException."""
    with tempfile.TemporaryDirectory(prefix="holdfast-start-") as place:
        ready, printed = Path(place, "ready"), Path(place, "printed")
        command = _command([*given, "--ready-file", str(ready), "--log-dir", str(log_dir)])
        broker = start_in_background(command, printed)
        if not wait_for_start(broker, lambda: ready.exists() and ready.stat().st_size > 0):
            raise click.ClickException(_why_it_ended(broker.pid, printed))
        log = _log_path(broker.pid, printed)
    click.echo(f"The broker has started (process {broker.pid}). Its log is {log}")


def _log_path(pid: int, printed: Path) -> str | None:
    """The path of the broker's log, which it prints before anything else once it knows its id."""
    start = f"The log of process {pid} is "
    lines = printed.read_text(errors="replace").splitlines()
    return next((line.removeprefix(start) for line in lines if line.startswith(start)), None)


def _why_it_ended(pid: int, printed: Path) -> str:
    log = _log_path(pid, printed)
    if log is None:
        return f"{_end(printed)}\nthe broker did not start"
    return f"{_end(Path(log).with_suffix('.out'))}\nthe broker did not start; its log is {log}"


def _end(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-3:])
    except OSError as error:
        return f"{path}: {error.strerror}"


@click.command(context_settings=CONTEXT)
@broker_config
@override_option
def server_stop(config: Path, overrides: tuple[str, ...]) -> None:
    """Stop the broker that runs with the properties file --config, and wait for its end."""
    try:
        pid = stop_broker_of(str(config), overrides)
    except (SettingError, StopError, OSError) as error:
        raise click.ClickException(f"cannot stop: {error}") from None
    click.echo(f"Stopped the broker (process {pid})")
