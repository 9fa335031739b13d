"""What commands share: the properties files that are installed with the program, and options of servers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import click

F = TypeVar("F", bound=Callable[..., Any])
_A_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def installed(name: str) -> Path:
    """The path of a properties file that is installed with the program: config/NAME of the checkout."""
    return Path(str(files("holdfast_log") / "config" / name))


def config_option(name: str, default: str) -> Callable[[F], F]:
    """The properties file of a server, as --config or, as the scripts have it, as the only argument; by
    default an installed one, which `default` describes."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def with_file(*, config: Path | None, file: Path | None, **others: Any) -> Any:
            if config is not None and file is not None:
                raise click.UsageError("name the properties file once: as the argument or with --config")
            return function(config=config or file or installed(name), **others)

        option = click.option(
            "--config",
            type=_A_FILE,
            help=f"Properties file, like FILE. Default: an installed one, for {default}.",
        )
        return cast(F, option(click.argument("file", type=_A_FILE, required=False)(with_file)))

    return decorated


def daemon_option(until: str) -> Callable[[F], F]:
    """The option --daemon, or -daemon as the scripts have it."""
    return click.option(
        "--daemon", "-daemon", is_flag=True, help=f"Run in the background; return once the {until}."
    )


override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file's. May be repeated.",
)
