"""Where programs keep files: downloads, data and logs of servers for development; and where Holdfast itself
is."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "HOLDFAST_CACHE"
"""Environment variable: the directory of downloads, by default holdfast in the user's cache directory."""
STATE_VARIABLE = "HOLDFAST_STATE"
"""Environment variable: the directory of data and logs, by default var in a checkout, otherwise holdfast in
the user's state directory."""

IMPORT_ROOT = Path(__file__).parents[3]
"""The directory from which Holdfast is imported: the checkout, or a directory of installed packages."""


def cache_directory() -> Path:
    """$HOLDFAST_CACHE, or holdfast in $XDG_CACHE_HOME or ~/.cache."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"


def state_directory() -> Path:
    """$HOLDFAST_STATE, or var in a checkout, or holdfast in $XDG_STATE_HOME or ~/.local/state."""
    if given := os.environ.get(STATE_VARIABLE):
        return Path(given)
    if (IMPORT_ROOT / "setup.cfg").exists():
        return IMPORT_ROOT / "var"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "holdfast"


def import_path(root: Path = IMPORT_ROOT) -> str:
    """$PYTHONPATH for a process that must find Holdfast: the import root before what is there already."""
    return os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
