"""A simulated client that looks records up by their time, also while leaders change."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.replication.offset_lookup import MAX_TIMESTAMP
from holdfast_log.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from tests.sim.client import Surroundings
from tests.sim.history import Incarnation
from tests.sim.offset_asker import OffsetAsker

_PAUSE_S = 0.2
_AGE_S_MAX = 4.0
_MAX_SHARE = 0.5
"""How often the client asks for the record with the latest timestamp of all (KIP-734)."""


class TimeReader(OffsetAsker):
    """Asks the leaders of some topics for the first record of a recent moment, or for the latest of all. No
    answer may name a record that is not committed, or an earlier one than was asked for."""

    def __init__(self, around: Surroundings, name: str, *, follows: Sequence[str]) -> None:
        super().__init__(around, name, follows=follows, pause_s=_PAUSE_S)

    def timestamp(self) -> int:
        if self.rng.random() < _MAX_SHARE:
            return MAX_TIMESTAMP
        return self.process.clock.date_ms() - int(self.rng.uniform(0.0, _AGE_S_MAX) * 1000)

    def judge(
        self,
        place: Incarnation,
        epoch: int,
        timestamp: int,
        row: ListOffsetsPartitionResponse,
        *,
        asked_s: float,
    ) -> None:
        if row.offset < 0:
            return
        what = f"the offset that {self.name} got for the time {timestamp}"
        self.history.told_committed(place, row.offset + 1, what)
        if row.timestamp < timestamp:
            self.history.violation(f"{what} of {place} has the earlier time {row.timestamp}")
