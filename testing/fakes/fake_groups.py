"""The group coordinator of a fake cluster: the broker's own handlers and group shard on simulated time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.commit_rows import offsets_of
from holdfast_log.broker.groups.forwarding import Forwarding
from holdfast_log.broker.ownership.committers import CommitterCheck, may_commit
from holdfast_log.broker.requests.handler import RequestContext, refusal
from holdfast_log.broker.transactions.verification import CoordinatorVerifier
from holdfast_log.clients.groups.coordinator import GROUP_KEY_TYPE
from holdfast_log.coordinator.groups.effects import (
    DescribeAnswer,
    OffsetsAnswer,
    PartitionErrorsAnswer,
    ReaderClaim,
)
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.coordinator.ownership.records import PartitionKey, decode_ownership
from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.coordinator.shards.hosted_shard import ShardEvent
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages import group_membership as membership
from holdfast_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from holdfast_log.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.handlers import AnswerParts, AnswersAtOnce, handlers_about
from holdfast_log.testing.fakes.shard_host import ShardHost

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster

VERSIONS = {
    8: (2, 9), 9: (1, 9), 10: (0, 4), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5),
    15: (0, 5), 16: (0, 5), 42: (0, 2), 47: (0, 0), 68: (0, 1), 69: (0, 1),
}  # fmt: skip
FEATURES = {membership.FEATURE: 1}
ANYWHERE = (FindCoordinatorRequest, membership.ListConsumerGroupsRequest, membership.CreateGroupRequest)
"""Requests that any broker answers."""


class FakeGroups(ShardHost):
    """All groups of a fake cluster, coordinated by broker `node`. It may move to another broker.

    The handlers use it as their `GroupService`.
    """

    def __init__(self, cluster: FakeCluster, config: GroupSettings) -> None:
        self.node = min(cluster.brokers)
        self.config = config
        self._cluster = cluster
        self._ids = itertools.count(1)
        self._requests = itertools.count(1)
        self._waiting: dict[int, Deferred[Any]] = {}
        """Deferreds that fire with the shard's answer, by request token."""
        self._failures: list[Failure] = []
        """Unexpected exceptions of handlers, which the next `tick` raises in the test."""
        self._asked = self.node
        """The broker whose request is being handled."""
        parts = _Parts(
            cast(GroupService, self),
            cast(MetadataCache, cluster),
            cast(Forwarding, _Forwarding(self)),
            BrokerIdentity(self.node, "fake", "PLAINTEXT"),
            cast(CommitterCheck, _Committers(cluster)),
        )
        # Those of transactions are in `fake_transactions`.
        self._handlers = {
            each.request.api.key: each
            for each in handlers_about(
                GroupService, parts, AnswerParts(AnswersAtOnce()), without=CoordinatorVerifier
            )
        }
        super().__init__()

    # The surroundings of the machine

    def time_ms(self) -> int:
        return 1_000_000 + self._cluster.time_ms

    def tick(self) -> None:
        """Carry out everything that is due."""
        for failure in self._failures:
            failure.raiseException()
        self.perform(self.shard.tick(self.time_ms()))

    def next_ms(self) -> int | None:
        """Time of the next due event on the cluster's clock."""
        due_ms = self.shard.next_deadline_ms()
        return None if due_ms is None else due_ms - 1_000_000

    def topics_changed(self, *topics: str) -> None:
        self.perform(self.shard.topics_changed(topics, self.time_ms()))

    def move(self, node: int) -> None:
        """Make `node` the coordinator: it reads the log, and waiting requests get NOT_COORDINATOR."""
        self.node = node
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.errback(BrokerError(ErrorCode.NOT_COORDINATOR))
        self.fail_over()

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Commit offsets without being a member of the group."""
        rows = [OffsetToCommit(TopicPartition(*where), offset) for where, offset in offsets.items()]
        self.perform(self.shard.commit_offsets(next(self._requests), group, rows, now_ms=self.time_ms()))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        result = self.shard.fetch_offsets("look", group, None)
        for _, answer in result.replies:
            assert isinstance(answer, OffsetsAnswer)
            found = {tuple(row.partition): row.offset for row in answer.offsets}  # type: ignore[misc]
        return found

    def state(self, group: str) -> str:
        ((_, answer),) = self.shard.describe_group("look", group).replies
        assert isinstance(answer, DescribeAnswer)
        return answer.state

    def new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            new_id=lambda: f"{next(self._ids):04}",
            partition_count=lambda topic: len(self._cluster.topics.get(topic, ())),
            cluster=_Topics(self._cluster),
        )

    def claim(self, claims: Sequence[ReaderClaim]) -> None:
        self._cluster.readers.claim(claims)

    def reply(self, request: Any, answer: Any) -> None:
        done = self._waiting.pop(request, None)
        if done is not None:
            done.callback(answer)

    # Transactions

    def commit_in_transaction(
        self, node: int, request: TxnOffsetCommitRequest
    ) -> dict[TopicPartition, ErrorCode]:
        """Take offsets that count once the transaction is committed; returns the errors of partitions."""
        offsets = offsets_of(request.topics, lambda _: True)
        if node != self.node:
            return {each.partition: ErrorCode.NOT_COORDINATOR for each in offsets}
        stamp = ProducerStamp(request.producer_id, request.producer_epoch)
        result = self.shard.commit_offsets(
            next(self._requests),
            request.group_id,
            offsets,
            now_ms=self.time_ms(),
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            stamp=stamp,
        )
        self.perform(result)
        (reply,) = result.replies
        assert isinstance(reply.answer, PartitionErrorsAnswer)
        return dict(reply.answer.partitions)

    def transaction_ended(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction coordinator has written its marker to the groups' partition."""
        ended = self.open.pop(producer_id, [])
        self.log += [record for _, record in ended] if is_commit else []
        self.perform(self.shard.transaction_ended(producer_id, is_commit=is_commit, now_ms=self.time_ms()))

    # Called by the handlers

    def ask(self, group_id: str, event: ShardEvent[GroupShard]) -> Deferred[Any]:
        if self._asked != self.node:
            return fail(BrokerError(ErrorCode.NOT_COORDINATOR))
        token = next(self._requests)
        done = self._waiting[token] = Deferred()
        self.perform(event(self.shard, token, self.time_ms()))
        return done

    def ask_all(self, event: ShardEvent[GroupShard]) -> Deferred[tuple[list[Any], ErrorCode]]:
        if self._asked != self.node:
            return succeed(([], ErrorCode.NONE))
        return self.ask("", event).addCallback(lambda answer: ([answer], ErrorCode.NONE))

    # Requests

    def handles(self, request: Request[Any]) -> bool:
        return request.api.key in VERSIONS or request.api.feature in FEATURES

    def handle(
        self,
        node: int,
        request: Request[Any],
        error: ErrorCode,
        version: int,
        client_id: str,
        sink: Callable[[Any], None],
    ) -> None:
        """Call `sink` with the response, now or when the shard has an answer."""
        if isinstance(request, FindCoordinatorRequest):
            sink(self._found(request, error))
            return
        handler = self._handlers[request.api.key]
        context = _Context(version, client_id, None)
        if error is not ErrorCode.NONE:
            sink(handler.failed(context, request, BrokerError(error)))
            return
        self._asked = self.node if isinstance(request, ANYWHERE) else node
        answer: Any = handler.handle(context, request)
        answer.addErrback(lambda failure: handler.failed(context, request, refusal(failure)))
        answer.addCallback(sink).addErrback(self._failures.append)

    def _found(self, request: FindCoordinatorRequest, error: ErrorCode) -> Response:
        is_of_groups = request.key_type == GROUP_KEY_TYPE
        node = self.node if is_of_groups else self._cluster.transactions.node
        host, port = f"broker-{node}", 9092
        rows = [
            FoundCoordinator(key=key, node_id=node, host=host, port=port, error_code=error)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(error_code=0, node_id=0, host="", port=0, coordinators=rows)


@dataclass(frozen=True)
class _Parts:
    """The parts that the handlers require, found by type."""

    groups: GroupService
    metadata: MetadataCache
    forwarding: Forwarding
    identity: BrokerIdentity
    committers: CommitterCheck


class _Topics:
    """The topics of the cluster, for consumer groups."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def topic_id(self, name: str) -> UUID:
        return self._cluster.topic_ids[name] if name in self._cluster.topics else ZERO_UUID

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topics.get(topic, ()))

    def topic_names(self) -> Iterable[str]:
        return [*self._cluster.topics]


class _Committers:
    """Reads the grants in the fake cluster's ZooKeeper."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def positions_read(self, committing_group: str) -> None:
        """Checks take no time here, so none is under way."""

    def lost(
        self, committing_group: str, group: str, tokens: Mapping[PartitionKey, int]
    ) -> Deferred[set[PartitionKey]]:
        znodes = self._cluster.ownership.znodes
        records = {key: decode_ownership(key.path, znodes[key][0]) for key in tokens if key in znodes}
        return succeed(
            {key for key, token in tokens.items() if not may_commit(records.get(key), group, token)}
        )


class _Forwarding:
    """Sends nothing: the broker that a client asks acts as the coordinator itself."""

    def __init__(self, groups: FakeGroups) -> None:
        self._groups = groups

    @property
    def local_id(self) -> int:
        return self._groups.node

    def find(self, group_id: str) -> Deferred[int]:
        return succeed(self.local_id)

    def brokers(self) -> Sequence[int]:
        return [self.local_id]

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int]:
        return f"broker-{broker_id}", 9092


class _Context(RequestContext):
    """A client's request: the handlers return their answers, so nothing is sent through it."""

    __slots__ = ()

    @property
    def client_host(self) -> str:
        return "/127.0.0.1"
