"""Where the command keeps files: the properties files that it brings, and the state of what it starts."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import click

STATE_VARIABLE = "HOLDFAST_STATE"
"""Environment variable: the directory of data and logs; by default holdfast in the user's state directory."""


def brought(name: str) -> Path:
    """The path of a properties file that is installed with the program: config/NAME of the checkout."""
    return Path(str(files("holdfast_log") / "config" / name))


def state_directory() -> Path:
    """$HOLDFAST_STATE, or holdfast in $XDG_STATE_HOME or ~/.local/state."""
    if given := os.environ.get(STATE_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "holdfast"


def import_root() -> str:
    """The directory from which Holdfast is imported, for processes that get an import path."""
    return str(Path(str(files("holdfast_log"))).parent)


override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that overrides the file's. May be repeated.",
)
