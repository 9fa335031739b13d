"""The wheel, built once, and environments that have it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE
from tests.cluster import Cluster
from tests.once import made_once

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


def build_wheel(source: Path, place: Path, *options: str, **environment: str) -> Path:
    """Build the wheel into a directory, from a checkout or a source distribution: with compiled parts also
    where the tests run in Python alone, if the environment does not say otherwise."""
    environment = {PURE_PYTHON_VARIABLE: "", **environment}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *options]
    run([*pip, "--wheel-dir", place, source], place.parent, **environment)
    (built,) = place.glob("*.whl")
    return built


def make_environment(home: Path) -> Environment:
    """A virtual environment without any package."""
    run([sys.executable, "-m", "venv", "--without-pip", home], home)
    directory = home / "elsewhere"
    directory.mkdir()
    return Environment(home, directory)


def pip_install(environment: Environment, *arguments: str | Path, **variables: str) -> None:
    """Run the tests' own pip for the environment. Python compiles modules when they are first imported."""
    pip = [sys.executable, "-m", "pip", "--python", environment.python, "install", "--quiet", "--no-compile"]
    run([*pip, *arguments], environment.directory, **variables)


def requirements(wheel: Path, *extras: str) -> list[str]:
    """What the wheel requires here, with these extras."""
    (name,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(zipfile.ZipFile(wheel).read(name))
    parsed = map(Requirement, metadata.get_all("Requires-Dist", []))
    return [str(each) for each in parsed if _applies(each, extras)]


def link_packages(environment: Environment, wanted: Iterable[str]) -> None:
    """Give an environment these packages and those that they require, by links to the tests' own.

    So pip need not download them. It still refuses what requires another package: it looks at what is there.
    """
    (site,) = environment.home.glob("lib/python*/site-packages")
    waiting, seen = list(wanted), set[str]()
    while waiting:
        requirement = Requirement(waiting.pop())
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        found = distribution(requirement.name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.is_symlink():
                link.symlink_to(found.locate_file(top))
        parsed = map(Requirement, found.requires or ())
        waiting += [str(each) for each in parsed if _applies(each, requirement.extras)]


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Whether a requirement holds here, with these extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, with its links: building leaves files beside the sources."""
    copy = tmp_path_factory.mktemp("source") / "holdfast"
    shutil.copytree(HOME, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_PACKED))
    return copy


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as pip builds it."""
    place = made_once(tmp_path_factory, "wheel", lambda place: build_wheel(source, place))
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what it requires, without any extra."""
    home = made_once(tmp_path_factory, "bare", lambda home: pip_install(make_environment(home), wheel))
    return Environment(home, home / "elsewhere")


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker shared by the tests of a module; each test uses its own topics."""
    return cluster_of_module.start(properties={"zookeeper.session.timeout.ms": "60000"})[0]
