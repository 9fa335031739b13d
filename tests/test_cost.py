"""What a test costs includes the processor time of what it has started; a file costs what its tests cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cost import Cost, added_up

HOME = Path(__file__).parents[1]
WORKING = """
import subprocess, sys

WORK = "import time\\nwhile time.process_time() < 0.3: pass"

def test_that_works_by_another():
    subprocess.run([sys.executable, "-c", WORK], check=True)

def test_that_does_nothing():
    pass
"""


def test_a_test_costs_what_its_child_processes_use(tmp_path: Path) -> None:
    (tmp_path / "test_working.py").write_text(WORKING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.cost", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(HOME),
            "PYTEST_XDIST_WORKER": "gw7",
            "HOLDFAST_COST": str(tmp_path),
            "HOLDFAST_COST_GROUPS": str(tmp_path / "none"),
        },
        check=True,
        capture_output=True,
    )

    lines = (tmp_path / "gw7.jsonl").read_text().splitlines()
    assert [line.split('"')[1].partition("::")[2] for line in lines[1:3]] == [
        "test_that_works_by_another", "test_that_does_nothing"
    ]  # fmt: skip
    costs = added_up(lines[1:3])
    assert [(name, cost.tests) for name, cost in costs.items()] == [("test_working.py", 2)]
    assert added_up(lines[1:2])["test_working.py"].processor_s > 0.2


def test_the_costliest_file_is_first() -> None:
    lines = ['["a.py::x", 1.0, 2.0]', '["b.py::y", 3.0, 1.0]', '["a.py::z", 0.5, 0.25]']

    assert added_up(lines) == {"b.py": Cost(1, 3.0, 1.0), "a.py": Cost(2, 1.5, 2.25)}
    assert list(added_up(lines)) == ["b.py", "a.py"]
