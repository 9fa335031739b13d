"""Simulated single readers: each reads a partition while it believes that it is its group's only reader, and
only on the connection on which its grant was confirmed.

A rash reader goes on there while no broker confirms its grant. The broker must refuse these fetches once it
may have been replaced.

Under some grants another process fetches for it, with the grant's fence; also once more after the reader has
learned that its grant has ended.
"""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast_log.protocol.messages.ownership import Access
from tests.sim.client import Surroundings
from tests.sim.fence_user import FenceUser
from tests.sim.history import TopicPartition
from tests.sim.owner_history import OwnerHistory, Told
from tests.sim.partition_reading import PartitionReading
from tests.sim.single_reader_history import SingleReaderHistory
from tests.sim.tenant import OFTEN_BREAK_SHARE, Tenant

_FENCE_SHARE = 0.4
_FORGE_SHARE = 0.1
_RASH_SHARE = 0.5


class SingleReader(Tenant):
    """A client that claims a partition to read it. Some of its fetches wait up to 1500 ms for records."""

    group = "readers"
    access = Access.READ

    def __init__(
        self,
        around: Surroundings,
        name: str,
        at: TopicPartition,
        told: OwnerHistory,
        read: SingleReaderHistory,
        *,
        breaks_often: bool = False,
    ) -> None:
        super().__init__(around, name, at, told)
        self._read = read
        if breaks_often:
            self.break_share = OFTEN_BREAK_SHARE
        self._reading = PartitionReading(self.history, name)
        self._is_fetching = False
        self._fence_rng = around.world.rng(f"{name}: fences")
        self._pool = FenceUser(around, f"{name}'s pool")
        self._reads_by_fence = False
        """Whether another process fetches under the present grant."""
        self._is_rash = around.world.rng(f"{name}: rashness").random() < _RASH_SHARE

    def has_gained(self, grant: Told) -> None:
        self._reads_by_fence = self._fence_rng.random() < _FENCE_SHARE

    def has_lost(self, grant: Told) -> None:
        address = self.decider()
        if self._reads_by_fence and address is not None:
            self._fetch(address, grant)

    def _resume(self, grant: Told) -> None:
        address = self.decider()
        if self._is_rash and address is not None and self._granted_on == self._home(address):
            self.work(grant)
        super()._resume(grant)

    def work(self, grant: Told) -> None:
        address = self.decider()
        if address is None or self._is_fetching:
            return
        if self._reads_by_fence or self.stands_on(address):
            self._fetch(address, grant)

    def _fetch(self, address: Address, grant: Told) -> None:
        self._is_fetching = True
        asked_s = self.world.seconds()
        request = self._reading.request(grant.place, max_wait_ms=self.rng.choice([0, 1500]))
        if self._reads_by_fence:
            self._fetch_by_fence(address, grant, request)
            return
        self.send(address, request).addCallbacks(
            lambda response: self._answered(grant, asked_s, response), lambda failure: self._failed(grant)
        )

    def _fetch_by_fence(self, address: Address, grant: Told, request: FetchRequest) -> None:
        is_forged = self._fence_rng.random() < _FORGE_SHARE
        (wanted,) = request.topics[0].partitions
        wanted.owner_token = grant.incarnation
        wanted.owner_secret = self._fence_rng.randbytes(16) if is_forged else self.secret

        def answered(sent_s: float, response: FetchResponse) -> None:
            for topic in response.responses:
                for row in topic.partitions:
                    is_served = row.error_code == ErrorCode.NONE
                    if is_forged and is_served:
                        self.told.forged(self.claimant_id, grant, "read")
                    elif is_served:
                        self.told.foreign_reads.confirmed(grant, sent_s)
                    elif not is_forged:
                        self.told.fence_refused(grant, row.error_code, self.world.seconds())
            self._answered(grant, sent_s, response)

        self._pool.carry(self, address, request, answered, lambda: self._failed(grant))

    def _failed(self, grant: Told) -> None:
        self._is_fetching = False
        self.lose_touch(grant)

    def _answered(self, grant: Told, asked_s: float, response: FetchResponse) -> None:
        self.history.operations += 1
        self._is_fetching = False
        for topic in response.responses:
            for row in topic.partitions:
                if row.error_code != ErrorCode.NONE:
                    self.lose_touch(grant)
                    continue
                self._read.answered(grant, asked_s)
                for offset, values in self._reading.got(grant.place, row):
                    self._read.got(grant, offset, values)
