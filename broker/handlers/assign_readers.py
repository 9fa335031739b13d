"""AssignReaders (key 30027, between brokers): a group's coordinator decides which member reads a partition.

The leader answers when the decision is durable and in force: it then refuses fetches of the previous member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.readers import AssignReaders, NewReader
from holdfast_log.broker.ownership.requests import RESOURCES_MAX
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext, refusal
from holdfast_log.coordinator.ownership.records import Owner, PartitionKey, ReaderAssignment
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.group_readers import (
    AssignedReader,
    AssignReadersRequest,
    AssignReadersResponse,
    PartitionNotAssigned,
)
from holdfast_log.protocol.messages.ownership import Access

_TIMEOUT_MS = 4_000
"""Timeout in ms after which the coordinator sends its decision again."""
_SHOWN_MAX = 200
"""Characters kept of a client id and of a host, which are for display only."""


@dataclass(eq=False)
class AssignReadersHandler(Handler[AssignReadersRequest, AssignReadersResponse]):
    request = AssignReadersRequest
    ownership: OwnershipService

    def handle(
        self, context: RequestContext, request: AssignReadersRequest
    ) -> Deferred[AssignReadersResponse]:
        refused: list[PartitionNotAssigned] = []
        portions = _portions(self._located(request, refused))

        def answered(outcomes: list[list[PartitionNotAssigned]]) -> AssignReadersResponse:
            for rows in outcomes:
                refused.extend(rows)
            return AssignReadersResponse(error_code=ErrorCode.NONE, refused=refused)

        return gatherResults([self._assign(portion) for portion in portions]).addCallback(answered)

    def _assign(self, portion: Sequence[NewReader]) -> Deferred[list[PartitionNotAssigned]]:
        """Assign the readers of a portion. Returns those that are not in force. Never fails."""

        def answered(standings: Standings) -> list[PartitionNotAssigned]:
            return [
                _row(
                    each.group,
                    each.key,
                    BrokerError(ErrorCode(standing.error_code), standing.error_message),
                )
                for each, standing in zip(portion, standings, strict=True)
                if standing.error_code != ErrorCode.NONE
            ]

        def failed(failure: Failure) -> list[PartitionNotAssigned]:
            error = refusal(failure)
            return [_row(each.group, each.key, error) for each in portion]

        return self.ownership.submit(None, AssignReaders(portion), _TIMEOUT_MS).addCallbacks(answered, failed)

    def _located(
        self, request: AssignReadersRequest, refused: list[PartitionNotAssigned]
    ) -> Iterator[NewReader]:
        for reader in request.readers:
            owner = _owner(reader)
            for topic in reader.topics:
                for index in topic.partitions:
                    try:
                        key = self.ownership.decided.locate(reader.group, topic.topic, index)
                    except BrokerError as error:
                        refused.append(_row(reader.group, PartitionKey(ZERO_ID, index, topic.topic), error))
                        continue
                    if isinstance(key, PartitionKey):
                        yield NewReader(key, reader.group, owner)

    def failed(
        self, context: RequestContext, request: AssignReadersRequest, error: BrokerError
    ) -> AssignReadersResponse:
        return AssignReadersResponse(error_code=error.code, error_message=error.message, refused=[])


def _owner(reader: AssignedReader) -> Owner:
    return Owner(
        reader.member_id,
        reader.client_id[:_SHOWN_MAX],
        "",
        reader.client_host[:_SHOWN_MAX],
        0,
        Access.READ,
        assignment=ReaderAssignment(reader.decided_epoch, reader.decided_offset, reader.generation),
    )


def _portions(readers: Iterator[NewReader]) -> list[list[NewReader]]:
    """The readers, in portions that can be written together. Each portion names a partition once."""
    portions: list[list[NewReader]] = []
    keys: set[PartitionKey] = set()
    for each in readers:
        if not portions or each.key in keys or len(keys) == RESOURCES_MAX:
            portions.append([])
            keys = set()
        portions[-1].append(each)
        keys.add(each.key)
    return portions


def _row(group: str, key: PartitionKey, error: BrokerError) -> PartitionNotAssigned:
    return PartitionNotAssigned(
        group=group, topic=key.topic, partition=key.index, error_code=error.code, error_message=error.message
    )
