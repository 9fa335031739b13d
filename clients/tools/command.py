"""What the command-line programs share: common options, and errors without a stack trace."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from holdfast_log.clients.errors import (
    ClientError,
    ConfigError,
    ConnectionFailedError,
    RequestTimeoutError,
    UnreachableError,
)
from holdfast_log.clients.references import load_properties
from holdfast_log.clients.settings import SettingError
from holdfast_log.clients.tools.command_names import PROGRAM, as_command
from holdfast_log.protocol.errors import BrokerError

DISTRIBUTION = "holdfast-log"
"""The name under which pip installs this."""
FIRST_CONTACT_MS = 5_000
"""Default of `bootstrap.timeout.ms`: time until the tool reports that no broker answers."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

bootstrap_option = click.option(
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT",
    required=True,
    help="A broker to connect to, or several separated by commas.",
)

old_bootstrap_option = click.option(
    "--bootstrap-server",
    "--broker-list",
    "bootstrap",
    metavar="HOST:PORT",
    required=True,
    help="A broker to connect to, or several separated by commas. --broker-list is its old name.",
)
"""For tools that Kafka has had for longer than `--bootstrap-server`."""


def run(command: click.Command, program: str | None = None) -> None:
    """Run a program, then exit the process with the program's status.

    `program` is its name in messages, by default that of the shell script that starts `command`.

    0 for success, 1 for a failure explained on standard error, 2 for wrong usage, 130 if interrupted by
    Ctrl-C.
    """
    try:
        name = program or (command.name or "").replace("_", "-") + ".sh"
        if program is None:
            _add_version(command, name)
        status = command.main(standalone_mode=False, prog_name=name)
    except click.exceptions.Abort:
        status = 130
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        text = shown.getvalue()
        click.echo(as_command(text) if program == PROGRAM else text, err=True, nl=False)
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Without this Python reports it again on flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    except (ClientError, BrokerError) as error:
        click.echo(f"Error: {explained(error)}", err=True)
        status = 1
    sys.exit(status or 0)


def _add_version(command: click.Command, name: str) -> None:
    """Let the program say its version, as each of Kafka's tools does; those that `holdfast` starts have its
    own --version."""
    if not any(parameter.name == "version" for parameter in command.params):
        click.version_option(installed_version(), prog_name=name)(command)


def installed_version() -> str:
    """The version of the installed distribution, or "unknown" in a checkout that is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
"""For commands that list something: with it they print by `print_json`."""


def explained(error: Exception) -> str:
    """The error's message, and what the user can do about it."""
    if isinstance(error, ConnectionFailedError | RequestTimeoutError | UnreachableError):
        return f"{error}\nCheck that a broker runs there, or name another with --bootstrap-server."
    return str(error)


def properties(
    bootstrap: str, path: str | None, given: tuple[str, ...], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """A client's properties: `defaults`, overridden by the file's, overridden by the pairs `given`."""
    merged: dict[str, Any] = {**defaults, **file_properties(path), **pairs(given)}
    merged["bootstrap.servers"] = bootstrap
    return merged


def file_properties(path: str | None) -> Mapping[str, str]:
    """What a properties file has; nothing without a file. Raises ConfigError."""
    if path is None:
        return {}
    try:
        return load_properties(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except SettingError as error:
        raise ConfigError(str(error)) from None


def pairs(given: tuple[str, ...]) -> dict[str, str]:
    """`key=value` arguments as a mapping. Raises click.UsageError."""
    found = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{item!r} is not of the form key=value")
        found[key.strip()] = value
    return found


def print_json(value: object) -> None:
    """Print `value` as one JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
