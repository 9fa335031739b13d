"""Builds extensions from sources with a bug, in a directory of their own."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.mutated_c.bug import PACKAGE, Bug

_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


class BuildError(Exception):
    """The changed source could not be compiled; its message is the compiler's."""


def has_compiler() -> bool:
    """Whether extensions can be built here."""
    return shutil.which(_compiler()[0]) is not None and Path(_headers(), "Python.h").exists()


def build(directory: Path, bug: Bug | None, extensions: Sequence[str]) -> dict[str, Path]:
    """Build these extensions with the bug, or without any. Returns each one's file by the module's full name.

    Raises `BuildError`, and ValueError if the bug does not fit its source.
    """
    sources = directory / "sources"
    # The folders of the package may be links, which `rglob` does not follow.
    for path in (path for folder in PACKAGE.iterdir() for path in folder.rglob("_*.[ch]")):
        copy = sources / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    if bug is not None:
        changed = sources / bug.source
        changed.write_text(bug.changed(changed.read_text()))
    return {f"holdfast_log.{name}": _compile(sources, directory, name) for name in extensions}


def _compile(sources: Path, directory: Path, name: str) -> Path:
    source = sources / f"{name.replace('.', '/')}.c"
    built = directory / f"{name}{_SUFFIX}"
    # Warnings are those of the bug, such as a function that is used no more.
    options = ["-shared", "-fPIC", "-O1", "-w", f"-I{_headers()}"]
    done = subprocess.run(
        [*_compiler(), *options, str(source), "-o", str(built)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(done.stderr)
    return built


def _compiler() -> list[str]:
    return shlex.split(sysconfig.get_config_var("CC") or "cc")


def _headers() -> str:
    return sysconfig.get_path("include")
