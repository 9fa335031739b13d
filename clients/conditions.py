"""Conditional batches (KIP-27): written only where the log ends at the offset that they expect.

What an application sends for a partition it sends in the belief that what it sent before is written. So the
first condition that does not hold refuses all conditional batches of the partition that are queued or under
way by then: none may land by chance at an offset that another has filled up to. A broker sees to that too, by
numbered attempts: after any refusal it refuses what is of the same attempt, and the next has to begin.
"""

from __future__ import annotations

from clients.batch import Batch
from clients.errors import ConnectionFailedError
from clients.queues import PartitionQueue
from protocol.errors import BrokerError, ErrorCode, OffsetMismatchError, error_for
from protocol.messages.produce import PartitionProduceResponse

FEATURE = "holdfast.expected.offset"
NO_EXPECTATION = -1
NO_ATTEMPT = -1


def refusal(row: PartitionProduceResponse) -> BrokerError:
    """The error that a partition was answered with; of a condition, with where the log ends."""
    if row.error_code == ErrorCode.OFFSET_MISMATCH:
        return OffsetMismatchError(
            ErrorCode.OFFSET_MISMATCH, row.error_message, row.next_offset, row.last_leader_epoch
        )
    return error_for(row.error_code, row.error_message)


def judged(queue: PartitionQueue, batch: Batch, error: Exception) -> Exception:
    """What an error in answer to a conditional batch comes to, for this batch and those behind it."""
    if batch.mismatch is not None:
        return batch.mismatch
    follows_another = batch.attempt < queue.attempt
    queue.attempt = max(queue.attempt, batch.attempt + 1)
    if isinstance(error, OffsetMismatchError):
        if follows_another:
            # Refused because one before it was, for a reason that has passed; its own turn is yet to come.
            return ConnectionFailedError(f"sent behind a batch that was refused; {error}")
        for other in (*queue.in_flight, *queue.batches):
            if other is not batch and other.expected_offset != NO_EXPECTATION:
                other.mismatch = other.mismatch or error
    return error
