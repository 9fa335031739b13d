"""Forgetting names: a broker keeps at most `own.names.max`, and records of at most
`own.records.total.bytes`, and makes room by forgetting those that have been free for longest.

A name may be forgotten once nobody has owned it for `own.names.retention.ms`, nobody waits for it, nothing
about it is still to be written, and no request about it is under way. Partitions are never forgotten; so no
guard and no condition of an append is affected, because these name partitions only. What is lost is the
name's history: its last owner cannot resume it any more, and its generations begin at 1 again.

Its incarnations are never set back. The write that deletes its record also raises the mark above which the
incarnations of forgotten names begin, for every later decider. The write succeeds only while this broker
decides about the names, and nobody has written their records since. If the broker fails before it, nothing
has changed; if after it, everything has.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from holdfast_log.broker.ownership.operations import Operation, OperationAnswer, RecordsByKey
from holdfast_log.broker.ownership.resources import NO_ZNODE
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import Forgotten, NameKey, ResourceKey

FORGOTTEN_TOGETHER = 100
"""Maximum number of names forgotten by one write."""
LOOK_PAUSE_MS = 1000
"""Time in ms between two writes that forget names before a claim needs the room."""
_EXAMINED_MAX = 1000
"""Maximum number of names examined at a time. Few cannot be forgotten, unless ZooKeeper fails."""
_FULL_SHARE = 0.9
"""The part of either limit beyond which names are forgotten before a claim needs the room."""


class ForgetNames(Operation):
    """Forget names, all or none of them. `now_ms` is the time at which they were chosen."""

    __slots__ = ("_names", "_now_ms")

    def __init__(self, names: Sequence[NameKey], now_ms: int) -> None:
        super().__init__(names)
        self._names = names
        self._now_ms = now_ms

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {key: Forgotten(state.resource(key).incarnation) for key in self._names}

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        for key in self._names:
            state.forget_name(key)
        return OperationAnswer()

    def not_written(self, state: TableState) -> None:
        """Others are tried first next time."""
        for key in self._names:
            state.put_off(key, self._now_ms)


def forgettable_names(state: TableState, busy: Collection[ResourceKey], now_ms: int) -> list[NameKey]:
    """The names to forget next, those first that have been free for longest. Operations about the resources
    in `busy` are under way."""
    latest_ms = now_ms - state.settings.names_retention_ms
    found: list[NameKey] = []
    for key, since_ms in itertools.islice(state.free_names.items(), _EXAMINED_MAX):
        if since_ms > latest_ms or len(found) == FORGOTTEN_TOGETHER:
            break
        if key not in busy and _is_forgettable(state, key):
            found.append(key)
    return found


def _is_forgettable(state: TableState, key: NameKey) -> bool:
    resource = state.resources[key]
    if resource.version == NO_ZNODE or resource.waiters or key in state.unwritten:
        return False
    return all(entry.grant is None for entry in resource.entries.values())


def next_look_ms(state: TableState, now_ms: int) -> int | None:
    """When to look for names to forget: `now_ms` for at once, None for not before another name is free."""
    if not state.free_names:
        return None
    settings = state.settings
    if (
        state.names <= settings.names_max * _FULL_SHARE
        and state.sizes.total <= settings.records_bytes_max * _FULL_SHARE
    ):
        return now_ms + max(state.settings.names_retention_ms, LOOK_PAUSE_MS)
    longest_ms = next(iter(state.free_names.values()))
    return max(now_ms, longest_ms + state.settings.names_retention_ms)
