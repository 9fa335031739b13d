"""Simulated processes that repeat conditional appends with an id which another process has sent.

Such a process stands for one that was started after the first had crashed: it has a connection of its own,
and no producer id. Again and again it asks about an append: one that was acknowledged, one that is still
under way, or one without an outcome. It asks about some as soon as they are sent: a broker may have appended
them, and must not answer before they are committed. It asks about old appends too, because a broker must know
the ids of appends that are in earlier segments, or that an earlier leader wrote. A broker that has forgotten
ids may answer APPEND_ID_UNKNOWN instead.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import set_producer
from tests.sim.claimant import TIMEOUT_MS
from tests.sim.client import NOT_THE_WRITER, Client, Surroundings
from tests.sim.history import Outcome
from tests.sim.owner_history import OwnedBatch, OwnerHistory

_PAUSE_S_MAX = 1.0
_UNSETTLED_SHARE = 0.5
_LATEST_SHARE = 0.5
_AT_ONCE_SHARE = 0.5
_PAUSES_S = (0.001, 0.003, 0.01, 0.03)
"""The longest pauses before an append is repeated at once: to be committed takes a few ms or some tens."""
_NEVER = 2**40
"""An offset at which no log ends: an append that expects it is only found or refused."""


class Repeater(Client):
    """Repeats appends of one owner."""

    def __init__(self, around: Surroundings, name: str, told: OwnerHistory) -> None:
        super().__init__(around, name)
        self._told = told
        self._judge_knows = around.decider
        self._at_once_rng = around.world.rng(f"{name}: at once")
        self._appends: list[tuple[OwnedBatch, bytearray]] = []

    def begin(self) -> None:
        super().begin()
        self._tick()

    def know(self, owned: OwnedBatch, data: bytearray) -> None:
        """Ask now and then about an append, which is sent as `data`; sometimes at once."""
        if owned.append_id and owned.batch.sends == 1:
            again = bytearray(data)
            set_producer(again, -1, -1, -1)
            self._appends.append((owned, again))
            if self._at_once_rng.random() < _AT_ONCE_SHARE:
                pause_s = self._at_once_rng.uniform(0, self._at_once_rng.choice(_PAUSES_S))
                self.later(pause_s, self._repeat, owned, again)

    def _tick(self) -> None:
        self.later(self.rng.uniform(0, _PAUSE_S_MAX), self._tick)
        if not self._appends:
            return
        unsettled = [each for each in self._appends if each[0].batch.outcome is not Outcome.ACKED]
        if unsettled and self.rng.random() < _UNSETTLED_SHARE:
            is_latest = self._at_once_rng.random() < _LATEST_SHARE
            self._repeat(*(unsettled[-1] if is_latest else self.rng.choice(unsettled)))
        else:
            self._repeat(*self.rng.choice(self._appends))

    def _repeat(self, owned: OwnedBatch, data: bytearray) -> None:
        batch = owned.batch
        leader = self.leader_of(batch.at)
        if leader is None:
            self.refresh()
            return
        address, _ = leader
        was_acknowledged = batch.outcome is Outcome.ACKED
        asked = self._judge_knows(address, batch.at)
        part = PartitionProduceData(
            index=batch.at[1],
            records=bytearray(data),
            expected_offset=_NEVER,
            expected_topic_id=batch.topic_id,
            append_id=owned.append_id,
            id_unused_before=owned.id_unused_before,
        )
        topics = [TopicProduceData(name=batch.at[0], partition_data=[part])]

        def answered(response: ProduceResponse) -> None:
            self.history.operations += 1
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.NONE:
                self._told.was_repeated(owned, row.base_offset, is_repeat=row.is_repeat)
                return
            is_unknown = row.error_code == ErrorCode.OFFSET_MISMATCH
            if row.error_code in NOT_THE_WRITER and asked.is_current and not self._told.has_forgotten_ids:
                # A broker that knows the id answers before it checks who may write. One that was replaced may
                # not know it: another broker may have got the append.
                now = self._judge_knows(address, batch.at)
                is_unknown = asked == replace(now, awake_since_s=asked.awake_since_s)
            if is_unknown and was_acknowledged:
                self._told.was_forgotten(owned)
            self.refresh()

        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        self.send(address, request).addCallbacks(answered, lambda failure: self.refresh())
