"""TxnOffsetCommit (key 28): offsets of a group that count once a transaction is committed (KIP-98).

Versions: from 2 on the leader epoch of the last record read is kept with an offset, from 3 on the request
names the committing member (KIP-447). Up to 4 the transaction must have the partition that stores the group,
by AddOffsetsToTxn; from 5 on this broker adds it (KIP-890). Before 4 a transaction that does not have it is
answered INVALID_TXN_STATE.

A client needs the right to write under the transactional id, to read the group, and each topic. Partitions
that the committing consumer says to own and has lost are refused, as in OffsetCommit.

A request of many partitions is handled in parts, each of which is verified by itself: the transaction may end
between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.commit_rows import offsets_of, owner_tokens, response_rows
from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.requests.handler import Handler, RequestContext, RowPaths
from holdfast_log.broker.transactions.answers import check_transactional_id, known_error
from holdfast_log.broker.transactions.group_guards import GroupGuards
from holdfast_log.broker.transactions.verification import CoordinatorVerifier
from holdfast_log.coordinator.groups.effects import PartitionErrorsAnswer
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS = 5


@dataclass(eq=False)
class TxnOffsetCommitHandler(Handler[TxnOffsetCommitRequest, TxnOffsetCommitResponse]):
    request = TxnOffsetCommitRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    whole_rows_max = 100
    groups: GroupService
    metadata: MetadataCache
    committers: CommitterCheck
    topic: OffsetsTopic
    verifier: CoordinatorVerifier
    guards: GroupGuards

    def handle(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> Deferred[TxnOffsetCommitResponse]:
        context.check(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        check_transactional_id(request.transactional_id)
        return ensureDeferred(self._commit(context, request))

    async def _commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        refused = self._refused(context, request)

        def is_taken(partition: TopicPartition) -> bool:
            return partition not in refused

        if request.topics and not offsets_of(request.topics, is_taken):
            return _response(request, refused.items())
        tokens = owner_tokens(request.topics, self.metadata.topic_id, is_taken)
        index = self.topic.partition_of(request.group_id)
        if index is None:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        check = self.guards.begin(index, request.producer_id)
        try:
            await self._verify(context, request, index)
            if request.owner_group is not None and tokens:
                # The last question: the offsets are stored before another request is handled.
                lost = await self.committers.lost(request.group_id, request.owner_group, tokens)
                fenced = ErrorCode.OWNERSHIP_FENCED
                refused.update({TopicPartition(key.topic, key.index): fenced for key in lost})
        finally:
            may_be_open = self.guards.end(check)
        if not may_be_open:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        offsets = offsets_of(request.topics, is_taken)
        if request.topics and not offsets:
            return _response(request, refused.items())
        answer: PartitionErrorsAnswer = await self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.commit_offsets(
                waiting,
                request.group_id,
                offsets,
                now_ms=now_ms,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                stamp=ProducerStamp(request.producer_id, request.producer_epoch),
            ),
        )
        return _response(request, [*answer.partitions, *refused.items()])

    async def _verify(self, context: RequestContext, request: TxnOffsetCommitRequest, index: int) -> None:
        """Raises BrokerError unless the transaction has the partition that stores the group."""
        partition = TopicPartition(OFFSETS_TOPIC, index)
        adds = context.version >= _FIRST_VERSION_THAT_ADDS
        errors = await self.verifier.verify(
            request.transactional_id, request.producer_id, request.producer_epoch, (partition,), adds=adds
        )
        knows_abortable = context.version >= _FIRST_VERSION_WITH_ABORTABLE
        # As Kafka: this request has never told of fenced producers in the newer word.
        error = known_error(errors[partition], knows_fenced=False, knows_abortable=knows_abortable)
        if error is ErrorCode.NOT_COORDINATOR:
            # Of transactions. The client has asked the coordinator of the group, which is right.
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            raise BrokerError(error)

    def _refused(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> dict[TopicPartition, ErrorCode]:
        """The errors of partitions that do not exist, or that the client may not read."""
        refused = {}
        for topic in request.topics:
            may_read = context.may(AclOperation.READ, AclResource.TOPIC, topic.name)
            for wanted in topic.partitions:
                partition = TopicPartition(topic.name, wanted.partition_index)
                if not may_read:
                    refused[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif self.metadata.partition(*partition) is None:
                    refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def failed(
        self, context: RequestContext, request: TxnOffsetCommitRequest, error: BrokerError
    ) -> TxnOffsetCommitResponse:
        return _response(request, (), error.code)


def _response(
    request: TxnOffsetCommitRequest,
    outcomes: Iterable[tuple[TopicPartition, ErrorCode]],
    *others: ErrorCode,
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0, topics=response_rows(request.topics, outcomes, *others)
    )
