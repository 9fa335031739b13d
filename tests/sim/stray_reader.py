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
from tests.sim.client import Client, Surroundings
from tests.sim.foreign_reads import ForeignRead, ForeignReads
from tests.sim.history import Incarnation, TopicPartition
from tests.sim.partition_reading import PartitionReading

_TICK_S = 0.3
_RARE_TICK_S = 2.0
_RARE_SHARE = 0.5
_WAITS_MS = (0, 0, 500)
_NO_GRANT = 2**40
"""An incarnation that no grant has: to resume it names the group, and is refused."""


class StrayReader(Client):
    """A client that reads the partition `at` in `group` without owning it, with one request at a time."""

    def __init__(
        self, around: Surroundings, name: str, at: TopicPartition, group: str, told: ForeignReads
    ) -> None:
        super().__init__(around, name)
        self.at = at
        self.is_making = True
        self._group = group
        self._told = told
        self._reading = PartitionReading(self.history, name)
        self._named_on: object | None = None
        """The connection on which a leader knows that this client reads for the group."""
        self._is_waiting = False
        self._pause_s = _RARE_TICK_S if self.rng.random() < _RARE_SHARE else _TICK_S

    def begin(self) -> None:
        super().begin()
        self._tick()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._is_waiting

    def _tick(self) -> None:
        self.later(self._pause_s * self.rng.uniform(0.2, 1.8), self._tick)
        if not self.is_making or self._is_waiting:
            return
        leader = self.leader_of(self.at)
        if leader is None:
            self.refresh()
            return
        address, _ = leader
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
            self.history.operations += 1
            self._is_waiting = False
            if [each.error_code for each in response.resources] == [ErrorCode.OWNERSHIP_FENCED]:
                self._named_on = self.line_to(address)
            else:
                self.refresh()

        self._is_waiting = True
        self.send(address, request).addCallbacks(answered, lambda failure: self._unanswered())

    def _fetch(self, address: Address) -> None:
        place = Incarnation(self.at, self.topics[self.at[0]].topic_id)
        sent_s = self.world.seconds()
        request = self._reading.request(place, self.rng.choice(_WAITS_MS))
        self._is_waiting = True
        self.send(address, request).addCallbacks(
            lambda response: self._answered(place, sent_s, response), lambda failure: self._unanswered()
        )

    def _unanswered(self) -> None:
        self._is_waiting = False
        self.refresh()

    def _answered(self, place: Incarnation, sent_s: float, response: FetchResponse) -> None:
        self.history.operations += 1
        self._is_waiting = False
        for topic in response.responses:
            for row in topic.partitions:
                if row.error_code == ErrorCode.NONE:
                    now_s = self.world.seconds()
                    self._told.served(ForeignRead(self.name, place, self._group, sent_s, now_s))
                    self._reading.got(place, row)
                elif row.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.refresh()
