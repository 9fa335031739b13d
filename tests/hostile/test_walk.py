"""The attacks of one client without a right on a cluster as users start it, with its default settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.programs import HOME, run_module

PATIENT = "zookeeper.session.timeout.ms=60000"
"""On a busy machine ZooKeeper may not run for seconds; that is no attack."""

WALK_S = 900.0
"""A few minutes on a quiet machine."""


@pytest.mark.timeout(WALK_S + 500)
def test_no_attack_of_a_client_without_a_right_does_harm(tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    manage = "holdfast_log.broker.tools.background_cluster"
    started = run_module(manage, "start", "-n", "1", "--directory", directory, "--override", PATIENT)
    assert started.returncode == 0, started.stderr
    try:
        port = started.stdout.splitlines()[0].rpartition(":")[2]
        walk = [sys.executable, "-m", "tests.hostile.walk", "--port", port, "--directory", directory]
        walked = subprocess.run(
            [*walk, "--idle", "1000"], cwd=HOME, capture_output=True, text=True, timeout=WALK_S, check=False
        )
    finally:
        run_module(manage, "stop", "--directory", directory)
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert walked.stdout.count("held: ") == len(walked.stdout.splitlines()) >= 23
