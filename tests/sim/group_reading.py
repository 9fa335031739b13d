"""Reads of a simulated member in a group with single readers: it attaches to each leader, then fetches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.messages.group_readers import (
    AttachReaderRequest,
    AttachReaderResponse,
    ReadPartitions,
)
from tests.sim.client import RETRY_S
from tests.sim.consumer import NAMES_VERSION
from tests.sim.history import TopicPartition
from tests.sim.member import Member
from tests.sim.reader_history import ReaderHistory

_PAUSE_S = 0.5


class Reading:
    """The reads of one member in one generation, until the member learns that the generation has ended."""

    def __init__(self, member: Member, told: ReaderHistory, partitions: Iterable[TopicPartition]) -> None:
        self.is_over = False
        self._member = member
        self._told = told
        self._generation = member.generation
        self._attached: dict[TopicPartition, Any] = {}
        """Object that identifies the connection on which the member attached to the partition's leader."""
        self._unread = dict.fromkeys(partitions)
        for at in list(self._unread):
            self._go_on(at)

    @property
    def is_complete(self) -> bool:
        """Whether the member has read from each partition."""
        return not self._unread

    def _go_on(self, at: TopicPartition) -> None:
        if self.is_over:
            return
        leader = self._member.leader_of(at)
        if leader is None:
            self._later(at)
            return
        address, epoch = leader
        line = self._member.line_to(address)
        if line is not None and self._attached.get(at) is line:
            self._fetch(at, address, epoch)
        else:
            self._attach(at, address)

    def _later(self, at: TopicPartition) -> None:
        self._member.later(RETRY_S, self._go_on, at)

    def _stumble(self, at: TopicPartition) -> None:
        self._attached.pop(at, None)
        self._member.refresh()
        self._later(at)

    def _attach(self, at: TopicPartition, address: Address) -> None:
        request = AttachReaderRequest(
            group=self._member.group,
            member_id=self._member.member_id,
            generation=self._generation,
            topics=[ReadPartitions(topic=at[0], partitions=[at[1]])],
        )

        def attached(response: AttachReaderResponse) -> None:
            codes = [row.error_code for row in response.partitions]
            if codes == [ErrorCode.NONE]:
                self._attached[at] = self._member.line_to(address)
                self._go_on(at)
            else:
                self._stumble(at)

        self._member.send(address, request).addCallbacks(attached, lambda _: self._stumble(at))

    def _fetch(self, at: TopicPartition, address: Address, epoch: int) -> None:
        wanted = FetchPartition(
            partition=at[1], current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1024
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1024,
            topics=[FetchTopic(topic=at[0], partitions=[wanted])],
            forgotten_topics_data=[],
        )
        clock = self._member.world.clock
        sent_s = clock.seconds()

        def answered(response: FetchResponse) -> None:
            self._member.history.operations += 1
            code = response.error_code or response.responses[0].partitions[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                self._told.answered(
                    self._member.name,
                    self._member.group,
                    at,
                    self._generation,
                    epoch,
                    sent_s,
                    clock.seconds(),
                )
                self._unread.pop(at, None)
                self._member.later(_PAUSE_S * self._member.rng.uniform(0.3, 1.5), self._go_on, at)
                return
            self._told.refused += code == ErrorCode.OWNERSHIP_FENCED
            self._stumble(at)

        self._member.send(address, request, NAMES_VERSION).addCallbacks(answered, lambda _: self._stumble(at))
