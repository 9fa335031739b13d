"""Checks all conditions of a produce request (KIP-27) in a fake broker before it appends any batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_log.clients.sending.conditions import FEATURE, KEY_VERSIONS_FEATURE
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from holdfast_log.protocol.records import iterate
from holdfast_log.protocol.schema import received_records

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_broker import FakeBroker
    from holdfast_log.testing.fakes.fake_partition import FakePartition

_Place = tuple[str, int]
_Answers = dict[_Place, PartitionProduceResponse]


class FakeConditions:
    """Checks conditions for one broker. `refused` is the last attempt refused in each partition."""

    def __init__(self) -> None:
        self.refused: dict[_Place, int] = {}

    def judge(self, broker: FakeBroker, request: ProduceRequest) -> _Answers:
        """The answers of all partitions if the request is refused; otherwise none."""
        if FEATURE not in broker.features and KEY_VERSIONS_FEATURE not in broker.features:
            return {}
        rows = {
            (topic.name, data.index): data for topic in request.topic_data for data in topic.partition_data
        }
        answers: _Answers = {}
        for place, data in rows.items():
            partition = broker.cluster.partition(*place)
            if partition is None or partition.leader != broker.node:
                answers[place] = PartitionProduceResponse(
                    index=data.index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
                )
            elif _is_conditional(data) and data.expected_topic_id != broker.cluster.topic_ids[place[0]]:
                answers[place] = PartitionProduceResponse(
                    index=data.index, error_code=ErrorCode.INCONSISTENT_TOPIC_ID, base_offset=-1
                )
            elif data.expected_versions and not _is_duplicate(partition, data):
                mismatched = _mismatched(partition, data)
                if mismatched:
                    answers[place] = PartitionProduceResponse(
                        index=data.index,
                        error_code=ErrorCode.KEY_VERSION_MISMATCH,
                        base_offset=-1,
                        key_versions=mismatched,
                    )
            elif data.expected_offset >= 0 and not _is_duplicate(partition, data):
                ids_from = partition.producers.append_ids.known_from
                if data.append_id and ids_from > data.id_unused_before >= 0:
                    answers[place] = PartitionProduceResponse(
                        index=data.index,
                        error_code=ErrorCode.APPEND_ID_UNKNOWN,
                        base_offset=-1,
                        next_offset=partition.end_offset,
                        last_leader_epoch=partition.leader_epoch,
                        append_ids_from=ids_from,
                    )
                    continue
                is_poisoned = data.attempt <= self.refused.get(place, -1)
                if is_poisoned or data.expected_offset != partition.end_offset:
                    answers[place] = PartitionProduceResponse(
                        index=data.index,
                        error_code=ErrorCode.OFFSET_MISMATCH,
                        base_offset=-1,
                        next_offset=partition.end_offset,
                        last_leader_epoch=partition.leader_epoch,
                        append_ids_from=ids_from if data.append_id else -1,
                    )
        if not any(_is_conditional(rows[place]) for place in answers):
            return {}
        for place, data in rows.items():
            partition = broker.cluster.partition(*place)
            if partition is not None and _is_duplicate(partition, data):
                continue
            if data.expected_offset >= 0:
                self.refused[place] = max(self.refused.get(place, -1), data.attempt)
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            answers.setdefault(
                place, PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
            )
        return answers


def _is_conditional(data: PartitionProduceData) -> bool:
    return data.expected_offset >= 0 or bool(data.expected_versions)


def _mismatched(partition: FakePartition, data: PartitionProduceData) -> list[KeyVersion]:
    assert data.records is not None
    keys = [record.key for record in iterate(received_records(data.records))]
    last = {record.key: record.offset for batch in partition.batches for record in iterate(batch)}
    return [
        KeyVersion(record=each.record, version=last.get(keys[each.record], -1))
        for each in data.expected_versions
        if last.get(keys[each.record], -1) != each.version
    ]


def _is_duplicate(partition: FakePartition, data: PartitionProduceData) -> bool:
    return data.records is not None and partition.has_seen(received_records(data.records))
