"""Events of clients, as values, and their delivery to the application."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """Something that an application may want to log; each kind has a subclass.

    `node` is a broker's id, -1 if the broker is only known by its address; `address` is host:port.
    """


@dataclass(frozen=True, slots=True)
class ConnectionOpened(Event):
    """A connection was established: requests can be sent on it."""

    node: int
    address: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed(Event):
    """Connecting failed. The client tries again, after a pause, when it has something to send."""

    node: int
    address: str
    error: Exception


@dataclass(frozen=True, slots=True)
class ConnectionLost(Event):
    """An established connection broke, or was closed because a response took too long."""

    node: int
    address: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """A broker throttles this client: nothing is sent to it for `throttle_ms`."""

    node: int
    address: str
    api: str
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class LeaderMoved(Event):
    """The leader of a partition has changed; -1 means none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    leader_before: int


@dataclass(frozen=True, slots=True)
class BatchRetried(Event):
    """A batch was not acknowledged, and will be sent again. `attempts` have been made so far."""

    topic: str
    partition: int
    records: int
    attempts: int
    error: Exception


@dataclass(frozen=True, slots=True)
class BatchSplit(Event):
    """A batch was too large for the broker, and will be sent as two."""

    topic: str
    partition: int
    records: int
    error: Exception


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """A batch failed for good; the responses of its records have the error. `partition` is -1 if none was
    chosen yet."""

    topic: str
    partition: int
    records: int
    error: Exception


@dataclass(frozen=True, slots=True)
class RebalanceBegan(Event):
    """The group is rebalancing, or this consumer is joining it."""

    group: str


@dataclass(frozen=True, slots=True)
class RebalanceEnded(Event):
    """The rebalance has ended: this consumer has been assigned its partitions."""

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    took_ms: int


@dataclass(frozen=True, slots=True)
class PartitionWithheld(Event):
    """The leader of an assigned partition refuses this consumer's fetches, for the reason in `error`. Mostly
    a rebalance that this consumer has not noticed yet has given the partition to another member."""

    topic: str
    partition: int
    error: Exception


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """Offsets were not committed, by `commit` or automatically."""

    group: str
    partitions: tuple[TopicPartition, ...]
    error: Exception


@dataclass(frozen=True, slots=True)
class TopicUnknown(Event):
    """A topic that the consumer should read does not exist, or the partition of it; `partition` is -1 for the
    whole topic. It is read as soon as it exists."""

    topic: str
    partition: int
    error: Exception


@dataclass(frozen=True, slots=True)
class RecordSkipped(Event):
    """A deserializer raised for a record, and the consumer left the record out, because
    `deserialization.errors` is skip. `error` is a RecordDeserializationError with the raw record."""

    topic: str
    partition: int
    offset: int
    error: Exception


@dataclass(frozen=True, slots=True)
class RecordDeadLettered(Event):
    """A deserializer raised for a record, and the consumer's `dead_letter` has stored it. `error` is a
    RecordDeserializationError with the raw record."""

    topic: str
    partition: int
    offset: int
    error: Exception


@dataclass(frozen=True, slots=True)
class BatchSkipped(Event):
    """A fetched batch is damaged, and the consumer goes on behind it, because `on.corrupt.batch` is skip: it
    returns no record from `offset` to before `next_offset`. `error` says what is damaged."""

    topic: str
    partition: int
    offset: int
    next_offset: int
    error: Exception


@dataclass(frozen=True, slots=True)
class PositionReset(Event):
    """The log has no record at the consumer's position `offset`: the consumer continues elsewhere, as
    `auto.offset.reset` says, or, if the log was truncated, at the offset where it diverged."""

    topic: str
    partition: int
    offset: int
    error: Exception


OnEvent: TypeAlias = Callable[[Event], object]
"""An application's `on_event`.

The thread that runs the client's event loop calls it between two steps, without any lock: a producer's
background thread, or the caller of any other client. It may call the client's `feedback()`, and no method
that waits for the loop. An exception that it raises goes to `sys.excepthook`, and the client continues.
"""


class Events:
    """Queue of events for the application: added when they happen, delivered when no lock is held."""

    __slots__ = ("_is_telling", "_on_event", "_untold", "is_held")

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._on_event = on_event
        self._untold: deque[Event] = deque()
        self._is_telling = False
        self.is_held = False
        """Whether `tell` keeps the events: the thread that runs the loop is not the application's."""

    def note(self, event: Event) -> None:
        """Keep an event for delivery, if the application has given an `on_event`."""
        if self._on_event is not None:
            self._untold.append(event)

    def tell(self) -> None:
        """Deliver the events noted so far, unless they are held. Does nothing if called by `on_event`."""
        if not self._untold or self._on_event is None or self._is_telling or self.is_held:
            return
        self._is_telling = True
        try:
            while self._untold:
                try:
                    self._on_event(self._untold.popleft())
                except Exception:
                    sys.excepthook(*sys.exc_info())  # An error of the application must not stop the client.
        finally:
            self._is_telling = False
