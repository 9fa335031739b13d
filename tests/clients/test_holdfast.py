"""The public face: every name leads somewhere, and a package that stands in the way is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

HOME = Path(__file__).parents[2]


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_leads_somewhere(name: str) -> None:
    assert getattr(holdfast, name) is not None


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="Prodcer"):
        holdfast.Prodcer  # noqa: B018


@pytest.mark.parametrize("shape", ["clients.py", "clients/__init__.py"])
def test_a_package_that_shadows_ours_is_named(tmp_path: Path, shape: str) -> None:
    stranger = tmp_path / shape
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("")
    answer = subprocess.run(
        [sys.executable, "-c", "import holdfast"],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{HOME}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert answer.returncode == 1
    assert f"holdfast needs its own package 'clients', but {stranger} comes before it" in answer.stderr
