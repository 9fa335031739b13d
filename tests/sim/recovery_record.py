"""The recovery times of each campaign, kept in a file for the next campaign with the same seeds.

A change of the broker that makes clusters recover later violates no rule, as long as they recover within
`RECOVERY_S_MAX`. So a campaign compares its times with those of the run before, and fails if they are notably
longer.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from tests.sim.recovery_times import Distribution

ENOUGH = 100
"""How many recoveries a run has to have measured to be compared: each seed has its own faults."""
_LONGER_SHARE = 1.25
_LONGER_S = 0.5
"""A 99th percentile is notably longer if it is longer by this factor and these seconds together."""


class RecoveryRecord:
    """What `path` says of the run before."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def compare(self, now: Distribution) -> tuple[str, bool]:
        """A line about the run before and this one, and whether this one's times are acceptable. If they are,
        they take the place of those before. Raises OSError if the file cannot be written."""
        before = self._read()
        if before is not None and _is_longer(now, before):
            return (
                f"the run before: {before}. Clusters recover notably later now. If that is intended, remove "
                f"{self._path}",
                False,
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(asdict(now)) + "\n")
        new.replace(self._path)
        return ("no run before had these seeds" if before is None else f"the run before: {before}"), True

    def _read(self) -> Distribution | None:
        """The times of the run before; None if there was none, or its file is damaged."""
        try:
            return Distribution(**json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def _is_longer(now: Distribution, before: Distribution) -> bool:
    is_enough = min(now.count, before.count) >= ENOUGH
    return is_enough and now.high_s > before.high_s * _LONGER_SHARE + _LONGER_S
