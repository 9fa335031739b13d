"""Runs a script of this repository against a cluster, as a user does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"
_TIMEOUT_S = 180


def run(script: str, bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """How `scripts/<script>.sh` ends, and what it prints."""
    command = [str(SCRIPTS / f"{script}.sh"), "--bootstrap-server", bootstrap, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def rows(script: str, bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
    """What it lists with --json."""
    done = run(script, bootstrap, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
