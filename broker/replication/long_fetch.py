"""A consumer's fetch of many partitions: a few are read in each turn, so that others are served meanwhile.

What changes between two turns is not missed. A fetch without a session is parked before its first partition
is read, and what is woken meanwhile is read again. The first fetch of a session does not wait for records:
its answer has all partitions in any case, and a change of any of them stirs it for the next fetch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol, TypeAlias, TypeVar

from twisted.internet.defer import ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.replication.fetch_sessions import NO_SESSION
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.plain_fetch import must_wait
from holdfast_log.broker.replication.reads import AnswerReads, Read, ReadLimits, read_all, taken_bytes
from holdfast_log.broker.replication.replicas import Replicas

T = TypeVar("T")

PART_READS = 50
"""Maximum number of partitions that are read in one turn: each takes about ten microseconds."""


class ReadingTurns(Protocol):
    """The turns of the reactor that a long request takes."""

    def other_turn(self) -> Awaitable[None]:
        """Fires in another turn. Fails once the reader has gone."""
        ...


BeginTurns: TypeAlias = "Callable[[], AbstractContextManager[ReadingTurns]]"
"""Begins to take turns; the reader's later requests wait until that ends."""


def parts(items: Iterable[T]) -> Iterator[list[T]]:
    """The items, `PART_READS` at a time."""
    left = iter(items)
    while part := list(islice(left, PART_READS)):
        yield part


class LongFetch:
    """A fetch of many partitions without a session.

    `answer` is called once there are `min_bytes` of records or an error, or the fetch has timed out. `gone`
    is called if the reader goes away while a fetch that has waited takes its turns."""

    __slots__ = (
        "_answer", "_begin_turns", "_by_key", "_gone", "_is_due", "_is_reading", "_limits", "_reads",
        "_replicas", "_taken",
    )  # fmt: skip

    def __init__(
        self,
        replicas: Replicas,
        limits: ReadLimits,
        answer: AnswerReads,
        begin_turns: BeginTurns,
        gone: Callable[[Failure], None],
    ) -> None:
        self._replicas = replicas
        self._limits = limits
        self._answer = answer
        self._begin_turns = begin_turns
        self._gone = gone
        self._reads: list[Read] = []
        self._by_key: dict[Hashable, Read] = {}
        self._taken = 0  # of the limit of bytes, by what has been read
        self._is_reading = True
        self._is_due = False  # The wait has ended while the partitions were read.

    async def begin(self, wanted: Iterable[Read], connection: int, turns: ReadingTurns) -> None:
        """Read, then answer or wait, until `connection` closes at the latest."""
        for part in parts(wanted):
            self._reads += part
            self._by_key.update((read.key, read) for read in part)
            await turns.other_turn()
        parked = None
        if self._limits.max_wait_ms > 0:
            keys, max_wait_ms = list(self._by_key), self._limits.max_wait_ms
            parked = self._replicas.readers.park(
                keys, max_wait_ms, self._look, self._expire, connection, reads_from=self._reads_from
            )
        await self._read(turns)
        if parked is not None:
            if not self._is_due and must_wait(self._reads, self._total, self._limits):
                return
            parked.cancel()
        self._answer(NO_SESSION, self._reads)

    async def _read(self, turns: ReadingTurns) -> None:
        self._is_reading = True
        for part in parts(self._reads):
            # What a look has read before its turn, or a wait before, is read again.
            self._taken -= taken_bytes(part)
            read_all(self._replicas, part, self._limits.max_bytes, CONSUMER_ID, before=self._taken)
            self._taken += taken_bytes(part)
            await turns.other_turn()
        self._is_reading = False

    @property
    def _total(self) -> int:
        return sum(read.size for read in self._reads)

    def _reads_from(self, key: Hashable) -> int:
        return self._by_key[key].wanted.fetch_offset

    def _look(self, key: Hashable) -> bool:
        """Read the partition that was woken, and only that one. Answer if it completes the fetch, and return
        whether it does; while the others are read, the last of them answers."""
        read = self._by_key[key]
        before = taken_bytes([read])
        self._taken -= before
        read_all(self._replicas, [read], self._limits.max_bytes, CONSUMER_ID, before=self._taken)
        self._taken += taken_bytes([read])
        if self._is_reading or not (read.is_final or self._taken >= self._limits.min_bytes):
            return False
        self._finish_later()
        return True

    def _expire(self) -> None:
        if self._is_reading:
            self._is_due = True
        else:
            self._finish_later()

    def _finish_later(self) -> None:
        ensureDeferred(self._finish()).addErrback(self._gone)

    async def _finish(self) -> None:
        """Answer with what there is now."""
        with self._begin_turns() as turns:
            await turns.other_turn()
            await self._read(turns)
            self._answer(NO_SESSION, self._reads)
