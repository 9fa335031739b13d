"""What a shard returns for an event, in the parts that every shard has.

`HostedShard` performs them in this order:

1. append `records` to the shard's partition, in one batch, before the shard sees its next event. If the log
   refuses them (nothing was written), pass the result to `Shard.refused`;
2. wait until everything appended by this and earlier results is committed (the high watermark has passed it).
   A result without records waits too: its answers may depend on records of an earlier result;
3. perform `claims`, at the leaders of partitions;
4. send `replies`.

If the wait of step 2 times out or leadership of the partition moves, the requests are answered with an error.
The state stays, because the log has the records: a broker that loses leadership discards the shard, and the
next leader reads the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from holdfast_log.protocol.errors import ErrorCode

RequestToken: TypeAlias = Any
"""The caller's token for one pending request. Opaque to the shard; never None."""


class MalformedRecord(ValueError):
    """A record of the topic whose bytes do not match the version of its key or value."""


class ShardRecord(NamedTuple):
    """One record of a shard's partition; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


class ProducerStamp(NamedTuple):
    """The transactional producer on whose behalf records are written: they count once it commits."""

    producer_id: int
    producer_epoch: int


class ShardReply(NamedTuple):
    request: RequestToken
    answer: object


class Decision(NamedTuple):
    """The position of a coordinator's decision: leader epoch and log end offset of the shard's partition.

    A later decision compares greater, also across coordinators and when a group is deleted and created again.
    """

    leader_epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """The answer to any request whose records the log refused."""

    error: ErrorCode


class OversizedRecords(NamedTuple):
    """What the records of a result that are too large for the log are about, and the error to answer."""

    names: str
    error: ErrorCode


class ShardEffects(Protocol):
    """The effects of one event."""

    @property
    def records(self) -> Sequence[ShardRecord]: ...

    @property
    def stamp(self) -> ProducerStamp | None:
        """The producer of a transaction that `records` belong to; None: they count at once."""
        ...

    @property
    def claims(self) -> Sequence[Any]: ...

    replies: list[ShardReply]


class Claimer(Protocol):
    """Does at partition leaders what a shard has decided."""

    def claim(self, claims: Sequence[Any], decision: Decision) -> Deferred[None]:
        """Begin with claims. Fires when requests that depend on them may be answered. Never fails."""
        ...

    def close(self) -> None:
        """Stop: the next coordinator makes its own."""
        ...
