"""Pipelined operations: several sent at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from holdfast_log.coordinator.zookeeper.interface import Stat, ZooKeeperSession

T = TypeVar("T")

_READS_AT_ONCE = 500
"""Znodes read by one request: about 100 KB, so that other requests do not wait long behind it."""


async def outcomes(operations: Sequence[Deferred[T]]) -> list[T | Exception]:
    """The result or error of each operation, once all have ended."""
    ended = await DeferredList(list(operations), consumeErrors=True)
    return [_outcome(result) for _, result in ended]


async def results(operations: Sequence[Deferred[T]]) -> list[T]:
    """The results of all operations, once all have ended; raises the first error."""
    found: list[T] = []
    for outcome in await outcomes(operations):
        if isinstance(outcome, Exception):
            raise outcome
        found.append(outcome)
    return found


async def read_all(
    session: ZooKeeperSession, paths: Sequence[str], at_once: int = _READS_AT_ONCE
) -> list[tuple[bytes, Stat] | None]:
    """Read any number of znodes; None for each that does not exist.

    Each request reads `at_once` znodes; callers lower it for large znodes.
    """
    starts = range(0, len(paths), at_once)
    read = await results([session.get_all(paths[start : start + at_once]) for start in starts])
    return [found for batch in read for found in batch]


def _outcome(result: T | Failure) -> T | Exception:
    if not isinstance(result, Failure):
        return result
    error = result.value
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
