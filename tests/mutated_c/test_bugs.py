"""The bugs of the compiled code fit their sources, and the tests catch those that are tried here."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.replication import usual_append
from tests.mutated_c.bug import HOME, PACKAGE, Bug
from tests.mutated_c.building import has_compiler
from tests.mutated_c.hunting import hunt
from tests.mutated_c.tables import BUGS, by_name

TRIED = ("several-rights-to-the-first-topic-only", "record-offset-delta-unchecked")
"""Bugs whose tests take seconds. `scripts/mutate-compiled.sh` tries all."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_fits_its_source(bug: Bug) -> None:
    assert bug.changed((PACKAGE / bug.source).read_text())
    for test in bug.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in (HOME / path).read_text()
    for extension in bug.built:
        assert (PACKAGE / f"{extension.replace('.', '/')}.c").exists()


def test_each_bug_has_a_name_of_its_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS)


def test_a_bug_that_does_not_fit_any_more_is_named() -> None:
    bug = by_name(TRIED[0])
    with pytest.raises(ValueError, match=f"{bug.name}: the text to replace occurs 0 times"):
        bug.changed("int nothing;\n")


@pytest.mark.skipif(not has_compiler(), reason="there is no compiler, or no headers of Python")
@pytest.mark.skipif(usual_append._compiled is None, reason="the extensions were not compiled")
@pytest.mark.parametrize("name", TRIED)
def test_a_bug_in_the_compiled_code_is_caught(tmp_path: Path, name: str) -> None:
    verdict = hunt(by_name(name), tmp_path)
    assert verdict.is_caught, f"{verdict.how}\n{verdict.output}"
