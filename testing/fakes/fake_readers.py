"""Reader claims at the leaders of a fake cluster, for groups with single readers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast_log.coordinator.groups.effects import ReaderClaim
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.group_readers import (
    AttachedPartition,
    AttachReaderRequest,
    AttachReaderResponse,
)

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_broker import FakeChannel

_Where = tuple[str, int]


class FakeReaders:
    """The reader claims of a fake cluster's groups, and the channels on which their members attached.

    While `is_held_up`, claims do not reach the leaders; `catch_up` delivers them.
    """

    def __init__(self) -> None:
        self.is_held_up = False
        self.assigned: dict[tuple[str, _Where], tuple[str, int]] = {}
        """By group and partition: the reading member, and its first generation."""
        self._attached: dict[tuple[str, _Where], FakeChannel] = {}
        self._named: dict[FakeChannel, dict[str, None]] = {}
        self._untold: list[ReaderClaim] = []

    def claim(self, claims: Iterable[ReaderClaim]) -> None:
        """Send the coordinator's claims to the leaders."""
        self._untold += claims
        if not self.is_held_up:
            self.catch_up()

    def catch_up(self) -> None:
        self.is_held_up = False
        untold, self._untold = self._untold, []
        for claim in untold:
            key = (claim.group_id, (claim.partition.topic, claim.partition.partition))
            assigned = (claim.reader.member_id, claim.generation)
            if self.assigned.get(key) != assigned:
                self.assigned[key] = assigned
                self.forget(*key)

    def forget(self, group: str, where: _Where) -> None:
        """Detach the reader of a partition."""
        self._attached.pop((group, where), None)

    def attach(
        self, channel: FakeChannel, request: AttachReaderRequest, leads: Iterable[_Where]
    ) -> AttachReaderResponse:
        """Answer a member that declares itself the reader on this channel."""
        self._named.setdefault(channel, {})[request.group] = None
        led = set(leads)
        rows = []
        for topic in request.topics:
            for number in topic.partitions:
                where = (topic.topic, number)
                code = self._code(request, where) if where in led else ErrorCode.NOT_LEADER_OR_FOLLOWER
                if code is ErrorCode.NONE:
                    self._attached[request.group, where] = channel
                rows.append(AttachedPartition(topic=topic.topic, partition=number, error_code=code))
        return AttachReaderResponse(error_code=0, partitions=rows)

    def _code(self, request: AttachReaderRequest, where: _Where) -> ErrorCode:
        member_id, generation = self.assigned.get((request.group, where), ("", -1))
        if member_id == request.member_id and generation <= request.generation:
            return ErrorCode.NONE
        is_news = generation < request.generation
        return ErrorCode.CLAIM_QUEUED if is_news else ErrorCode.OWNERSHIP_FENCED

    def may_read(self, channel: FakeChannel, where: _Where) -> bool:
        """Whether a fetch on this channel may read a partition."""
        named = self._named.get(channel, ())
        read = [(group, where) for group in named if self.assigned.get((group, where), ("", -1))[0]]
        return all(self._attached.get(key) is channel for key in read)
