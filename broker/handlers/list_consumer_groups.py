"""ListConsumerGroups (key 30012, the client rewrite's ListGroups): groups whose partitions the server
assigns, each with its members and with the broker that is its controller.

Any broker accepts the request and asks the coordinators of the groups that it names, or all brokers. Missing
groups are left out, and so are those that the client may not describe. If a broker fails, the response has
its error and the groups of the other brokers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.groups.forwarding import Forwarding
from holdfast_log.broker.requests.handler import Handler, RequestContext, refusal
from holdfast_log.coordinator.groups.effects import ManagedListAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.group_membership import (
    ControllerBroker,
    GroupInfo,
    ListConsumerGroupsRequest,
    ListConsumerGroupsResponse,
)

_Response: TypeAlias = ListConsumerGroupsResponse


@dataclass(eq=False)
class ListConsumerGroupsHandler(Handler[ListConsumerGroupsRequest, ListConsumerGroupsResponse]):
    request = ListConsumerGroupsRequest
    groups: GroupService
    forwarding: Forwarding
    identity: BrokerIdentity

    def handle(self, context: RequestContext, request: ListConsumerGroupsRequest) -> Deferred[_Response]:
        return self._listed(context, request).addCallback(_visible, context)

    def _listed(self, context: RequestContext, request: ListConsumerGroupsRequest) -> Deferred[_Response]:
        if request.forwarded:
            return self._mine(request.consumer_groups)
        listener = context.listener or self.identity.inter_broker_listener
        names = list(dict.fromkeys(request.consumer_groups))
        return self._from_everywhere(names).addCallback(self._with_controllers, listener)

    def _from_everywhere(self, names: list[str]) -> Deferred[_Response]:
        if not names:
            return gatherResults(
                [self._ask(broker_id, []) for broker_id in self.forwarding.brokers()]
            ).addCallback(_merged)
        return ensureDeferred(self._from_coordinators(names))

    async def _from_coordinators(self, names: list[str]) -> _Response:
        """Ask each broker once, for all groups that it coordinates: it looks through all its groups."""
        by_broker: dict[int, list[str]] = {}
        answers: list[_Response] = []
        for name in names:
            try:
                by_broker.setdefault(await self.forwarding.find(name), []).append(name)
            except BrokerError as error:
                answers.append(ListConsumerGroupsResponse(groups_info=[], error_code=error.code))
        answers += await gatherResults([self._ask(*each) for each in by_broker.items()])
        return _merged(answers)

    def _ask(self, broker_id: int, names: list[str]) -> Deferred[_Response]:
        if broker_id == self.forwarding.local_id:
            return self._mine(names)
        request = ListConsumerGroupsRequest(consumer_groups=names, forwarded=True)
        return self.forwarding.send(broker_id, request).addErrback(_failed)

    def _mine(self, names: list[str]) -> Deferred[_Response]:
        return self.groups.ask_all(
            lambda shard, waiting, _: shard.managed.list_groups(waiting, frozenset(names))
        ).addCallback(self._response)

    def _response(self, answered: tuple[list[ManagedListAnswer], ErrorCode]) -> _Response:
        answers, error = answered
        controller = ControllerBroker(broker_id=self.forwarding.local_id, host="", port=-1)
        return ListConsumerGroupsResponse(
            groups_info=[
                GroupInfo(
                    group_name=group.group_id,
                    group_members=list(group.members),
                    topics=list(group.topics),
                    controller_broker=controller,
                    session_timeout=group.session_timeout_ms,
                    single_reader=group.single_reader,
                )
                for answer in answers
                for group in answer.groups
            ],
            error_code=error,
        )

    def _with_controllers(self, response: _Response, listener: str) -> _Response:
        """Add the addresses of the controllers on the listener that the client uses."""
        for group in response.groups_info:
            broker_id = group.controller_broker.broker_id
            host, port = self.forwarding.endpoint(broker_id, listener)
            group.controller_broker = ControllerBroker(broker_id=broker_id, host=host, port=port)
        return response

    def failed(
        self, context: RequestContext, request: ListConsumerGroupsRequest, error: BrokerError
    ) -> _Response:
        return ListConsumerGroupsResponse(groups_info=[], error_code=error.code)


def _visible(response: _Response, context: RequestContext) -> _Response:
    """Without the groups that the client may not describe."""
    if not context.may(AclOperation.DESCRIBE, AclResource.CLUSTER, is_noted=False):
        describe, kind = AclOperation.DESCRIBE, AclResource.GROUP
        response.groups_info = [
            group
            for group in response.groups_info
            if context.may(describe, kind, group.group_name, is_noted=False)
        ]
    return response


def _merged(responses: list[_Response]) -> _Response:
    errors = [response.error_code for response in responses if response.error_code != ErrorCode.NONE]
    return ListConsumerGroupsResponse(
        groups_info=[group for response in responses for group in response.groups_info],
        error_code=errors[0] if errors else ErrorCode.NONE,
    )


def _failed(failure: Failure) -> Deferred[_Response]:
    return succeed(ListConsumerGroupsResponse(groups_info=[], error_code=refusal(failure).code))
