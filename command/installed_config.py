"""What commands share: the properties files that are installed with the program, and an option."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click


def installed(name: str) -> Path:
    """The path of a properties file that is installed with the program: config/NAME of the checkout."""
    return Path(str(files("holdfast_log") / "config" / name))


override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file's. May be repeated.",
)
