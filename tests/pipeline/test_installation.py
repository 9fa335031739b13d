"""The data source as users find it: the README's program, run in a directory that is not the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast_log import Admin, Message, NewTopic, Producer

HOME = Path(__file__).parents[2]
RECORDS = 7
TIMEOUT_S = 300
NOT_COPIED = (".*", "build", "var", "tests", "benchmarks", "__pycache__")
"""What a wheel needs nothing of. Python also renames files in __pycache__ while other tests import."""


@pytest.fixture(scope="module")
def program(bootstrap: str) -> str:
    """The README's program for Spark, with a broker and a topic that exist."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic("flights", 2)])
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(RECORDS):
            producer.send(Message("flights", value=f"flight {number}", partition=number % 2)).result()
    section = (HOME / "README.md").read_text().split("## From Spark")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    program = found[1].replace("localhost:9092", bootstrap)
    assert bootstrap in program
    return program


def run(program: str, directory: Path, **environment: str) -> list[str]:
    """The lines that a program prints, run by this Python with no help from the tests' environment."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    }
    script = directory / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout.splitlines()


@pytest.mark.campaign
def test_spark_finds_the_installed_data_source(program: str, tmp_path: Path) -> None:
    assert run(program, tmp_path)[-1] == str(RECORDS)


def test_spark_finds_the_data_source_of_a_wheel(program: str, tmp_path: Path) -> None:
    source = tmp_path / "source"  # Building leaves files beside the source.
    shutil.copytree(HOME, source, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, source]
    # Compiled parts take a while, and tests/packaging builds and runs them.
    subprocess.run(wheel, check=True, timeout=TIMEOUT_S, env={**os.environ, "HOLDFAST_PURE_PYTHON": "1"})
    (built,) = tmp_path.glob("holdfast_log-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(installed)
    program += "from holdfast_log import pipeline\nprint(pipeline.__file__)\n"

    *_, count, module = run(program, tmp_path, PYTHONPATH=str(installed))

    assert (count, module) == (str(RECORDS), str(installed / "holdfast_log" / "pipeline" / "__init__.py"))
