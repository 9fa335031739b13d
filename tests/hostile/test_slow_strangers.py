"""Strangers who never finish to introduce themselves: bounded, ended in time, and without harm to others.

How long others wait, with 5,000 strangers, is measured by scripts/slow-strangers.sh on a quiet machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.neighbour import Pace
from tests.hostile.slow_strangers import Load, Round, measured, running_broker, verdict_of
from tests.integration.waiting import until

STRANGERS = 200
HANDSHAKES_MAX = 40
GROWTH_BYTES_MAX = 100_000_000


def test_strangers_are_bounded_and_nobody_is_harmed(zookeeper: str, tmp_path: Path) -> None:
    limits = {
        "ssl_handshakes_max": str(HANDSHAKES_MAX),
        "sasl_authentication_timeout_ms": "2000",
        "zookeeper_session_timeout_ms": "60000",
    }
    with running_broker(tmp_path, zookeeper, **limits) as broker:

        def is_under_load() -> bool:
            """Whether the broker had handshakes under way, and has ended connections: strangers that hardly
            run on a busy machine connect later."""
            load = measured(broker, broker.strangers(STRANGERS), tmp_path, 9)
            assert load.pace.rounds > 0 and load.pace.failed == 0
            assert load.handshakes <= HANDSHAKES_MAX
            assert load.grown_bytes < GROWTH_BYTES_MAX
            return load.handshakes > 0 and load.connects > STRANGERS

        until(is_under_load, 300)
        until(lambda: broker.handshakes() == 0)


def load_of(p99_ms: float, work_ms: float, failed: int = 0) -> Load:
    return Load(Pace(1000, failed, 1.0, p99_ms, 2 * p99_ms, 0.5, work_ms), 0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("slow_ms", "failed", "is_kept"),
    [((20.0, 20.0, 90.0), 0, True), ((20.0, 21.0, 21.0), 0, False), ((10.0, 10.0, 10.0), 1, False)],
)
def test_the_median_of_the_rounds_decides(slow_ms: tuple[float, ...], failed: int, is_kept: bool) -> None:
    rounds = [Round(load_of(10.0, 2.0), load_of(each, 3.0, failed)) for each in slow_ms]
    verdict = verdict_of(rounds)
    assert verdict.is_kept is is_kept
    assert f"from {min(slow_ms) / 10:.2f} to {max(slow_ms) / 10:.2f}" in str(verdict)
    assert "median 1.50, from 1.50 to 1.50" in str(verdict)
