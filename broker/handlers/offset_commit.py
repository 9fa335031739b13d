"""OffsetCommit (key 8): store the offsets up to which a group has read. The response comes once all in-sync
replicas have them.

Versions: 2 to 4 say how long to keep the offsets, in place of `offsets.retention.minutes`; from 6 on the
leader epoch of the last record read is kept with an offset (KIP-320), from 7 on members may be static.
Members of consumer groups use 9 (KIP-848): a lower version cannot tell them that their epoch is behind.

Each partition succeeds or fails on its own: one that does not exist is refused here, and so is one that the
committing consumer says to own and has lost. A client needs the right to read the group, and each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.commit_rows import offsets_of, owner_tokens, response_rows
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
from holdfast_log.coordinator.groups.effects import PartitionErrorsAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.ownership.records import PartitionKey
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_VERSION_WITH_EPOCHS = 9


@dataclass(eq=False)
class OffsetCommitHandler(Handler[OffsetCommitRequest, OffsetCommitResponse]):
    request = OffsetCommitRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    parts_overlap = True
    elements_max = ANY_ELEMENTS
    groups: GroupService
    metadata: MetadataCache
    committers: CommitterCheck

    def handle(self, context: RequestContext, request: OffsetCommitRequest) -> Deferred[OffsetCommitResponse]:
        context.check(AclOperation.READ, AclResource.GROUP, request.group_id)
        refused = {
            TopicPartition(topic.name, wanted.partition_index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for topic in request.topics
            if not context.may(AclOperation.READ, AclResource.TOPIC, topic.name)
            for wanted in topic.partitions
        }
        tokens = owner_tokens(request.topics, self.metadata.topic_id, self._exists)
        if request.owner_group is None or not tokens:
            return self._commit(context.version, request, refused)
        lost = self.committers.lost(request.group_id, request.owner_group, tokens)
        return lost.addCallback(
            lambda keys: self._commit(context.version, request, {**_fenced(keys), **refused})
        )

    def _exists(self, partition: TopicPartition) -> bool:
        return self.metadata.partition(*partition) is not None

    def _commit(
        self, version: int, request: OffsetCommitRequest, refused: Mapping[TopicPartition, ErrorCode]
    ) -> Deferred[OffsetCommitResponse]:
        """Store the offsets of all partitions but those `refused`, which the consumer has lost to another
        owner or may not read."""
        offsets = offsets_of(
            request.topics, lambda partition: self._exists(partition) and partition not in refused
        )
        if request.topics and not offsets:
            return succeed(_response(request, refused.items()))
        retention_ms = None if request.retention_time_ms < 0 else request.retention_time_ms

        def answered(answer: PartitionErrorsAnswer) -> OffsetCommitResponse:
            told = [(partition, _known(error, version)) for partition, error in answer.partitions]
            return _response(request, [*told, *refused.items()])

        return self.groups.ask(
            request.group_id,
            lambda shard, waiting, now_ms: shard.commit_offsets(
                waiting,
                request.group_id,
                offsets,
                now_ms=now_ms,
                generation=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                retention_ms=retention_ms,
            ),
        ).addCallback(answered)

    def failed(
        self, context: RequestContext, request: OffsetCommitRequest, error: BrokerError
    ) -> OffsetCommitResponse:
        return _response(request, (), error.code)


def _known(error: ErrorCode, version: int) -> ErrorCode:
    """The error in the terms of a version: those before KIP-848 have no stale epochs."""
    is_new = error is ErrorCode.STALE_MEMBER_EPOCH and version < _FIRST_VERSION_WITH_EPOCHS
    return ErrorCode.UNSUPPORTED_VERSION if is_new else error


def _fenced(keys: Iterable[PartitionKey]) -> dict[TopicPartition, ErrorCode]:
    return {TopicPartition(key.topic, key.index): ErrorCode.OWNERSHIP_FENCED for key in keys}


def _response(
    request: OffsetCommitRequest,
    outcomes: Iterable[tuple[TopicPartition, ErrorCode]],
    *others: ErrorCode,
) -> OffsetCommitResponse:
    return OffsetCommitResponse(throttle_time_ms=0, topics=response_rows(request.topics, outcomes, *others))
