"""The types that the wheel brings: programs that use it pass a strict check without the sources."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tests.packaging.conftest import HOME, Environment, run


def test_the_examples_pass_mypy_against_the_installed_wheel(bare: Environment, tmp_path: Path) -> None:
    shutil.copytree(HOME / "docs" / "examples", tmp_path / "examples")
    snippets = re.findall(r"```python\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    for number, snippet in enumerate(snippets):
        if "pyspark" not in snippet:  # Spark brings its own types.
            (tmp_path / "examples" / f"readme_{number}.py").write_text(snippet)
    programs = sorted(path.name for path in (tmp_path / "examples").glob("*.py"))

    said = run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--python-executable",
            bare.python,
            *programs,
        ],
        tmp_path / "examples",
        MYPYPATH="",
    ).stdout

    assert said == f"Success: no issues found in {len(programs)} source files\n"
    assert len(programs) > 8
