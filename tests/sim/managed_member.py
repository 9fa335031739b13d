"""A simulated member of the client rewrite's protocol: it registers, and the server assigns partitions."""

from __future__ import annotations

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.group_membership import (
    ConsumerHeartbeatRequest,
    CreateGroupRequest,
    CreateGroupResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
)
from tests.sim.client import RETRY_S
from tests.sim.group_reading import Reading
from tests.sim.member import REBALANCE_TIMEOUT_MS, SESSION_TIMEOUT_MS, Member


class ManagedMember(Member):
    """Creates its group if there is none, with single readers if `asks_single_readers` is set."""

    asks_single_readers = False
    reading: Reading | None = None

    def take_part(self) -> None:
        self.member_id = self.name
        request = RegisterConsumerRequest(consumer_group=self.group, consumer_id=self.member_id)
        self.ask(request, self._registered)

    def _registered(self, response: RegisterConsumerResponse) -> None:
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            self._create()
            return
        if response.error_code != ErrorCode.NONE:
            self.not_joined(response.error_code)
            return
        self.generation = response.controller_generation
        owned = {(row.topic, row.partition): row.offset for row in response.partitions_to_own}
        self.told.owns(self.name, self.group, self.generation, owned)
        self.begin_work(owned)
        if response.single_reader:
            self.reading = Reading(self, self.told.readers, owned)

    def stop_working(self) -> None:
        super().stop_working()
        if self.reading is not None:
            self.reading.is_over = True

    def _create(self) -> None:
        request = CreateGroupRequest(
            consumer_group=self.group,
            session_timeout=SESSION_TIMEOUT_MS,
            topics=[self.topic],
            single_reader=self.asks_single_readers,
        )
        self.ask(request, self._created)

    def _created(self, response: CreateGroupResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            self.join()
        else:
            self.later(RETRY_S, self.find)

    def heartbeat(self, coordinator: Address, turn: int) -> None:
        request = ConsumerHeartbeatRequest(
            session_timeout=SESSION_TIMEOUT_MS,
            consumer_group=self.group,
            consumer_id=self.member_id,
            controller_generation=self.generation,
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
        )
        self.send(coordinator, request).addCallbacks(
            lambda response: self.heard(turn, response.error_code), lambda failure: self.not_heard(turn)
        )
