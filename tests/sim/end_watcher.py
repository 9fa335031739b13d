"""A simulated client that repeatedly asks for the end offsets of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.broker.replication.offset_lookup import LATEST
from holdfast_log.protocol.messages.list_offsets import ListOffsetsPartitionResponse
from tests.sim.client import Surroundings
from tests.sim.history import Incarnation
from tests.sim.offset_asker import OffsetAsker
from tests.sim.told_offsets import ToldOffsets

_PAUSE_S = 0.5


class EndWatcher(OffsetAsker):
    """Asks the leaders of some topics for the end offset of every partition."""

    def __init__(self, around: Surroundings, name: str, *, follows: Sequence[str], told: ToldOffsets) -> None:
        super().__init__(around, name, follows=follows, pause_s=_PAUSE_S)
        self._told = told

    def timestamp(self) -> int:
        return LATEST

    def judge(
        self,
        place: Incarnation,
        epoch: int,
        timestamp: int,
        row: ListOffsetsPartitionResponse,
        *,
        asked_s: float,
    ) -> None:
        self._told.told(self.name, place, epoch, row.offset, asked_s=asked_s)
