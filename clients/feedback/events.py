"""What happens to a client, as values, and the way on which the application is told."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened, and that an application may want to log. What it is, its type tells.

    `node` is a broker's id, -1 where the broker is only known by its address; `address` is host:port.
    """


@dataclass(frozen=True, slots=True)
class ConnectionOpened(Event):
    """A connection stands: requests can be sent on it."""

    node: int
    address: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed(Event):
    """A connection did not come about. It is tried again, after a pause, when there is something to send."""

    node: int
    address: str
    error: Exception


@dataclass(frozen=True, slots=True)
class ConnectionLost(Event):
    """A connection that stood has broken, or was given up since a response took too long."""

    node: int
    address: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """A broker's quota is used up: nothing is sent to it for so long."""

    node: int
    address: str
    api: str
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class LeaderMoved(Event):
    """Another broker leads a partition than before; -1 is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    leader_before: int


@dataclass(frozen=True, slots=True)
class BatchRetried(Event):
    """A batch was not acknowledged, and will be sent again. `attempts` are those that there were."""

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
    """A batch was given up; the responses of its records have the error. `partition` is -1 where they had
    not been given one."""

    topic: str
    partition: int
    records: int
    error: Exception


@dataclass(frozen=True, slots=True)
class RebalanceBegan(Event):
    """The group is about to share its partitions out, or this consumer to take part in it."""

    group: str


@dataclass(frozen=True, slots=True)
class RebalanceEnded(Event):
    """This consumer has its share of the group's partitions."""

    group: str
    generation: int
    partitions: tuple[TopicPartition, ...]
    took_ms: int


@dataclass(frozen=True, slots=True)
class PartitionWithheld(Event):
    """The leader of a partition that the group has given to this consumer does not let it read, `error` says
    why: mostly since another member has the partition by now, which the group is about to tell."""

    topic: str
    partition: int
    error: Exception


@dataclass(frozen=True, slots=True)
class CommitFailed(Event):
    """Offsets were not committed, whether somebody waited for that or not."""

    group: str
    partitions: tuple[TopicPartition, ...]
    error: Exception


@dataclass(frozen=True, slots=True)
class PositionReset(Event):
    """What was to be read next is not there: the consumer goes on elsewhere, by `auto.offset.reset` or, where
    a log was cut, with what stands there now. `offset` is where it was."""

    topic: str
    partition: int
    offset: int
    error: Exception


OnEvent: TypeAlias = Callable[[Event], object]
"""What an application gives as `on_event`.

It is called by the thread that runs the client's event loop, between two steps of it, without any lock: the
background thread of a producer, the caller of any other client. It may ask the client for `feedback()`; what
waits for the loop, it must not call. What it raises goes to `sys.excepthook`, and the client goes on.
"""


class Events:
    """Events on their way to the application. Noted where they happen, told where it does no harm."""

    __slots__ = ("_is_telling", "_on_event", "_untold")

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self._on_event = on_event
        self._untold: deque[Event] = deque()
        self._is_telling = False

    def note(self, event: Event) -> None:
        """Have the application be told, if it wants to know."""
        if self._on_event is not None:
            self._untold.append(event)

    def tell(self) -> None:
        """Tell what has been noted. Does nothing while it is being told."""
        if not self._untold or self._on_event is None or self._is_telling:
            return
        self._is_telling = True
        try:
            while self._untold:
                try:
                    self._on_event(self._untold.popleft())
                except Exception:
                    sys.excepthook(*sys.exc_info())  # An application's fault, which must not stop the client.
        finally:
            self._is_telling = False
