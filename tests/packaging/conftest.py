"""The wheel, built once, and environments that have it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from tests.cluster import Cluster

HOME = Path(__file__).parents[2]
TIMEOUT_S = 600
NOT_PACKED = (".*", "*.so", "build", "var", "tests", "benchmarks", "__pycache__")
"""What lies in a checkout beside the sources."""


def run(
    command: Sequence[str | Path], directory: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed, without what the tests' own environment adds to the import path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the directory in which its programs are run."""

    home: Path
    directory: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    def __call__(self, program: str, *arguments: str) -> str:
        """What a Python program prints that is run in the directory."""
        return run([self.python, "-c", program, *arguments], self.directory).stdout

    def command(self, *arguments: str) -> str:
        """What `holdfast …` prints."""
        return run([self.home / "bin" / "holdfast", *arguments], self.directory).stdout


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, with its links: building leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("source") / "holdfast"
    shutil.copytree(HOME, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_PACKED))
    return copy


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    place = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, source], place)
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes a virtual environment with what pip installs for the given arguments."""

    def make(*arguments: str | Path) -> Environment:
        home = tmp_path_factory.mktemp("environment")
        run([sys.executable, "-m", "venv", home], home)
        directory = home / "elsewhere"
        directory.mkdir()
        environment = Environment(home, directory)
        pip = [environment.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, *arguments], directory)
        return environment

    return make


@pytest.fixture(scope="session")
def bare(make_environment: Callable[..., Environment], wheel: Path) -> Environment:
    """An environment with the wheel and what it requires, without any extra."""
    return make_environment(wheel)


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker shared by the tests of a module; each test uses its own topics."""
    return cluster_of_module.start()[0]
