"""The measurement of what a broker holds, in a small form, and how its figures are made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sizing import Size, SizeStep, cells

HOME = Path(__file__).parents[2]
COUNTS = {"partitions": 40, "connections": 20, "tls-connections": 10, "members": 20, "transactions": 10}


def test_each_row_has_what_one_of_them_takes() -> None:
    before = SizeStep("nothing", 0, Size(1 << 20, 10, 8 << 10, 100, 1000))
    after = SizeStep("a partition", 100, Size((1 << 20) + 100 * 2048, 210, (8 << 10) + 100 * 4096, 300, 5000))

    assert cells(before, None) == ["1,024.0", "10.00", "8.0", "100.00", "1,000"]
    assert cells(after, before) == ["2.0", "2.00", "4.0", "2.00", "40"]


@pytest.mark.timeout(600)
def test_a_broker_is_measured_with_few_of_each() -> None:
    options = [text for name, count in COUNTS.items() for text in (f"--{name}", str(count))]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sizing", *options],
        cwd=HOME, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    steps = {step["what"]: step for step in report["steps"]}
    nothing, partition = steps["nothing"]["size"], steps["an empty partition"]["size"]
    assert partition["znodes"] - nothing["znodes"] >= 2 * COUNTS["partitions"]
    assert partition["disk_bytes"] > nothing["disk_bytes"] and nothing["memory_bytes"] > 0
    written, connected = (
        steps["a record of 1,000 bytes in each partition"]["size"],
        steps["a connection"]["size"],
    )
    assert connected["files"] - written["files"] >= COUNTS["connections"]
    assert steps["an open transaction"]["count"] == COUNTS["transactions"]
    assert report["start"]["full"]["seconds"] > report["start"]["full"]["cpu_s"] * 0.5 > 0
