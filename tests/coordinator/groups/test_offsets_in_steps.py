"""Deleting offsets, and counting those of transactions, in steps: to readers it is done at once.

A shard that does one offset a step is compared with one that does everything in one, and with what a new
coordinator reads from the log of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from holdfast_log.coordinator.groups import offsets
from holdfast_log.coordinator.groups.doomed_offsets import DoomedOffsets
from holdfast_log.coordinator.groups.effects import DeleteAnswer, OffsetsAnswer, ShardResult
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard, OffsetToCommit
from holdfast_log.coordinator.shards.effects import ProducerStamp, RecordsRefused
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.groups.test_offsets import TestMemory
from tests.missed import assert_missed

GROUPS, TOPICS, PRODUCERS = ("g", "h"), ("a", "b"), (1, 2)
PARTITIONS = [TopicPartition(topic, index) for topic in TOPICS for index in range(2)]
AT_ONCE = 1_000_000


@dataclass
class Coordinator:
    """A shard, and the log of its partition: batches of records, and markers of transactions."""

    step: int
    log: list[Any] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    is_refused: bool = False
    shard: GroupShard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        config = GroupSettings(offsets_step=self.step, offsets_retention_ms=1_000)
        return GroupShard(config, new_id=lambda: "id", partition_count=lambda topic: 2)

    def perform(self, result: ShardResult) -> ShardResult:
        if result.records and self.is_refused:
            result = self.shard.refused(result, ErrorCode.NOT_ENOUGH_REPLICAS, 0)
            assert not result.records
        if result.records:
            self.log.append((result.stamp, result.records))
        self.replies += [reply.answer for reply in result.replies]
        return result

    def commit(self, group: str, partition: TopicPartition, offset: int, producer: int | None = None) -> Any:
        """The error code of the answer."""
        stamp = None if producer is None else ProducerStamp(producer, 0)
        result = self.shard.commit_offsets(
            "commit", group, [OffsetToCommit(partition, offset)], now_ms=0, stamp=stamp
        )
        answer = self.perform(result).replies[0].answer
        return answer.error if isinstance(answer, RecordsRefused) else answer.partitions[0][1]

    def end(self, producer: int, *, is_commit: bool) -> None:
        self.log.append((producer, is_commit))
        result = self.shard.transaction_ended(producer, is_commit=is_commit, now_ms=0)
        assert not result.records
        self.perform(result)

    def delete_topics(self, *topics: str) -> ShardResult:
        return self.perform(self.shard.topics_deleted(topics, 0))

    def delete_group(self, group: str) -> ShardResult:
        return self.perform(self.shard.delete_groups("delete", [group]))

    @property
    def is_working(self) -> bool:
        return self.shard.has_backlog

    def tick(self) -> ShardResult:
        return self.perform(self.shard.work_off(0))

    def finish(self) -> int:
        """Take all steps. Returns how many there were."""
        count = 0
        while self.is_working:
            self.tick()
            count += 1
        return count

    def seen(self) -> dict[tuple[str, TopicPartition], int]:
        """What clients see: that of single partitions, and of all."""
        found = {}
        for group in GROUPS:
            for partition in PARTITIONS:
                (offset,) = self._fetched(group, [partition])
                if offset.offset >= 0:
                    found[group, partition] = offset.offset
        together = {
            (group, each.partition): each.offset for group in GROUPS for each in self._fetched(group, None)
        }
        assert together == found
        return found

    def _fetched(self, group: str, partitions: list[TopicPartition] | None) -> Any:
        answer = self.shard.fetch_offsets("fetch", group, partitions).replies[0].answer
        assert isinstance(answer, OffsetsAnswer)
        return answer.offsets

    def stored(self) -> GroupOffsets:
        return self.shard.offsets

    def reloaded(self) -> Coordinator:
        """A coordinator that has read the log so far, as `LatestRecords` reads it: what comes last for an
        offset counts, and a transaction's records count at its marker if nothing came after them."""
        last: dict[bytes, int] = {}
        open_: dict[int, dict[bytes, tuple[int, bytes]]] = {}
        plain: dict[bytes, bytes | None] = {}
        number = 0
        for what, content in self.log:
            if isinstance(content, bool):
                for key, (at, value) in open_.pop(what, {}).items():
                    if content and last.get(key, 0) <= at:
                        plain[key], last[key] = value, at
                continue
            for key, value in content:
                number += 1
                if what is None:
                    plain[key], last[key] = value, number
                    for others in open_.values():
                        others.pop(key, None)
                else:
                    open_.setdefault(what.producer_id, {})[key] = (number, value)
        other = Coordinator(AT_ONCE)
        for key, value in plain.items():
            other.shard.replay(key, value)
        unended = sorted(
            (at, producer, key, value)
            for producer, rows in open_.items()
            for key, (at, value) in rows.items()
            if last.get(key, 0) <= at
        )
        for _, producer, key, value in unended:
            other.shard.replay_open(ProducerStamp(producer, 0), key, value)
        other.shard.loaded(0)
        return other


groups, partitions, producers = map(st.sampled_from, (GROUPS, PARTITIONS, PRODUCERS))
events = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), groups, partitions),
        st.tuples(st.just("commit"), groups, partitions),
        st.tuples(st.just("refuse"), groups, partitions),
        st.tuples(st.just("pend"), groups, partitions, producers),
        st.tuples(st.just("pend"), groups, partitions, producers),
        st.tuples(st.just("refuse pending"), groups, partitions, producers),
        st.tuples(st.just("end"), producers, st.booleans()),
        st.tuples(st.just("delete group"), groups),
        st.tuples(st.just("delete topics"), st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)),
        st.just(("step",)),
        st.just(("step",)),
    ),
    max_size=60,
)


@given(events)
def test_work_in_steps_is_seen_as_if_done_at_once(events: list[Any]) -> None:
    check_events(events)


def check_events(events: list[Any]) -> None:
    steps, whole = Coordinator(1), Coordinator(AT_ONCE)
    both = steps, whole
    offset = 0
    for kind, *arguments in events:
        offset += 1
        match kind:
            case "commit" | "refuse":
                for each in both:
                    each.is_refused = kind == "refuse"
                    each.commit(*arguments, offset)
            case "pend" | "refuse pending":
                group, partition, producer = arguments
                if steps.stored().is_doomed(group, partition):
                    event("a transaction waits for a deletion")
                    error = steps.commit(group, partition, offset, producer)
                    assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "clients send it again"
                    continue
                for each in both:
                    each.is_refused = kind == "refuse pending"
                    each.commit(group, partition, offset, producer)
            case "end":
                producer, is_commit = arguments
                for each in both:
                    each.end(producer, is_commit=is_commit)
            case "delete group":
                for each in both:
                    each.delete_group(*arguments)
            case "delete topics":
                for each in both:
                    each.delete_topics(*arguments[0])
            case "step":
                assert len(steps.tick().records) <= 1
        steps.is_refused = whole.is_refused = False
        assert steps.seen() == whole.seen()
    event(f"work is left: {steps.is_working}")
    steps.finish()
    assert steps.seen() == whole.seen()
    assert len(steps.stored().pending) == len(whole.stored().pending)
    for group in GROUPS:
        assert steps.stored().bytes_of(group) == whole.stored().bytes_of(group)
    assert sorted(steps.shard.group_ids()) == sorted(whole.shard.group_ids())
    after, expected = steps.reloaded(), whole.reloaded()
    assert after.seen() == expected.seen() == whole.seen()
    for producer in PRODUCERS:
        for each in (after, expected, whole):
            each.end(producer, is_commit=True)
    assert after.seen() == expected.seen() == whole.seen()


MANY = 10
STEP = 4
A = [TopicPartition("a", index) for index in range(MANY)]


def filled(group: str = "g", *, producer: int | None = None) -> Coordinator:
    """A coordinator that has an offset of each partition of a topic, and takes steps of four."""
    coordinator = Coordinator(STEP)
    for partition in A:
        assert coordinator.commit(group, partition, 7, producer) is ErrorCode.NONE
    coordinator.log.clear()
    coordinator.replies.clear()
    return coordinator


def offsets_seen(coordinator: Coordinator, group: str = "g") -> list[int]:
    return [each.offset for each in coordinator._fetched(group, None)]


def test_the_offsets_of_a_deleted_topic_are_deleted_in_steps_and_seen_no_more() -> None:
    coordinator = filled()
    assert not coordinator.delete_topics("a").records
    assert offsets_seen(coordinator) == []
    assert [len(coordinator.tick().records) for _ in range(3)] == [STEP, STEP, 2]
    coordinator.finish()
    assert coordinator.stored().count_of("g") == 0
    assert coordinator.shard.group_ids() == []
    assert coordinator.reloaded().shard.group_ids() == []


def test_a_topic_of_the_same_name_inherits_nothing_and_keeps_what_is_committed_meanwhile() -> None:
    coordinator = filled()
    coordinator.delete_topics("a")
    coordinator.tick()
    assert coordinator.commit("g", A[-1], 1) is ErrorCode.NONE
    assert coordinator.commit("g", A[0], 2) is ErrorCode.NONE
    assert coordinator.commit("g", A[5], 3, producer=1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.finish()
    assert sorted(offsets_seen(coordinator)) == [1, 2]
    assert sorted(offsets_seen(coordinator.reloaded())) == [1, 2]


def test_a_deleted_group_is_answered_when_all_its_offsets_are_deleted() -> None:
    coordinator = filled()
    coordinator.delete_group("g")
    assert coordinator.shard.group_ids() == []
    assert offsets_seen(coordinator) == []
    coordinator.tick()
    coordinator.tick()
    assert coordinator.replies == []
    coordinator.finish()
    assert coordinator.replies == [DeleteAnswer([("g", ErrorCode.NONE)])]


def test_a_deletion_that_the_log_refuses_midway_is_answered_with_the_error() -> None:
    coordinator = filled()
    coordinator.delete_group("g")
    coordinator.tick()
    coordinator.is_refused = True
    coordinator.tick()
    assert coordinator.replies == [RecordsRefused(ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert not coordinator.is_working
    assert len(offsets_seen(coordinator)) == MANY - STEP, "what is left counts"
    assert coordinator.shard.group_ids() == ["g"]
    coordinator.is_refused = False
    coordinator.delete_group("g")
    coordinator.finish()
    assert offsets_seen(coordinator) == []


def test_a_deletion_that_another_coordinator_has_to_go_on_with_is_answered_with_the_error() -> None:
    coordinator = filled()
    coordinator.delete_group("g")
    coordinator.tick()
    coordinator.perform(coordinator.shard.closed(ErrorCode.NOT_COORDINATOR))
    assert coordinator.replies == [RecordsRefused(ErrorCode.NOT_COORDINATOR)]


def test_offsets_that_have_expired_are_deleted_in_steps() -> None:
    coordinator = filled()
    late_ms = 10_000
    expired = coordinator.perform(coordinator.shard.expire_offsets("g", late_ms))
    assert len(expired.records) == STEP
    coordinator.commit("g", A[-1], 9)
    assert coordinator.finish() >= 2
    assert offsets_seen(coordinator) == [9]


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_offsets_of_a_long_transaction_count_at_once_and_are_worked_off_in_steps(is_commit: bool) -> None:
    coordinator = filled(producer=1)
    coordinator.end(1, is_commit=is_commit)
    expected = [7] * MANY if is_commit else []
    assert offsets_seen(coordinator) == expected
    assert len(coordinator.stored().pending) == MANY
    coordinator.tick()
    assert len(coordinator.stored().pending) == MANY - STEP
    assert offsets_seen(coordinator) == expected
    assert coordinator.commit("g", A[-1], 9, producer=1) is ErrorCode.NONE, "the next transaction has begun"
    coordinator.end(1, is_commit=False)
    coordinator.finish()
    assert offsets_seen(coordinator) == expected
    assert len(coordinator.stored().pending) == 0


def test_what_is_looked_at_in_vain_takes_steps_too() -> None:
    """A group whose many offsets are all of other topics."""
    coordinator = Coordinator(STEP)
    for number in range(40 * STEP):
        coordinator.commit("g", TopicPartition("b", number), 7)
    for number in range(STEP + 1):
        coordinator.commit("g", TopicPartition("a", number), 7)
    coordinator.delete_topics("a")
    assert coordinator.finish() >= 3


def _deleted_at_once(self: GroupOffsets, result: ShardResult, topics: Any) -> None:
    for group_id in list(self.group_ids()):
        for partition in list(self.of_group(group_id)):
            if partition.topic in topics:
                self.delete(result, group_id, partition)


MUTATIONS: dict[str, tuple[object, str, object, Any]] = {
    "all offsets of a deleted topic are deleted in one turn": (
        GroupOffsets, "delete_topics", _deleted_at_once,
        test_the_offsets_of_a_deleted_topic_are_deleted_in_steps_and_seen_no_more,
    ),
    "a topic of the same name inherits what is not deleted yet": (
        DoomedOffsets, "has", lambda self, group_id, partition: False,
        test_a_topic_of_the_same_name_inherits_nothing_and_keeps_what_is_committed_meanwhile,
    ),
    "what a new topic's readers commit is deleted": (
        DoomedOffsets, "settle", lambda self, group_id, partition: None,
        test_a_topic_of_the_same_name_inherits_nothing_and_keeps_what_is_committed_meanwhile,
    ),
    "a deletion is answered before the offsets are deleted": (
        GroupOffsets, "is_deleting", lambda self, group_id: False,
        test_a_deleted_group_is_answered_when_all_its_offsets_are_deleted,
    ),
    "a refused deletion goes on unseen": (
        GroupOffsets, "give_up", lambda self: None,
        test_a_deletion_that_the_log_refuses_midway_is_answered_with_the_error,
    ),
    "the offsets of a long transaction count step by step": (
        GroupOffsets, "_ended_last", lambda self, group_id, partition: None,
        test_the_offsets_of_a_long_transaction_count_at_once_and_are_worked_off_in_steps,
    ),
    "a group costs nothing besides its offsets": (
        offsets, "GROUP_BYTES", 0, lambda: TestMemory().test_what_is_counted_is_what_they_take(1_000, 1),
    ),
    "what is looked at costs nothing": (
        offsets, "_LOOKS", AT_ONCE, test_what_is_looked_at_in_vain_takes_steps_too,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_missed_by_nobody(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, value, test = MUTATIONS[name]
    check = (lambda: test(True)) if "long_transaction" in test.__name__ else test
    assert_missed(monkeypatch, (AssertionError,), target, attribute, value, check)
