"""A cell holds only if nothing is wrong; otherwise its verdict names every finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.account import Findings
from tests.faults.run_cell import Verdict

GOOD = Verdict("leader/kill/plain", "loopback", Findings(acknowledged=7, consumed=7), longest_pause_s=6.5)


def test_a_cell_holds_if_every_record_is_stored_once() -> None:
    assert GOOD.holds
    assert GOOD.troubles == ""


@pytest.mark.parametrize(
    ("verdict", "troubles"),
    [
        (replace(GOOD, findings=Findings(7, 6, lost=1)), "1 lost"),
        (replace(GOOD, findings=Findings(7, 9, duplicated=2)), "2 duplicated"),
        (replace(GOOD, failed=3, failures=("holdfast: late",)), "3 failed: holdfast: late"),
        (replace(GOOD, diverged=("t-0", "t-1")), "replicas of t-0 differ, replicas of t-1 differ"),
        (replace(GOOD, wrong_sums=("auditor-0: lost: it",)), "auditor-0: lost: it"),
        (replace(GOOD, error="TimeoutError: no more"), "TimeoutError: no more"),
    ],
)
def test_a_verdict_names_every_finding(verdict: Verdict, troubles: str) -> None:
    assert not verdict.holds
    assert verdict.troubles == troubles


def test_a_verdict_can_be_sent_between_processes() -> None:
    verdict = replace(
        GOOD, failed=1, failures=("holdfast: late",), diverged=("t-0",), bank="7", wrong_sums=("lost",)
    )

    assert Verdict.from_json(verdict.to_json()) == verdict
