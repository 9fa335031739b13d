"""The division of the process's file descriptors between their uses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast_log.broker.process.descriptors import shares


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 1 << 20, 1 << 30])
def test_every_use_has_its_share_and_all_together_stay_below_the_limit(limit: int) -> None:
    divided = shares(limit)
    own = limit - divided.log_files - divided.connections
    assert own >= min(192, limit // 4)
    assert divided.log_files >= limit // 4 or divided.log_files >= 1024
    assert divided.connections >= limit // 4


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 150))\n"
        "from holdfast_log.broker.process.descriptors import raise_limit\n"
        "assert raise_limit() == 150\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (150, 150)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0
