"""Renew (key 30022, own API): an owner extends its session, and gets its standings.

If these have not changed since its last Renew, the response waits for up to `max_wait_ms`. Many resources are
looked at in several turns of the reactor.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.limits import CONNECTION_RESOURCES_MAX
from holdfast_log.broker.ownership.renewals import AT_ONCE, AnswerAtOnce, ManyStandings
from holdfast_log.broker.ownership.resources import NamedGrant, Requester
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import (
    HeldResource,
    RenewRequest,
    RenewResponse,
    ResourceStanding,
)

_ROW_BYTES = 128
"""The price of a standing in a turn: more than its bytes, since it takes longer to find than to encode."""


@dataclass(eq=False)
class RenewHandler(Handler[RenewRequest, RenewResponse]):
    request = RenewRequest
    elements_max = CONNECTION_RESOURCES_MAX
    ownership: OwnershipService
    answers: LongAnswers

    def handle(self, context: RequestContext, request: RenewRequest) -> Deferred[RenewResponse]:
        requests.check_resources(request.group, request.resources)
        rights.check_member(context, request.group)
        requester = requests.requester_of(context, request.group, request.owner_id, secret=request.secret)
        connection = requests.connection_of(context)
        if len(request.resources) > AT_ONCE:
            return ensureDeferred(self._renew_many(context, connection, requester, request))
        judge = rights.may_keep(context, request.group)

        def renew(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            named = [NamedGrant(key, each.incarnation) for each, key in found]
            # Answer without waiting: the client must ask other brokers about some of its resources.
            max_wait_ms = request.max_wait_ms if len(found) == len(request.resources) else 0
            return self.ownership.renew(connection, requester, named, max_wait_ms)

        standings = requests.for_each(self.ownership.decided, request.group, request.resources, renew, judge)
        return standings.addCallback(
            lambda answers: RenewResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    async def _renew_many(
        self,
        context: RequestContext,
        connection: ServerConnection,
        requester: Requester,
        request: RenewRequest,
    ) -> RenewResponse:
        await requests.read_names(self.ownership.decided, request.group, request.resources)
        judge = rights.may_keep(context, request.group)

        def standings(start: int, end: int) -> Standings:
            looked_at = [self._standing(requester, each, judge) for each in request.resources[start:end]]
            if any(named is None for named, _ in looked_at):
                raise AnswerAtOnce
            return [standing for _, standing in looked_at]

        count, max_wait_ms = len(request.resources), request.max_wait_ms
        await self.ownership.await_many(connection, requester, count, standings, max_wait_ms)
        answered = ManyStandings(is_answered=True)
        with self.answers.begin(context, RenewResponse) as answer:
            rows = answer.rows(ResourceStanding)
            for resource in request.resources:
                if not await answer.afford(_ROW_BYTES):
                    raise answer.too_long
                named, standing = self._standing(requester, resource, judge)
                if named is not None:
                    self.ownership.answered(requester, named)
                answered.add((standing,))
                rows.add(standing)
            self.ownership.answered_many(requester, answered)
            return RenewResponse(group=request.group, error_code=ErrorCode.NONE, resources=rows.finish())

    def _standing(
        self, requester: Requester, resource: HeldResource, judge: requests.Judge
    ) -> tuple[NamedGrant | None, ResourceStanding]:
        """The owner's standing with one of many resources; None if `judge` does not allow it,
        or this broker does not decide about it."""
        denied = judge(resource)
        if denied is not None:
            return None, requests.unlocated(resource, denied)
        try:
            key = self.ownership.decided.locate(requester.group, resource.name, resource.partition)
        except BrokerError as error:
            return None, requests.unlocated(resource, error)
        named = NamedGrant(key, resource.incarnation)
        return named, self.ownership.look(requester, named)

    def failed(self, context: RequestContext, request: RenewRequest, error: BrokerError) -> RenewResponse:
        return RenewResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
