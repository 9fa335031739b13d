"""Known bugs of the ledger, put back: the tests of paused runs must fail with each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast_log.pipeline.jobs.ledger import DATA, Ledger, SupersededError
from tests.pipeline.jobs.test_ledger import (
    test_a_run_that_is_paused_while_others_begin_is_refused_and_takes_nothing_from_them as paused_runs,
)


def count_swept_numbers(run: Ledger, _: object) -> None:
    """Let a paused run publish an entry under a number that later runs have swept."""


def sweep_all_but_results(run: Ledger) -> list[str]:
    """Remove every folder without a result, also that of a run which began while this one was paused."""
    kept = {step.run for step in run.results()}
    found = [f"{DATA}/{name}" for name in run._storage.names(DATA) if name.removeprefix("run=") not in kept]
    for folder in found:
        run._storage.remove(folder)
    return found


@pytest.mark.parametrize(
    ("name", "mutant"),
    [("_must_count", count_swept_numbers), ("sweep", sweep_all_but_results)],
)
def test_each_bug_is_noticed(
    name: str, mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, name, mutant)

    with pytest.raises((AssertionError, SupersededError)):
        for before in (0, 1, 3):
            for others in (1, 2, 3, 6):
                paused_runs(before, others)
