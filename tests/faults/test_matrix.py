"""Some cells of the matrix, with faults as short as they may be: longer than a session, no more.

All of them: scripts/fault-matrix.sh. HOLDFAST_FAULT_SECONDS sets how long pauses, cuts and outages last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.faults.cells import CELLS, ZOOKEEPER_CELLS, named
from tests.faults.matrix import run_cells
from tests.faults.run_cell import Verdict

FAULT_S = float(os.environ.get("HOLDFAST_FAULT_SECONDS", "6"))
SESSION_TIMEOUT_MS = 3000
NAMES = (
    "leader/kill/compressed",
    "controller/kill/plain",
    "leader/pause/plain",
    "follower/cut/compressed",
    "leader/bounce/compressed",
    "zookeeper/leader-change/plain",
    "zookeeper/outage/plain",
)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """Run all cells, two at a time: they mostly wait."""
    directory = tmp_path_factory.mktemp("faults")
    cells = [named(name) for name in NAMES]
    found = run_cells(cells, directory, fault_s=FAULT_S, session_timeout_ms=SESSION_TIMEOUT_MS)
    return {verdict.name: verdict for verdict in found}


@pytest.mark.parametrize("name", NAMES)
def test_every_acknowledged_record_is_there_once_where_it_was_acknowledged(
    name: str, verdicts: Mapping[str, Verdict]
) -> None:
    verdict = verdicts[name]

    assert verdict.holds, verdict.troubles
    assert verdict.findings.acknowledged == verdict.findings.consumed > 0


def test_the_matrix_has_every_role_under_every_fault_compressed_or_not() -> None:
    assert len(CELLS) == 31
    assert len({cell.name for cell in (*CELLS, *ZOOKEEPER_CELLS)}) == 31 + len(ZOOKEEPER_CELLS)
