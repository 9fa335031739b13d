"""Simulated producers that request shared or exclusive access to a partition (PIP-68).

When a producer's access ends, the process continues as a new producer with another id, possibly in another
mode.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, PRODUCERS_GROUP, LossReason, ResourceStanding
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.sim.claimant import SESSION_TIMEOUT_MS, TIMEOUT_MS
from tests.sim.client import Surroundings
from tests.sim.history import TopicPartition
from tests.sim.owner import Owner, WriterHabits
from tests.sim.owner_history import OwnerHistory, Told

_WAITS_MS = (1500, 6000, -1, -1)


class ExclusiveProducer(Owner):
    """A process that runs one producer after another, each in one of `modes`."""

    group = PRODUCERS_GROUP

    def __init__(
        self,
        around: Surroundings,
        name: str,
        at: TopicPartition,
        told: OwnerHistory,
        habits: WriterHabits,
        modes: Sequence[ProducerAccessMode],
    ) -> None:
        super().__init__(around, name, at, told, habits)
        self._modes = modes
        self._producers = 0
        self._be_another()

    def _be_another(self) -> None:
        self._producers += 1
        self.be_known_as(f"{self.name}.{self._producers}")
        self._mode = self.rng.choice(self._modes)

    def _ask_for_access(self, epoch: int, wait_ms: int) -> ProducerAccessRequest:
        return ProducerAccessRequest(
            topic=self.at[0],
            partition=self.at[1],
            producer_id=self.owner_id,
            mode=self._mode,
            epoch=epoch,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
            wait_timeout_ms=wait_ms,
            secret=self.secret,
        )

    def _claim(self) -> None:
        address, place = self.decider(), self.place
        if address is None or place is None or self._is_asking:
            return
        self._is_asking = True
        waits = self._mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE
        wait_ms = self.rng.choice(_WAITS_MS) if waits else 0
        asked = self.asks(address, place, IF_FREE, wait_ms)

        def answered(response: ProducerAccessResponse) -> None:
            self._is_asking = False
            self.history.operations += 1
            self.claimed(asked, self._standing(response))
            if response.error_code == ErrorCode.RESOURCE_OWNED:
                self._be_another()

        self.send(address, self._ask_for_access(-1, wait_ms)).addCallbacks(answered, self._unanswered)

    def _standing(self, response: ProducerAccessResponse) -> ResourceStanding:
        return ResourceStanding(
            name=self.at[0],
            partition=self.at[1],
            error_code=response.error_code,
            generation=response.epoch,
            incarnation=response.incarnation,
            fence_offset=response.fence_offset,
            leader_epoch=response.leader_epoch,
            position=response.position,
        )

    def lose_touch(self, grant: Told) -> None:
        """End shared access, which does not survive its connection."""
        if grant.is_shared and grant is self.grant:
            self.forget(grant)
            if self._granted_on is not None:
                self.abandon(self._granted_on.address)
        else:
            super().lose_touch(grant)

    def _resume(self, grant: Told) -> None:
        address = self.decider()
        if address is None or self._is_asking:
            return
        self._is_asking = True
        asked_s = self.world.seconds()

        def answered(response: ProducerAccessResponse) -> None:
            self._is_asking = False
            self.history.operations += 1
            if response.error_code == ErrorCode.NONE:
                self.goes_on(address, grant, asked_s, response.leader_epoch)
            elif response.error_code == ErrorCode.PRODUCER_FENCED:
                self.fenced(grant, response.epoch, LossReason.NONE)
            else:
                self.look_again()

        self.send(address, self._ask_for_access(grant.generation, 0)).addCallbacks(answered, self._unanswered)

    def forget(self, grant: Told) -> None:
        super().forget(grant)
        self._be_another()
