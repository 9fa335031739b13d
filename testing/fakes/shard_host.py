"""Performs a group shard's `ShardResult` in memory for tests, in the order that `ShardResult` states.

The real performer is `coordinator.shards.hosted_shard`; `test_hosted_shard` runs it on a log whose commits
and refusals the test controls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from holdfast_log.coordinator.groups.effects import ReaderClaim, ShardResult
from holdfast_log.coordinator.groups.shard import GroupShard
from holdfast_log.coordinator.shards.effects import ProducerStamp, ShardRecord
from holdfast_log.protocol.errors import ErrorCode


class ShardHost(ABC):
    """A shard and its log, which commits every record at once, or refuses all with `refuse_appends`."""

    def __init__(self) -> None:
        self.log: list[ShardRecord] = []
        self.open: dict[int, list[tuple[ProducerStamp, ShardRecord]]] = {}
        """The records of open transactions, by producer id."""
        self.refuse_appends = False
        self.shard = self.new_shard()

    @abstractmethod
    def new_shard(self) -> GroupShard: ...

    @abstractmethod
    def time_ms(self) -> int: ...

    @abstractmethod
    def claim(self, claims: Sequence[ReaderClaim]) -> None: ...

    @abstractmethod
    def reply(self, request: Any, answer: Any) -> None: ...

    def perform(self, result: ShardResult) -> None:
        if result.records and self.refuse_appends:
            result = self.shard.refused(result, ErrorCode.NOT_ENOUGH_REPLICAS, self.time_ms())
        if result.stamp is None:
            self.log += result.records
        else:
            theirs = self.open.setdefault(result.stamp.producer_id, [])
            theirs += [(result.stamp, record) for record in result.records]
        self.claim(result.claims)
        for request, answer in result.replies:
            self.reply(request, answer)

    def fail_over(self) -> None:
        """Replace the shard with a new one that reads the log, as on another broker."""
        self.shard = self.new_shard()
        for key, value in self.log:
            self.shard.replay(key, value)
        for stamp, record in [each for theirs in self.open.values() for each in theirs]:
            self.shard.replay_open(stamp, *record)
        self.perform(self.shard.loaded(self.time_ms()))
