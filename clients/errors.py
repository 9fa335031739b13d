"""Errors of the client itself; errors that brokers answer are in `protocol.errors`.

Every exception of both families has `retriable`: whether another attempt may succeed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.records import Headers
from holdfast_log.protocol.topic_partition import TopicPartition


class ClientError(Exception):
    """An error of the client itself, not of a broker."""

    retriable: bool = False


class ConfigError(ClientError):
    """A property is unknown or has an invalid value; the message says what is allowed."""


class ConnectionProblem(enum.Enum):
    """What is wrong with a connection."""

    NAME_NOT_FOUND = "the host name has no address"
    REFUSED = "nothing listens at the address"
    UNREACHABLE = "the host does not answer"
    SILENT = "connected, but the first request gets no answer"
    CLOSED_EARLY = "closed by the server before its first answer; the port may expect TLS or SASL"
    TLS_EXPECTED = "the server speaks TLS, the client does not"
    TLS_FAILED = "the client speaks TLS, and the handshake failed"
    CERTIFICATE = "the server's certificate is not trusted"
    NOT_KAFKA = "the server speaks another protocol"
    LOST = "an established connection broke"


class ConnectionFailedError(ClientError):
    """Connecting failed, or the connection broke before the response: the request may have been carried
    out. The message has the address, the cause and what to do; `problem` has the cause for programs."""

    retriable = True

    def __init__(self, message: str, problem: ConnectionProblem = ConnectionProblem.LOST) -> None:
        super().__init__(message)
        self.problem = problem


class NoBrokerError(ConnectionFailedError):
    """None of the bootstrap servers answers; the message names each and its error."""


class UnreachableError(ClientError):
    """No broker has ever answered this client, for `bootstrap.timeout.ms`; the message has the error of
    each."""


class RequestTimeoutError(ClientError):
    """No response within the time given. The request may have been carried out."""

    retriable = True


class UnsupportedRequestError(ClientError):
    """The broker speaks no version of the request that this client can encode."""


class ClosedError(ClientError):
    """The client was closed before or during the call."""


class BufferFullError(ClientError):
    """`buffer.memory` was used up for all of `max.block.ms`: the brokers are too slow or do not answer."""

    retriable = True


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`. It may have been written."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of one partition that were not delivered for one cause. `partition` is None if none was chosen
    yet; `error` is the first error of its kind."""

    topic: str
    partition: int | None
    count: int
    error: Exception

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"{self.count} to {place}: {type(self.error).__name__}: {self.error}"


_LOSSES_SHOWN = 5


class UndeliveredError(ClientError):
    """Messages were not delivered, and the application has looked at none of their responses.

    Raised by `flush`, by `close` and at the end of a producer's `with` block. `count` is how many there are,
    `losses` has them by partition and cause. Each is reported once.
    """

    def __init__(self, losses: Iterable[Loss]) -> None:
        self.losses = tuple(losses)
        self.count = sum(loss.count for loss in self.losses)
        counted = "1 message was" if self.count == 1 else f"{self.count} messages were"
        largest = sorted(self.losses, key=lambda loss: -loss.count)[:_LOSSES_SHOWN]
        rest = len(self.losses) - len(largest)
        more = [f"and {rest} more partitions or causes"] if rest else []
        super().__init__("; ".join([f"{counted} not delivered: {largest[0]}", *map(str, largest[1:]), *more]))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.losses,), vars(self)


class WrongLoopError(ClientError):
    """An asyncio client was used in another event loop than its own: make one in each loop."""


class InsideCallbackError(ClientError):
    """A call that waits for the producer's thread was made in that thread, inside a callback: it would wait
    for ever."""


class ForkedError(ClientError):
    """A producer was used in a forked process, in which the thread that sends does not exist."""


class RecordTooLargeError(ClientError):
    """A record is larger than `max.request.size`, or than all of `buffer.memory`."""


class NoOffsetError(ClientError):
    """A partition has no position to read from, and `auto.offset.reset` is none."""


class LogTruncatedError(ClientError):
    """Records that a consumer has read are no longer in the log: an unclean election has removed them."""


class CommitFailedError(ClientError):
    """Offsets were not committed, because the group has rebalanced without this consumer, or is about to, or
    because the consumer has left the group: `poll` was not called for `max.poll.interval.ms`.

    Committing again cannot help. The next `poll` joins the group again, and the consumers that get the
    partitions read the records again.
    """


class ConcurrentUseError(ClientError):
    """Two threads of the application use a consumer at once (Kafka's ConcurrentModificationException); the
    message names both calls."""


class ForkedConsumerError(ClientError):
    """The process that uses the consumer was forked from the one that made it."""


class RecordDeserializationError(ClientError):
    """A consumer's deserializer raised for a record (KIP-334, KIP-1036); `__cause__` is what it raised.

    `poll` has returned all records of the partition before this one, and returns none after it until the
    application decides: `seek` to the next offset leaves the record out, `seek` to the same offset tries
    again. `deserialization.errors` decides for all records in advance.
    """

    def __init__(self, record: ConsumerRecord, part: str, reason: str) -> None:
        super().__init__(record, part, reason)
        self.record = record
        """The record with its key and value as bytes."""
        self.part = part
        """Which part cannot be read: "key" or "value"."""
        self.dead_letter_error: Exception | None = None
        """Why the record could not be dead-lettered. The next `poll` tries again."""

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """The record's time in ms since the epoch."""
        return self.record.timestamp

    @property
    def headers(self) -> Headers:
        return self.record.headers

    @property
    def key(self) -> bytes | None:
        raw: bytes | None = self.record.key
        return raw

    @property
    def value(self) -> bytes | None:
        raw: bytes | None = self.record.value
        return raw

    def __str__(self) -> str:
        what = (
            f"{self.topic}-{self.partition} at offset {self.offset}: the deserializer of the {self.part} "
            f"failed ({self.args[2]})"
        )
        if self.dead_letter_error is not None:
            failure = self.dead_letter_error
            return (
                f"{what}, and the dead letter could not be stored ({type(failure).__name__}: {failure}); "
                "the next poll() tries again"
            )
        return (
            f"{what}; the partition stops here: seek() to offset {self.offset + 1} to leave the record out, "
            f"seek() to {self.offset} to try again, or set deserialization.errors to skip or dead-letter"
        )


class NoGroupError(ClientError):
    """The call needs a consumer with a `group.id`."""


class GuardMismatchError(BrokerError):
    """A guard of a conditional message did not hold, and nothing was written (KIP-27).

    `next_offsets` has the offsets at which the logs of the failed guards end; everything before is committed.
    """

    def __init__(self, message: str, next_offsets: Mapping[TopicPartition, int]) -> None:
        super().__init__(ErrorCode.OFFSET_MISMATCH, message)
        self.next_offsets = next_offsets

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.next_offsets), vars(self)


class GuardElsewhereError(ClientError):
    """A guard of a conditional message has another leader than the message's partition, and only a broker
    that leads both can judge them. Nothing was written."""


class TopicRecreatedError(ClientError):
    """The topic of a conditional message, or of its guard, was deleted and created again since this producer
    began to send conditional messages to it. An offset in the old log says nothing about the new one.

    The message is not in the new log. The producer means the new topic with the messages that are sent from
    now on: find the end of its log first.
    """


class TransactionStateError(ClientError):
    """The producer's transaction does not allow the call at present, for example a message outside of any
    transaction; the message says what to call first."""


class TransactionAbortedError(ClientError):
    """A message was not written, or does not count, because the transaction that it is part of is aborted."""


class CommitUnknownError(ClientError):
    """Whether the transaction was committed is not known: the coordinator was told to commit it, and has not
    said that it did. Either all of it counts, now or later, or none of it.

    A consumer with `isolation.level=read_committed` sees which. Until then do not send the messages again.
    """


def with_cause(what: str, *causes: object) -> str:
    """The text of an error that says what happened, and the causes that are known: None and "" are none."""
    return "; ".join([what, *(str(cause) for cause in causes if cause is not None and str(cause))])


def is_retriable(error: Exception) -> bool:
    """Whether another attempt may succeed. False for exceptions of neither family, which are bugs."""
    return isinstance(error, ClientError | BrokerError) and error.retriable


def is_fenced(error: Exception) -> bool:
    """Whether another producer has taken over, so that this one can write nothing any more."""
    return isinstance(error, BrokerError) and error.code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )
