"""The usual fetch of several partitions: answered, or kept until there are records for it, in few compiled
calls.

Usual is a consumer's fetch without a session, or in a session that goes on, if all partitions that it reads
are usual ones: this broker leads them, in the leader epoch that the fetch expects, nobody owns one who would
read it alone, and their records are in memory. In a session these are the partitions that may have news. For
all others `SeveralFetches.begin` does nothing; the handler, `Fetches`, `PlainFetch` and `SessionFetch` do
everything. They are the reference: for a usual fetch too they do the same, more slowly.

A fetch waits here if any record is enough for it (`fetch.min.bytes=1`). When a partition is woken, and when
the wait ends, it is read again by the same rules, so it may become an unusual one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeAlias, cast
from uuid import UUID

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_partitions import FetchSession
from holdfast_log.broker.replication.waiting import Waiting
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.frames import Part

_compiled = extension("_several_fetch", "broker.replication")
"""None where every fetch of several partitions is to be handled in Python."""

WantedRow: TypeAlias = tuple[str, UUID, int, int, int, int]
"""A partition that a fetch without a session reads: topic, topic id, index, leader epoch, offset, maximum of
bytes."""


class CompiledReads(Protocol):
    """What a fetch that waits reads: the compiled `Reads`."""

    session: FetchSession | None
    isolation: int
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    keys: tuple[Hashable, ...]
    """The partitions of a fetch without a session."""

    def look(self, key: Hashable, /) -> list[Part] | bool | None:
        """Read for the fetch, now that `key` has been woken. Returns the response to it, which is noted;
        False if it is not complete; None if it is not usual now, and then nothing was done."""
        ...

    def end(self) -> list[Part] | None:
        """Read for the fetch, whose wait ends, and return the response; None as for `look`."""
        ...

    def reads_from(self, key: Hashable, /) -> int:
        """See `waiting.Parked.reads_from`."""
        ...

    def rows(self) -> list[WantedRow]:
        """The partitions that a fetch without a session reads."""
        ...


class SeveralFetch:
    """A usual fetch of several partitions that waits."""

    __slots__ = (
        "_closed", "_times", "_unusual", "_waiting", "began_s", "connection", "correlation_id", "dispatcher",
        "encode", "parked_s", "queued_s", "reads", "reply", "version",
    )  # fmt: skip

    def __init__(
        self, reads: CompiledReads, connection: Any, version: int, correlation_id: int, owner: SeveralFetches
    ) -> None:
        self.reads = reads
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self._closed = owner.closed
        self._unusual = owner.unusual
        self._waiting = owner.waiting
        # A request that came alone is handled as soon as it has been received.
        self.began_s: float = connection.began_s or connection.last_request_s
        self.queued_s: float = connection.queued_s
        self.parked_s = 0.0

    @property
    def times(self) -> Any:
        """What gets the times of the request once it is answered."""
        return self._times

    def wait(self, dispatcher: Any, reply: Any, encode: Any, times: Any, /) -> None:
        """See `requests.handler.Waits`."""
        self.dispatcher, self.reply, self.encode, self._times = dispatcher, reply, encode, times
        reads, connection = self.reads, self.connection
        parked = self._waiting.park(
            reads.keys, reads.max_wait_ms, self._look, self._end, connection.id, None, reads.reads_from
        )
        if parked.is_over:
            return
        if reads.session is not None:
            reads.session.waiting = parked
        connection.add_close_callback(self._closed)
        self.parked_s = dispatcher.clock_s()

    def _look(self, key: Hashable) -> bool:
        parts = self.reads.look(key)
        if parts is None:
            return self._unusual(self, key)
        if parts is False:
            return False
        self._answer(cast("list[Part]", parts))
        return True

    def _end(self) -> None:
        parts = self.reads.end()
        if parts is None:
            self._unusual(self, None)
        else:
            self._answer(parts)

    def _answer(self, parts: list[Part]) -> None:
        if self.connection.close_reason is not None:
            return
        times = self._times
        if untimed := times.untimed:
            times.untimed = untimed - 1
        else:
            times.add(self.queued_s, self.began_s, self.parked_s, self.dispatcher.clock_s(), 0)
        self.reply.send(parts)


UnusualFetch: TypeAlias = "Callable[[SeveralFetch, Hashable | None], bool]"
"""Reads for a fetch that was usual when it came and is not any more, and answers it if the partition that was
woken (the second argument) completes it, or if its wait ends (None). Returns whether it was answered."""


class SeveralFetches:
    """Answers usual fetches of several partitions, and keeps those that wait.

    A response has at most `max_bytes` of records; a fetch names at most `partitions_max` partitions. The
    other arguments are those of `UsualFetches`.
    """

    def __init__(
        self,
        replicas: Replicas,
        metadata: MetadataCache,
        max_bytes: int,
        partitions_max: int,
        closed: Callable[[Any], None],
        unusual: UnusualFetch,
        may_read: Callable[[Any, str], bool] | None = None,
    ) -> None:
        self.closed = closed
        self.unusual = unusual
        self.waiting: Waiting = replicas.readers
        self._broker = (
            replicas.topics,
            metadata.name_of,
            replicas.sessions.by_id,
            replicas.clock_s,
            max_bytes,
            partitions_max,
            may_read,
        )

    def begin(
        self, connection: Any, frame: memoryview, version: int, position: int, correlation_id: int
    ) -> list[Part] | SeveralFetch | None:
        """Begin a fetch: as `UsualFetches.begin`."""
        if _compiled is None:
            return None
        begun: list[Part] | CompiledReads | None = _compiled.begin(
            self._broker, connection, frame, version, position, correlation_id
        )
        if begun is None or isinstance(begun, list):
            return begun
        return SeveralFetch(begun, connection, version, correlation_id, self)
