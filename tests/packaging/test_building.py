"""What is built: a wheel for every CPython, a source distribution, a wheel without a compiler."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.conftest import Environment, run

COMPILED = {
    f"holdfast_log/protocol/{name}.abi3.so"
    for name in ("_arrow_columns", "_compaction", "_key_hash", "_record_codec")
}
SAYS_WHICH_CODEC = """
from holdfast_log.protocol import records
data = bytes(records._codec.encode(0, [5, 6], [b"a", None], [b"1", b"2"], None))
assert records._codec.decode(data, 2, 1, 0, 5)[3] == [b"1", b"2"]
print(records._codec.__name__, records.__file__)
"""


def contents(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def build_from(source: Path, place: Path, **environment: str) -> Path:
    run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, source],
        place.parent,
        **environment,
    )
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def sdist(
    source: Path,
    make_environment: Callable[..., Environment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    place = tmp_path_factory.mktemp("sdist")
    tests = source / "tests"  # as in a checkout, of which the fixture leaves these out
    tests.mkdir(exist_ok=True)
    (tests / "test_left_behind.py").touch()
    (source / "protocol" / "_key_hash.abi3.so").touch()
    builder = make_environment("build")
    run([builder.python, "-m", "build", "--sdist", "--outdir", place, source], place)
    (source / "protocol" / "_key_hash.abi3.so").unlink()
    (built,) = place.glob("*.tar.gz")
    return built


def test_one_wheel_serves_every_cpython_from_3_11_on(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    assert {name for name in contents(wheel) if name.endswith(".so")} == COMPILED


def test_the_compiled_parts_are_used(bare: Environment) -> None:
    assert bare(SAYS_WHICH_CODEC).startswith("holdfast_log.protocol._record_codec ")


def test_the_source_distribution_holds_the_sources_of_a_wheel_and_no_tests(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members if not member.isdir()}

    assert not [member.name for member in members if member.issym() or member.islnk()]
    outside = {name for name in names if not name.startswith(("holdfast_log/", "holdfast_log.egg-info/"))}
    assert outside == {
        "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "pyspark_holdfast.py",
        "setup.cfg", "setup.py",
    }  # fmt: skip
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert contents(build_from(sdist, tmp_path / "again")) == contents(wheel)


def test_without_a_compiler_a_wheel_is_built_that_works_in_python(
    sdist: Path, wheel: Path, bare: Environment, tmp_path: Path
) -> None:
    slow = build_from(sdist, tmp_path / "slow", CC="/bin/false")
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(slow).extractall(unpacked)

    assert contents(slow) == contents(wheel) - COMPILED
    said = run([bare.python, "-c", SAYS_WHICH_CODEC], tmp_path, PYTHONPATH=str(unpacked)).stdout
    assert said.split()[0] == "holdfast_log.protocol.record_codec"
    assert str(unpacked) in said


def test_a_wheel_without_compiled_parts_can_be_asked_for(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    anywhere = build_from(sdist, tmp_path / "anywhere", HOLDFAST_PURE_PYTHON="1")

    assert anywhere.name.endswith("-py3-none-any.whl")
    assert contents(anywhere) == contents(wheel) - COMPILED
