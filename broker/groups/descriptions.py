"""Descriptions of groups, for DescribeGroups and ConsumerGroupDescribe: who may ask, and each group once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred, gatherResults, succeed

from holdfast_log.broker.requests.handler import RequestContext, refusal
from holdfast_log.broker.requests.operations import NOT_ASKED, authorized_operations
from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.groups.shard import GroupShard
from holdfast_log.coordinator.shards.effects import RequestToken
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DescriptionApi(Generic[A, R]):
    """What differs between the APIs: how a shard is asked, and the row of the response for its answer, with
    the operations that the client may perform, or for an error."""

    ask: Callable[[GroupShard, RequestToken, str], ShardResult]
    described: Callable[[RequestContext, A, int], R]
    refused: Callable[[str, BrokerError], R]


def described_groups(
    context: RequestContext,
    groups: GroupService,
    api: DescriptionApi[A, R],
    group_ids: Iterable[str],
    *,
    with_operations: bool,
) -> Deferred[list[R]]:
    """The rows of the response, one for each group, however often it is named: a description may be a
    thousand times as long as a name."""

    def one(group_id: str) -> Deferred[R]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if denied is not None:
            return succeed(api.refused(group_id, denied))
        operations = NOT_ASKED
        if with_operations:
            operations = authorized_operations(context, AclResource.GROUP, group_id)
        return groups.ask(group_id, lambda shard, waiting, _: api.ask(shard, waiting, group_id)).addCallbacks(
            lambda answer: api.described(context, answer, operations),
            lambda failure: api.refused(group_id, refusal(failure)),
        )

    return gatherResults([one(group_id) for group_id in dict.fromkeys(group_ids)])
