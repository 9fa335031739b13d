"""The examples of docs/testing.md pass, in a project of their own whose pytest has loaded the plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import Cluster

HOME = Path(__file__).parents[2]
GUIDE = (HOME / "docs/testing.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
UNIT = [block for block in BLOCKS if "FakeCluster" in block]
(REAL,) = [block for block in BLOCKS if "holdfast_topic" in block]
(SHARED,) = [block for block in BLOCKS if "HOLDFAST_BOOTSTRAP" in block]
(INI,) = re.findall(r"```ini\n(.*?)```", GUIDE, re.DOTALL)
FAILING = """
def test_that_fails(holdfast_create_topic):
    holdfast_create_topic()
    assert not "so"
"""
LOOKS_AT_SETTINGS = """
def test_settings(holdfast_brokers, holdfast_properties):
    print(holdfast_brokers, holdfast_properties)
"""
TIMEOUT_S = 300

PytestRun = Callable[..., tuple[int, str]]


@pytest.fixture
def run_pytest(tmp_path: Path) -> PytestRun:
    """Runs pytest with the plugin, and no other, on files in an empty directory."""

    def run(files: dict[str, str], *arguments: str, **environment: str) -> tuple[int, str]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        plugins = ("-p", "holdfast_log.testing.plugin", "-p", "no:cacheprovider")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *arguments],
            cwd=tmp_path,
            env={
                **inherited,
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(HOME),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("example", UNIT)
def test_an_example_without_a_broker(example: str) -> None:
    names: dict[str, Callable[[], None]] = {}
    exec(example, names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    for test in tests:
        test()
    assert tests


def test_the_examples_with_real_brokers_and_what_is_shown_of_a_failure(run_pytest: PytestRun) -> None:
    status, said = run_pytest({"test_examples.py": REAL, "test_failing.py": FAILING})

    assert "2 passed" in said and "1 failed" in said and status == 1, said
    _, _, shown = said.partition("log of Holdfast broker 1")
    assert "test_that_fails-" in shown, said


def test_the_example_that_shares_a_cluster_starts_none(run_pytest: PytestRun, cluster: Cluster) -> None:
    (broker,) = cluster.start()

    status, said = run_pytest(
        {"conftest.py": SHARED, "test_examples.py": REAL},
        "--setup-show",
        HOLDFAST_BOOTSTRAP=broker.address,
    )

    assert status == 0 and "holdfast_cluster" not in said, said


def test_the_ini_options_of_the_example(run_pytest: PytestRun) -> None:
    status, said = run_pytest({"pytest.ini": INI, "test_settings.py": LOOKS_AT_SETTINGS}, "-s")

    assert status == 0, said
    assert "3 {'min.insync.replicas': '2', 'default.replication.factor': '3'}" in said


@pytest.mark.parametrize(
    ("ini", "complaint"),
    [
        ("holdfast_brokers = none", "holdfast_brokers=none: it must be a number from 1"),
        ("holdfast_properties = a", "holdfast_properties: 'a' is not key=value"),
    ],
)
def test_an_ini_option_that_is_wrong_is_reported(run_pytest: PytestRun, ini: str, complaint: str) -> None:
    status, said = run_pytest({"pytest.ini": f"[pytest]\n{ini}\n", "test_settings.py": LOOKS_AT_SETTINGS})

    assert status != 0 and complaint in said, said


def test_a_cluster_that_does_not_start_fails_the_test_with_the_reason(run_pytest: PytestRun) -> None:
    ini = "[pytest]\nholdfast_properties = log.retention.hours=soon\n"

    status, said = run_pytest({"pytest.ini": ini, "test_examples.py": REAL}, "-x")

    assert status == 1 and "the fixture holdfast_cluster did not start" in said, said
    assert "log.retention.hours" in said
