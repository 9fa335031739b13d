"""Strangers who never finish to introduce themselves: bounded, ended in time, and without harm to others.

How long others wait, with 5,000 strangers, is measured by scripts/slow-strangers.sh on a quiet machine.
"""

from __future__ import annotations

from pathlib import Path

from tests.hostile.slow_strangers import measured, running_broker
from tests.integration.waiting import until

STRANGERS = 200
HANDSHAKES_MAX = 40
GROWTH_BYTES_MAX = 100_000_000


def test_strangers_are_bounded_and_nobody_is_harmed(zookeeper: str, tmp_path: Path) -> None:
    limits = {"ssl_handshakes_max": str(HANDSHAKES_MAX), "sasl_authentication_timeout_ms": "2000"}
    with running_broker(tmp_path, zookeeper, **limits) as broker:
        senders = broker.strangers(STRANGERS)
        load = measured(broker, senders, tmp_path, 9)
        assert load.pace.rounds > 0 and load.pace.failed == 0
        assert 0 < load.handshakes <= HANDSHAKES_MAX
        assert load.connects > STRANGERS  # The broker has ended connections.
        assert load.grown_bytes < GROWTH_BYTES_MAX
        until(lambda: broker.handshakes() == 0)
