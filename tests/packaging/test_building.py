"""What is built: wheels for one CPython, for every later one, for any Python, and a source distribution."""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from holdfast_log.protocol.records import PURE_PYTHON_VARIABLE
from tests.once import made_once
from tests.packaging.conftest import HOME, Environment, build_wheel, run

MODULES = {
    f"holdfast_log/{source.relative_to(HOME).with_suffix('')}"
    for folder in ("broker", "clients", "protocol")
    for source in (HOME / folder).rglob("_*.c")
}
"""The compiled modules, as paths without the suffix."""
COMPILED = {f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}" for module in MODULES}
COMPILED_FOR_ALL = {f"{module}.abi3.so" for module in MODULES}
SAYS_WHICH_CODEC = """
from holdfast_log.protocol import records
data = bytes(records._codec.encode(0, [5, 6], [b"a", None], [b"1", b"2"], None))
assert records._codec.decode(data, 2, 1, 0, 5)[3] == [b"1", b"2"]
print(records._codec.__name__, records.__file__)
"""
BUILDS_SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


def contents(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def build_from(sdist: Path, place: Path, **environment: str) -> Path:
    """Build a wheel from the source distribution, without optimizing: it is only looked at."""
    return build_wheel(sdist, place, "--no-build-isolation", CFLAGS="-O0", **environment)


def says_which_codec(wheel: Path, bare: Environment, directory: Path) -> str:
    unpacked = directory / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    variables = {"PYTHONPATH": str(unpacked), PURE_PYTHON_VARIABLE: ""}
    said = run([bare.python, "-c", SAYS_WHICH_CODEC], directory, **variables).stdout
    assert str(unpacked) in said
    return said.split()[0]


@pytest.fixture(scope="session")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(place: Path) -> None:
        tests = source / "tests"  # as in a checkout, of which the fixture leaves these out
        tests.mkdir(exist_ok=True)
        (tests / "test_left_behind.py").touch()
        left_behind = source / "protocol" / "_key_hash.abi3.so"
        left_behind.touch()
        run([sys.executable, "-c", BUILDS_SDIST, str(place)], source)
        left_behind.unlink()

    (built,) = made_once(tmp_path_factory, "sdist", make).glob("*.tar.gz")
    return built


def libraries_of(wheel: Path, place: Path) -> set[str]:
    """The libraries that each compiled part names. auditwheel tells by the C library which Linux a part with
    the limited API is for, and refuses a wheel with a part that names none."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    named = [
        set(re.findall(r"\(NEEDED\).*\[(.+)\]", run(["readelf", "-d", part], place).stdout))
        for part in place.rglob("*.so")
    ]
    assert all(each == named[0] for each in named)
    return named[0]


def test_a_wheel_is_for_the_cpython_that_builds_it(wheel: Path) -> None:
    version = "cp{}{}".format(*sys.version_info)
    assert f"-{version}-{version}-" in wheel.name
    assert {name for name in contents(wheel) if name.endswith(".so")} == COMPILED


def test_one_wheel_for_every_cpython_from_3_11_on_can_be_asked_for(
    sdist: Path, wheel: Path, bare: Environment, tmp_path: Path
) -> None:
    later = build_from(sdist, tmp_path / "later", HOLDFAST_LIMITED_API="1")

    assert "-cp311-abi3-" in later.name
    assert contents(later) == contents(wheel) - COMPILED | COMPILED_FOR_ALL
    assert libraries_of(later, tmp_path / "parts") == {"libc.so.6"}
    assert says_which_codec(later, bare, tmp_path) == "holdfast_log.protocol._record_codec"


def test_the_compiled_parts_are_used_unless_the_environment_says_otherwise(bare: Environment) -> None:
    for pure, codec in (("", "_record_codec"), ("1", "record_codec")):
        program = [bare.python, "-c", SAYS_WHICH_CODEC]
        said = run(program, bare.directory, **{PURE_PYTHON_VARIABLE: pure}).stdout
        assert said.split()[0] == f"holdfast_log.protocol.{codec}"


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

    assert contents(slow) == contents(wheel) - COMPILED
    assert says_which_codec(slow, bare, tmp_path) == "holdfast_log.protocol.record_codec"


def test_a_wheel_without_compiled_parts_can_be_asked_for(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    anywhere = build_from(sdist, tmp_path / "anywhere", HOLDFAST_PURE_PYTHON="1")

    assert anywhere.name.endswith("-py3-none-any.whl")
    assert contents(anywhere) == contents(wheel) - COMPILED
