"""Some cells of the matrix, with short faults that only just outlast a session.

scripts/fault-matrix.sh runs all cells. HOLDFAST_FAULT_SECONDS sets the length of pauses, cuts and outages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from tests.faults.cells import ALL_CELLS, CELLS, named
from tests.faults.matrix import run_cells
from tests.faults.run_cell import Verdict

FAULT_S = float(os.environ.get("HOLDFAST_FAULT_SECONDS", "6"))
SESSION_TIMEOUT_MS = 3000
TOGETHER = 3
NAMES = (
    "controller/kill/plain",
    "leader/pause/plain",
    "follower/cut/compressed",
    "leader/bounce/compressed",
    "zookeeper/outage/plain",
)

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """Run the chosen cells, three at a time, because each mostly waits."""
    directory = tmp_path_factory.mktemp("faults")
    cells = [named(name) for name in NAMES]
    found = run_cells(
        cells, directory, fault_s=FAULT_S, session_timeout_ms=SESSION_TIMEOUT_MS, together=TOGETHER
    )
    return {verdict.name: verdict for verdict in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_keeps_every_acknowledged_record_once_at_its_offset(
    name: str, verdicts: Mapping[str, Verdict]
) -> None:
    verdict = verdicts[name]

    assert verdict.holds, verdict.troubles
    assert verdict.findings.acknowledged == verdict.findings.consumed > 0


def test_the_matrix_has_every_combination_of_role_fault_and_compression() -> None:
    assert len(CELLS) == 31
    assert len({cell.name for cell in ALL_CELLS}) == len(ALL_CELLS)
