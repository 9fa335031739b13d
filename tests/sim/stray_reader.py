"""Simulated stray readers: clients that read a partition in the group of its single readers, and never claim
it.

Such a client may be a process that has lost its grant, does not know it, and goes on. While the group has a
reader, a broker refuses its fetches. While that reader is gone and could come back, the first of them ends
the grant for good.
"""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchResponse
from holdfast_log.protocol.messages.ownership import ResumedResource, ResumeRequest, ResumeResponse
from tests.sim.claimant import SESSION_TIMEOUT_MS, TIMEOUT_MS
from tests.sim.client import Surroundings
from tests.sim.foreign_reads import ForeignRead, ForeignReads
from tests.sim.history import Incarnation, TopicPartition
from tests.sim.partition_client import PartitionClient
from tests.sim.partition_reading import PartitionReading

_TICK_S = 0.3
_RARE_TICK_S = 2.0
_RARE_SHARE = 0.5
_WAITS_MS = (0, 0, 500)
_NO_GRANT = 2**40
"""An incarnation that no grant has: to resume it names the group, and is refused."""


class StrayReader(PartitionClient):
    """A client that reads the partition `at` in `group` without owning it."""

    def __init__(
        self, around: Surroundings, name: str, at: TopicPartition, group: str, told: ForeignReads
    ) -> None:
        super().__init__(around, name, at, _TICK_S)
        self._group = group
        self._told = told
        self._reading = PartitionReading(self.history, name)
        self._named_on: object | None = None
        """The connection on which a leader knows that this client reads for the group."""
        if self.rng.random() < _RARE_SHARE:
            self.pause_s = _RARE_TICK_S

    def act(self, address: Address) -> None:
        line = self.line_to(address)
        if line is not None and line is self._named_on:
            self._fetch(address)
        else:
            self._name_group(address)

    def _name_group(self, address: Address) -> None:
        named = ResumedResource(
            name=self.at[0], partition=self.at[1], generation=_NO_GRANT, incarnation=_NO_GRANT
        )
        request = ResumeRequest(
            group=self._group,
            owner_id=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=TIMEOUT_MS,
            resources=[named],
            secret=self.rng.randbytes(16),
        )

        def answered(response: ResumeResponse) -> None:
            if [each.error_code for each in response.resources] == [ErrorCode.OWNERSHIP_FENCED]:
                self._named_on = self.line_to(address)
            else:
                self.refresh()

        self.ask(address, request, answered)

    def _fetch(self, address: Address) -> None:
        place = Incarnation(self.at, self.topics[self.at[0]].topic_id)
        sent_s = self.world.seconds()
        request = self._reading.request(place, self.rng.choice(_WAITS_MS))
        self.ask(address, request, lambda response: self._answered(place, sent_s, response))

    def _answered(self, place: Incarnation, sent_s: float, response: FetchResponse) -> None:
        for topic in response.responses:
            for row in topic.partitions:
                if row.error_code == ErrorCode.NONE:
                    now_s = self.world.seconds()
                    self._told.served(ForeignRead(self.name, place, self._group, sent_s, now_s))
                    self._reading.got(place, row)
                elif row.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.refresh()
