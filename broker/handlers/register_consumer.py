"""RegisterConsumer (key 30013, client rewrite): join a group, or register again in its rebalance.

The response, with the partitions to own and the offsets to start from, waits until all members that the
rebalance concerns have registered.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.groups.effects import RegisterAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.group_membership import (
    PartitionToOwn,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
)


@dataclass(eq=False)
class RegisterConsumerHandler(Handler[RegisterConsumerRequest, RegisterConsumerResponse]):
    request = RegisterConsumerRequest
    groups: GroupService

    def handle(
        self, context: RequestContext, request: RegisterConsumerRequest
    ) -> Deferred[RegisterConsumerResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.consumer_group)
        return self.groups.ask(
            request.consumer_group,
            lambda shard, waiting, now_ms: shard.managed.register_consumer(
                waiting,
                request.consumer_group,
                consumer_id=request.consumer_id,
                client_id=context.client_id,
                client_host=context.client_host,
                now_ms=now_ms,
            ),
        ).addCallback(lambda answer: _response(request, answer))

    def failed(
        self, context: RequestContext, request: RegisterConsumerRequest, error: BrokerError
    ) -> RegisterConsumerResponse:
        return _response(request, RegisterAnswer(error.code))


def _response(request: RegisterConsumerRequest, answer: RegisterAnswer) -> RegisterConsumerResponse:
    return RegisterConsumerResponse(
        consumer_group=request.consumer_group,
        partitions_to_own=[
            PartitionToOwn(
                topic=owned.partition.topic, partition=owned.partition.partition, offset=owned.offset
            )
            for owned in answer.partitions_to_own
        ],
        error_code=answer.error,
        controller_generation=answer.generation,
        single_reader=answer.single_reader,
    )
