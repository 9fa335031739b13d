"""The C extensions, as they are in the tree now and not as they once were installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutated_c.importing import REPLACED
from tests.once import made_once

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ModuleType]:
    """Imports an extension of `protocol` by its name: for this CPython or, if `is_limited`, for all."""
    has_headers = Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    if shutil.which("cc") is None or not has_headers:
        pytest.skip("no C compiler, or no headers of Python: the loops in Python are the only ones here")

    def make(place: Path, is_limited: bool) -> None:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "-b", str(place), "-t", str(place)]
        environment = {name: value for name, value in os.environ.items() if name != "HOLDFAST_PURE_PYTHON"}
        environment["HOLDFAST_LIMITED_API"] = "1" if is_limited else ""
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        assert "warning" not in done.stderr, done.stderr

    @cache
    def build(is_limited: bool) -> Path:
        name = "compiled-for-all" if is_limited else "compiled"
        place = made_once(tmp_path_factory, name, lambda place: make(place, is_limited))
        return place / "holdfast_log" / "protocol"

    def load(name: str, is_limited: bool = False) -> ModuleType:
        if REPLACED:
            if is_limited or f"holdfast_log.protocol.{name}" not in REPLACED:
                pytest.skip("a bug is tried in another extension")
            library = Path(REPLACED[f"holdfast_log.protocol.{name}"])
        else:
            (library,) = build(is_limited).glob(f"{name}.*.so")
        spec = importlib.util.spec_from_file_location(f"holdfast_log.protocol.{name}", library)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
