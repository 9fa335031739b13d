"""Conditional batches (KIP-27): written only if the log ends at the offset that they expect.

An application sends each conditional message on the assumption that those before it are written. So the first
condition that does not hold fails all conditional batches of the partition that are queued or under way: none
may be written by chance because another producer has filled the log up to its offset. The broker ensures the
same by numbered attempts: after a refusal it refuses everything of the same attempt.

A batch may have guards: other partitions of the same leader, whose logs must end at given offsets as well.
They are sent in the same request, without records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.errors import (
    ConnectionFailedError,
    GuardElsewhereError,
    GuardMismatchError,
    TopicRecreatedError,
)
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.expectations import Guard
from holdfast_log.clients.sending.queues import PartitionQueue, Queues
from holdfast_log.protocol.errors import (
    AppendIdUnknownError,
    BrokerError,
    ErrorCode,
    InvalidRecordError,
    KeyVersionMismatchError,
    OffsetMismatchError,
    error_for,
)
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

FEATURE = "holdfast.expected.offset"
KEY_VERSIONS_FEATURE = "holdfast.key.versions"
APPEND_IDS_FEATURE = "holdfast.append.ids"
APPEND_IDS_VERSION = 2
"""Brokers of version 1 append again what they have forgotten."""
NO_EXPECTATION = -1

Rows = Mapping[tuple[str, int], PartitionProduceResponse]
"""A response's rows, by topic and partition."""


def refusal(row: PartitionProduceResponse) -> BrokerError:
    """The error in a partition's answer; for a condition, with the offset at which the log ends, or the
    versions of keys."""
    if row.error_code == ErrorCode.OFFSET_MISMATCH:
        return OffsetMismatchError(
            ErrorCode.OFFSET_MISMATCH,
            row.error_message,
            row.next_offset,
            row.last_leader_epoch,
            row.append_ids_from,
        )
    if row.error_code == ErrorCode.APPEND_ID_UNKNOWN:
        return AppendIdUnknownError(
            ErrorCode.APPEND_ID_UNKNOWN,
            row.error_message,
            row.next_offset,
            row.last_leader_epoch,
            row.append_ids_from,
        )
    if row.error_code == ErrorCode.KEY_VERSION_MISMATCH:
        return KeyVersionMismatchError(
            ErrorCode.KEY_VERSION_MISMATCH,
            row.error_message,
            [(each.record, each.version) for each in row.key_versions],
        )
    if row.error_code == ErrorCode.INVALID_RECORD:
        return InvalidRecordError(
            ErrorCode.INVALID_RECORD,
            row.error_message,
            [(each.batch_index, each.batch_index_error_message) for each in row.record_errors],
        )
    return error_for(row.error_code, row.error_message)


def judged(queue: PartitionQueue, batch: Batch, error: Exception) -> Exception:
    """The error to use for a refused conditional batch; also marks the batches that depend on it."""
    if batch.mismatch is not None:
        return batch.mismatch
    follows_another = batch.attempt < queue.attempt
    queue.attempt = max(queue.attempt, batch.attempt + 1)
    if isinstance(error, OffsetMismatchError) and follows_another:
        # Refused only because one before it was, for a reason that has passed: to be sent again.
        return ConnectionFailedError(f"sent behind a batch that was refused; {error}")
    if isinstance(error, OffsetMismatchError | GuardMismatchError | GuardElsewhereError):
        poison((each for each in (*queue.in_flight, *queue.batches) if each is not batch), error)
    return error


def poison(batches: Iterable[Batch], error: Exception) -> None:
    """Mark the conditional batches among these to fail with an error."""
    for batch in batches:
        if batch.expected_offset != NO_EXPECTATION:
            batch.mismatch = batch.mismatch or error


# Guards -----------------------------------------------------------------------------------------------


def number_guards(queues: Queues, batch: Batch) -> None:
    """Give the guards of a batch that is about to be sent the attempts of their partitions."""
    for guard in batch.guards:
        topic, partition = guard.partition
        guard.attempt = queues.topic(topic).queue(partition).attempt


def recreated(queues: Queues, batch: Batch, metadata: Metadata) -> Exception | None:
    """Why a conditional batch means a topic that no longer exists; None if the metadata does not say so.

    The error is final once renewed metadata says the same.

    The first batch that is about to be sent, of each partition, decides which topic is meant from then on.
    """
    queue = queues.queue_of(batch)
    batch.topic_id = batch.topic_id if batch.topic_id != ZERO_UUID else _meant(queue, metadata)
    if _is_recreated(queue, batch.topic_id, metadata):
        # The application may have named the id of a topic that is newer than this producer's metadata.
        if batch.doubted_since < 0:
            batch.doubted_since = metadata.update_count
        if batch.doubted_since == metadata.update_count:
            return ConnectionFailedError(f"looking whether topic {batch.topic} has id {batch.topic_id} now")
        queue.topic_id = metadata.topic_id(queue.topic)
        return _recreated_error(batch, batch.topic)
    for guard in batch.guards:
        topic, partition = guard.partition
        queue = queues.topic(topic).queue(partition)
        guard.topic_id = guard.topic_id if guard.topic_id != ZERO_UUID else _meant(queue, metadata)
        if _is_recreated(queue, guard.topic_id, metadata):
            queue.topic_id = metadata.topic_id(queue.topic)
            return _recreated_error(batch, f"{topic} of its guard")
    return None


def _meant(queue: PartitionQueue, metadata: Metadata) -> UUID:
    if queue.topic_id == ZERO_UUID:
        queue.topic_id = metadata.topic_id(queue.topic)
    return queue.topic_id


def _is_recreated(queue: PartitionQueue, meant: UUID, metadata: Metadata) -> bool:
    present = metadata.topic_id(queue.topic)
    return ZERO_UUID not in (meant, present) and meant != present


def _recreated_error(batch: Batch, topic: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        f"a conditional message for {batch.topic}-{batch.partition} is not in its log: topic {topic} was "
        "deleted and created again, so the expected offset or version is one of another log. Read the new "
        "one, and send the message again if it still applies"
    )


def misplaced(batch: Batch, node: int, metadata: Metadata) -> Exception | None:
    """Why the leader of a batch's partition cannot judge its guards; None if it can.

    The error is final once renewed metadata says the same. A batch that may be in the log already is sent all
    the same: the broker acknowledges a written batch whatever its guards.
    """
    for guard in batch.guards:
        metadata.want(guard.partition.topic)
        leader = metadata.leader(*guard.partition)
        if leader == node:
            guard.elsewhere_since = -1
            continue
        if leader == NO_NODE:
            return ConnectionFailedError(f"the leader of {guard.partition}, a guard, is unknown")
        if guard.elsewhere_since < 0:
            guard.elsewhere_since = metadata.update_count
        error = _elsewhere(batch, guard)
        if guard.elsewhere_since == metadata.update_count:
            return ConnectionFailedError(str(error))
        if not batch.attempts:
            return error
    return None


def _elsewhere(batch: Batch, guard: Guard) -> GuardElsewhereError:
    return GuardElsewhereError(
        f"{batch.topic}-{batch.partition} and its guard {guard.partition} have different leaders: a broker "
        "can judge only what it leads. Guard by a partition with the same leader"
    )


def refused_by_guards(queues: Queues, batch: Batch, rows: Rows) -> Exception | None:
    """Why a batch was not attempted, if its guards were the reason; else None."""
    mismatched: dict[TopicPartition, PartitionProduceResponse] = {}
    error: Exception | None = None
    for guard in batch.guards:
        row = rows.get(guard.partition)
        if row is None or row.error_code == ErrorCode.NONE:
            continue
        topic, partition = guard.partition
        queue = queues.topic(topic).queue(partition)
        queue.attempt = max(queue.attempt, guard.attempt + 1)
        if row.error_code == ErrorCode.OFFSET_MISMATCH and row.next_offset != guard.expected_offset:
            mismatched[guard.partition] = row
        elif row.error_code == ErrorCode.OFFSET_MISMATCH:
            error = ConnectionFailedError(f"sent behind a batch for {guard.partition} that was refused")
        elif row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and guard.elsewhere_since >= 0:
            error = _elsewhere(batch, guard)
        elif row.error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
            error = error_for(row.error_code, f"{guard.partition}, a guard: {row.error_message}")
    if not mismatched:
        return error
    ends = "; ".join(row.error_message or f"{key} ends elsewhere" for key, row in mismatched.items())
    message = f"nothing was appended to {batch.topic}-{batch.partition}: a guard does not hold: {ends}"
    return GuardMismatchError(message, {key: row.next_offset for key, row in mismatched.items()})
