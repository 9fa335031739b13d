"""The specification's page says of each known bug which wrong step it is there, or why there is none."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from tests.sim import mutants

PAGE = Path(__file__).parents[2] / "docs" / "spec" / "README.md"
FILES = sorted(info.name for info in pkgutil.iter_modules(mutants.__path__))


@pytest.mark.parametrize("file", FILES)
def test_each_mutation_has_a_counterpart_or_a_reason(file: str) -> None:
    module = importlib.import_module(f"{mutants.__name__}.{file}")
    known = [*getattr(module, "MUTATIONS", ()), *getattr(module, "RARE", ())]
    page = PAGE.read_text()
    assert known
    if f"`{file}.py`" not in page:
        assert [mutation.name for mutation in known if f"`{mutation.name}`" not in page] == []
