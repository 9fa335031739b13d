"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(__file__).parents[2]
TIMEOUT_S = 180


def finished(command: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout, with `text` on its standard input, until it ends."""
    return subprocess.run(
        command, cwd=HOME, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def run_module(name: str, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m name` until it ends."""
    return finished([sys.executable, "-m", name, *arguments], text)
