"""The garbage collections that the fan-out benchmark reads from a watched process."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import watched_collections
from benchmarks.fan_out import pauses_between

COLLECTS = "import gc; gc.collect(); gc.collect()"


def test_collections_of_a_watched_process_are_selected_by_time(tmp_path: Path) -> None:
    pauses = tmp_path / "collections"
    began = time.monotonic()
    command = [
        sys.executable,
        "-P",
        str(watched_collections.__file__),
        str(pauses),
        "-m",
        "timeit",
        "-n",
        "1",
    ]
    subprocess.run([*command, "-r", "1", COLLECTS], check=True, capture_output=True)
    ended = time.monotonic()
    assert len(pauses_between(pauses, began, ended)) >= 2
    assert all(pause >= 0 for pause in pauses_between(pauses, began, ended))
    assert pauses_between(pauses, ended, math.inf) == []


def test_a_process_without_collections_has_no_pauses(tmp_path: Path) -> None:
    assert pauses_between(tmp_path / "missing", 0, math.inf) == []
