"""Offsets of transactions: what counts when they end, in whatever order, and after a new coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast_log.coordinator.groups.offsets import GROUP_BYTES
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.coordinator.shards.effects import ProducerStamp, RecordsRefused
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ONE, TWO = ProducerStamp(1, 0), ProducerStamp(2, 0)


class Group:
    """A shard with one group that has no members."""

    def __init__(self, **settings: Any) -> None:
        config = GroupSettings(**settings)
        self.shard = GroupShard(config, new_id=lambda: "id", partition_count=lambda topic: 2)
        self.shard.loaded(0)
        self.error: ErrorCode | None = None

    def commit(
        self,
        offset: int,
        stamp: ProducerStamp | None = None,
        partition: TopicPartition = T0,
        **member: Any,
    ) -> ErrorCode:
        result = self.shard.commit_offsets(
            "request", "g", [OffsetToCommit(partition, offset)], now_ms=0, stamp=stamp, **member
        )
        assert result.stamp == stamp
        if self.error is not None:
            result = self.shard.refused(result, self.error, 0)
        answer: Any = result.replies[0].answer
        if isinstance(answer, RecordsRefused):
            return answer.error
        (row,) = answer.partitions
        error: ErrorCode = row[1]
        return error

    def end(self, stamp: ProducerStamp, *, is_commit: bool = True) -> None:
        ended = self.shard.transaction_ended(stamp.producer_id, is_commit=is_commit, now_ms=0)
        assert not ended.records

    def offset(self, partition: TopicPartition = T0) -> int:
        return self._fetched(partition, require_stable=False).offset

    def is_stable(self, partition: TopicPartition = T0) -> bool:
        found = self._fetched(partition, require_stable=True)
        assert found.error in (ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return bool(found.error is ErrorCode.NONE)

    def _fetched(self, partition: TopicPartition, *, require_stable: bool) -> Any:
        result = self.shard.fetch_offsets("request", "g", [partition], require_stable=require_stable)
        answer: Any = result.replies[0].answer
        return answer.offsets[0]


def test_offsets_count_when_their_transaction_is_committed() -> None:
    group = Group()
    group.commit(5)
    assert group.commit(8, ONE) is ErrorCode.NONE
    assert group.offset() == 5
    assert not group.is_stable()
    assert group.is_stable(T1)
    group.end(ONE)
    assert group.offset() == 8
    assert group.is_stable()


def test_offsets_of_an_aborted_transaction_are_gone() -> None:
    group = Group()
    group.commit(8, ONE)
    group.end(ONE, is_commit=False)
    assert group.offset() == -1
    assert group.is_stable()
    assert not group.shard.groups(), "nothing is left of the group"


def test_what_the_log_has_last_counts_whatever_ends_first() -> None:
    group = Group()
    group.commit(10, ONE)
    group.commit(20, TWO)
    group.end(TWO)
    group.end(ONE)
    assert group.offset() == 20
    group.commit(30, ONE)
    group.commit(25)
    group.end(ONE)
    assert group.offset() == 25, "the later commit outside of the transaction"


def test_a_deleted_offset_does_not_come_back() -> None:
    group = Group()
    group.commit(5)
    group.commit(8, ONE)
    group.shard.topics_deleted(["t"], 0)
    group.end(ONE)
    assert group.offset() == -1


def test_a_deleted_group_does_not_come_back() -> None:
    group = Group()
    group.commit(8, ONE)
    result = group.shard.delete_groups("request", ["g"])
    assert result.records[0].value is None, "a new coordinator knows it, too"
    group.end(ONE)
    assert not group.shard.groups()


def test_offsets_of_open_transactions_do_not_expire() -> None:
    group = Group(offsets_retention_ms=1_000)
    group.commit(5)
    group.commit(6, None, T1)
    group.commit(8, ONE)
    group.shard.expire_offsets("g", 10_000)
    assert group.offset() == 5
    assert group.offset(T1) == -1
    group.end(ONE, is_commit=False)
    group.shard.expire_offsets("g", 10_000)
    assert not group.shard.groups()


def test_what_the_log_refuses_has_not_happened() -> None:
    group = Group()
    group.commit(8, ONE)
    group.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert group.commit(9, ONE) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert group.commit(3) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert group.commit(4, TWO, T1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert group.is_stable(T1)
    group.end(ONE)
    assert group.offset() == 8


def test_a_new_coordinator_goes_on_with_open_transactions() -> None:
    before, after = Group(), Group()
    written = before.shard.commit_offsets(
        "request", "g", [OffsetToCommit(T0, 8)], now_ms=0, stamp=ONE
    ).records
    after.shard.replay_open(ONE, *written[0])
    after.shard.loaded(0)
    assert not after.is_stable()
    after.end(ONE)
    assert after.offset() == 8


def test_the_memory_of_pending_offsets_is_bounded_and_given_back() -> None:
    group = Group(group_offsets_bytes_max=GROUP_BYTES + 1_000)
    errors = [group.commit(1, ProducerStamp(number, 0)) for number in range(10)]
    assert errors[0] is ErrorCode.NONE
    assert errors[-1] is ErrorCode.OFFSET_METADATA_TOO_LARGE
    for number in range(10):
        group.end(ProducerStamp(number, 0), is_commit=False)
    assert group.shard.offsets.bytes_of("g") == 0


@pytest.mark.parametrize("generation", [0, 3])
def test_members_of_earlier_generations_are_refused(generation: int) -> None:
    assert Group().commit(8, ONE, generation=generation, member_id="m") is ErrorCode.ILLEGAL_GENERATION
