"""AttachReader (key 30028): a member of a group with single readers attaches its connection.

Each partition succeeds or fails separately. docs/consumer-groups.md has the rules. Answers leave a connection
in the order of its requests, so a fetch of this connection that waits for records is answered at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.readers import AttachReader
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.group_readers import (
    AttachedPartition,
    AttachReaderRequest,
    AttachReaderResponse,
)
from holdfast_log.protocol.messages.ownership import Access, HeldResource, ResourceStanding

_TIMEOUT_MS = 10_000
"""Timeout in ms of an attachment, which waits only for earlier operations on the same partitions."""

_PARTITIONS_MAX = 4_000
"""Maximum number of partitions that one request attaches: each takes ten microseconds of one turn."""


@dataclass(eq=False)
class AttachReaderHandler(Handler[AttachReaderRequest, AttachReaderResponse]):
    request = AttachReaderRequest
    ownership: OwnershipService

    def handle(self, context: RequestContext, request: AttachReaderRequest) -> Deferred[AttachReaderResponse]:
        requests.check_group(request.group)
        count = sum(len(topic.partitions) for topic in request.topics)
        if count > _PARTITIONS_MAX:
            text = (
                f"the request attaches {count} partitions; send several requests of {_PARTITIONS_MAX} at most"
            )
            raise BrokerError(ErrorCode.INVALID_REQUEST, text)
        resources = [
            HeldResource(name=topic.topic, partition=index, incarnation=-1)
            for topic in request.topics
            for index in topic.partitions
        ]
        requests.check_resources(request.group, resources)
        rights.check_member(context, request.group)
        requester = requests.requester_of(context, request.group, request.member_id)
        connection = requests.connection_of(context)

        self.ownership.end_waiting_fetches(connection)

        def submit(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            attach = AttachReader(requester, request.generation, [key for _, key in found])
            return self.ownership.submit(connection, attach, _TIMEOUT_MS)

        judge = rights.may_own(context, Access.READ)
        standings = requests.for_each(self.ownership.decided, request.group, resources, submit, judge)
        return standings.addCallback(
            lambda answers: AttachReaderResponse(error_code=0, partitions=[_row(each) for each in answers])
        )

    def failed(
        self, context: RequestContext, request: AttachReaderRequest, error: BrokerError
    ) -> AttachReaderResponse:
        return AttachReaderResponse(error_code=error.code, error_message=error.message, partitions=[])


def _row(standing: ResourceStanding) -> AttachedPartition:
    return AttachedPartition(
        topic=standing.name,
        partition=standing.partition,
        error_code=standing.error_code,
        error_message=standing.error_message,
        generation=standing.generation,
    )
