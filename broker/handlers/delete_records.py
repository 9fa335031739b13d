"""DeleteRecords (key 21): raise a partition's log start offset, and answer once all live replicas have done
so durably (KIP-107). Offset -1 stands for the high watermark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.replication.record_deletions import RecordDeletion, RecordDeletions
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.broker.settings.rows import BROKER_ROWS
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)


@settings_group(BROKER_ROWS)
@dataclass(frozen=True, slots=True)
class DeleteRecordsSettings:
    """Maximum time that a request waits for replicas, even if its timeout is longer."""

    timeout_ms_max: Annotated[int, "delete.records.purgatory.timeout.ms"]


@dataclass(eq=False)
class DeleteRecordsHandler(Handler[DeleteRecordsRequest, DeleteRecordsResponse]):
    request = DeleteRecordsRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    elements_max = ANY_ELEMENTS
    deletions: RecordDeletions
    replicas: Replicas
    settings: DeleteRecordsSettings

    def handle(self, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse | None:
        deletions = [deletion for topic in request.topics for deletion in self._begin(context, topic)]
        self.deletions.tell_readers(deletions)
        missing: dict[Hashable, RecordDeletion] = {
            (deletion.topic, deletion.index): deletion
            for deletion in deletions
            if not self.deletions.is_done(deletion)
        }
        if not missing:
            return _response(deletions)

        def check(key: Hashable) -> bool:
            deletion = missing.get(key)
            if deletion is not None and self.deletions.is_done(deletion):
                del missing[key]
                if not missing:
                    context.answer(_response(deletions))
            return not missing

        def expire() -> None:
            for deletion in missing.values():
                deletion.error = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
            context.answer(_response(deletions))

        timeout_ms = min(request.timeout_ms, self.settings.timeout_ms_max)
        self.replicas.deleters.park(list(missing), timeout_ms, check, expire)
        return None

    def _begin(self, context: RequestContext, topic: DeleteRecordsTopic) -> Iterator[RecordDeletion]:
        denied = context.denial(AclOperation.DELETE, AclResource.TOPIC, topic.name)
        for wanted in topic.partitions:
            if denied is None:
                yield self.deletions.begin(topic.name, wanted.partition_index, wanted.offset)
            else:
                yield RecordDeletion(topic.name, wanted.partition_index, wanted.offset, error=denied)

    def failed(
        self, context: RequestContext, request: DeleteRecordsRequest, error: BrokerError
    ) -> DeleteRecordsResponse:
        return _response(
            [
                RecordDeletion(topic.name, wanted.partition_index, wanted.offset, error=error)
                for topic in request.topics
                for wanted in topic.partitions
            ]
        )


def _response(deletions: list[RecordDeletion]) -> DeleteRecordsResponse:
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for deletion in deletions:
        topics.setdefault(deletion.topic, []).append(
            DeleteRecordsPartitionResult(
                partition_index=deletion.index,
                low_watermark=deletion.low_watermark if deletion.error is None else -1,
                error_code=ErrorCode.NONE if deletion.error is None else deletion.error.code,
            )
        )
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )
