"""What can go wrong on a client's own side; what a broker tells is in `protocol.errors`.

Every exception of both families has `retriable`: whether the same thing may succeed when tried again.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import BrokerError, ErrorCode
from protocol.topic_partition import TopicPartition


class ClientError(Exception):
    """Anything that a client gave up on without a broker's word."""

    retriable: bool = False


class ConfigError(ClientError):
    """A property is unknown or holds what it may not; the message says what is allowed."""


class ConnectionFailedError(ClientError):
    """No connection came about, or it broke before the response came: a request may or may not have run."""

    retriable = True


class NoBrokerError(ConnectionFailedError):
    """None of the bootstrap servers answers; the message names them and what each of them said."""


class UnreachableError(ClientError):
    """No broker has answered yet, for all of `bootstrap.timeout.ms`; the message says why, for each."""


class RequestTimeoutError(ClientError):
    """No response within the time given. The request may or may not have been carried out."""

    retriable = True


class UnsupportedRequestError(ClientError):
    """The broker knows no version of the request that this client can write."""


class ClosedError(ClientError):
    """The client was closed before, or while, this was asked of it."""


class BufferFullError(ClientError):
    """`buffer.memory` was used up for all of `max.block.ms`: the brokers do not keep up, or do not answer."""

    retriable = True


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`. It may or may not have been written."""


class RecordTooLargeError(ClientError):
    """A record is larger than `max.request.size`, or than all of `buffer.memory`."""


class NoOffsetError(ClientError):
    """A partition has no position to read from, and `auto.offset.reset` is none."""


class LogTruncatedError(ClientError):
    """Records that a consumer has read are no longer in the log: an unclean election has cut them off."""


class CommitFailedError(ClientError):
    """Offsets were not committed, because the group has gone on without this consumer, or is about to.

    Committing again cannot help; the next `poll` joins again, and the records come again to the member that
    owns their partitions then.
    """


class NoGroupError(ClientError):
    """Something was asked that only a consumer with a `group.id` can do."""


class GuardMismatchError(BrokerError):
    """A guard of a conditional message did not hold, and nothing was written (KIP-27).

    `next_offsets` is where the logs of the guards that failed end, and all before that is committed.
    """

    def __init__(self, message: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(ErrorCode.OFFSET_MISMATCH, message)
        self.next_offsets = next_offsets


class GuardElsewhereError(ClientError):
    """A guard of a conditional message is led by another broker than its partition, and only one that leads
    both can judge them together. Nothing was written."""


def is_retriable(error: Exception) -> bool:
    """Whether trying again may help, for an error of either family; anything else is a fault of our own."""
    return isinstance(error, ClientError | BrokerError) and error.retriable
