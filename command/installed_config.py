"""What commands share: the properties files that are installed with the program, and two options."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def installed(name: str) -> Path:
    """The path of a properties file that is installed with the program: config/NAME of the checkout."""
    return Path(str(files("holdfast_log") / "config" / name))


def config_option(name: str, default: str) -> Callable[[F], F]:
    """The option --config: a properties file, by default an installed one, which `default` describes."""
    return click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=lambda: installed(name),
        help=f"Properties file. Default: one that is installed with this program, for {default}.",
    )


override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file's. May be repeated.",
)
