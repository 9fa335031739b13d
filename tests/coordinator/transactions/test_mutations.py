"""Each rule of the coordinator of transactions, and of offsets in transactions, taken away: a test has to
notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast_log.broker.shards.replay import LatestRecords
from holdfast_log.broker.transactions import markers as sender
from holdfast_log.broker.transactions.group_guards import GroupGuards
from holdfast_log.broker.transactions.markers import MarkerSender
from holdfast_log.coordinator.groups.managed_rebalance import ManagedRebalancer
from holdfast_log.coordinator.groups.managed_topics import ManagedTopics
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.pending_offsets import PendingOffsets
from holdfast_log.coordinator.shards.hosted_shard import HostedShard
from holdfast_log.coordinator.transactions import epochs
from holdfast_log.coordinator.transactions import shard as machine
from holdfast_log.coordinator.transactions.memory import ShardMemory
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.protocol.errors import ErrorCode
from tests.broker.shards import test_replay as of_replay
from tests.broker.transactions import test_group_guards as of_guards
from tests.broker.transactions import test_markers as of_markers
from tests.coordinator.groups import test_managed_groups as of_managed
from tests.coordinator.groups import test_pending_offsets as of_offsets
from tests.coordinator.groups.world import GroupWorld
from tests.coordinator.transactions import test_durable_decisions as of_decisions
from tests.coordinator.transactions import test_shard as of_shard
from tests.missed import assert_missed

Check = Callable[[], None]

_fence = TransactionShard._fence
_loaded = TransactionShard.loaded
_marked = TransactionShard.marked
_has_room, _adopt = ShardMemory.has_room, ShardMemory.adopt
_verify = TransactionShard.verify_partitions
_end_transaction = GroupOffsets.end_transaction


def complete_before_all_markers(self: Any, written: Any, partitions: Any, now_ms: int) -> Any:
    return _marked(self, written, written.partitions, now_ms)


def finishes_nothing(self: Any, now_ms: int) -> Any:
    result = _loaded(self, now_ms)
    result.claims.clear()
    return result


def keeps_its_epoch(
    self: Any, result: Any, name: str, transaction: Any, now_ms: int, *, may_go_on: bool = False
) -> None:
    lowered = replace(transaction, producer_epoch=transaction.producer_epoch - 1)
    _fence(self, result, name, lowered, now_ms, may_go_on=may_go_on)


def nobody_goes_on(
    self: Any, result: Any, name: str, transaction: Any, now_ms: int, *, may_go_on: bool = False
) -> None:
    _fence(self, result, name, transaction, now_ms)


def everybody_goes_on(
    self: Any, result: Any, name: str, transaction: Any, now_ms: int, *, may_go_on: bool = False
) -> None:
    _fence(self, result, name, transaction, now_ms, may_go_on=True)


def any_producer(transaction: Any, producer: Any) -> ErrorCode:
    return ErrorCode.NONE if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING


def admits_everything(self: Any, request: Any, name: str, producer: Any, partitions: Any) -> Any:
    return _verify(self, request, name, producer, ())


def visible_at_once(self: Any, result: Any, producer_id: int, *offset: Any) -> None:
    self.commit(result, *offset)


def aborted_offsets_count(self: Any, producer_id: int, *, is_commit: bool) -> list[str]:
    return _end_transaction(self, producer_id, is_commit=True)


def forgotten(self: Any, marker: Any) -> None:
    """A marker that was not written is not sent again."""


def only_new_ids_count(self: Any, name: str, grown: int, source: str | None = None) -> bool:
    return source is None or _has_room(self, name, grown, source)


def adopts_once(self: Any, name: str, known: Any, source: str) -> None:
    if known is None:
        _adopt(self, name, known, source)


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "a marker is sent before its decision is durable": (
        HostedShard, "_may_answer", lambda self, result, committed: True,
        of_decisions.test_no_marker_is_sent_before_the_decision_is_committed,
    ),
    "a transaction is complete before all partitions have the marker": (
        TransactionShard, "marked", complete_before_all_markers,
        of_shard.test_a_transaction_from_its_begin_to_its_end,
    ),
    "a new coordinator finishes nothing": (
        TransactionShard, "loaded", finishes_nothing,
        lambda: of_shard.test_a_new_coordinator_finishes_what_was_decided(True),
    ),
    "one source may use all the memory": (
        ShardMemory, "has_room", lambda self, name, grown, source=None: True,
        of_shard.test_the_ids_of_one_source_leave_room_for_those_of_others,
    ),
    "what a transaction grows by counts to nobody": (
        ShardMemory, "has_room", only_new_ids_count,
        of_shard.test_the_partitions_that_a_transaction_grows_by_count_to_its_source,
    ),
    "an id counts to the first that has asked": (
        ShardMemory, "adopt", adopts_once, of_shard.test_an_id_counts_to_the_source_that_has_asked_last,
    ),
    "a transaction has any number of partitions": (
        TransactionShard, "_are_too_many", lambda self, partitions: False,
        of_shard.test_a_transaction_has_so_many_partitions_at_most,
    ),
    "an old epoch is admitted": (
        machine, "_check_producer", any_producer,
        of_shard.test_a_partition_that_is_not_in_the_transaction_aborts_it,
    ),
    "a transaction that times out keeps its epoch": (
        TransactionShard, "_fence", keeps_its_epoch,
        of_shard.test_a_producer_whose_transaction_has_timed_out_is_fenced,
    ),
    "a producer with an epoch for each transaction is fenced by a time-out": (
        TransactionShard, "_fence", nobody_goes_on,
        of_shard.test_a_producer_with_an_epoch_for_each_transaction_goes_on_after_a_time_out,
    ),
    "a producer that goes on early is fenced": (
        epochs, "is_next", lambda transaction, producer: False,
        lambda: of_shard.test_a_producer_that_goes_on_while_markers_are_missing_asks_again(0),
    ),
    "a producer goes on whose successor has aborted its transaction": (
        TransactionShard, "_fence", everybody_goes_on,
        lambda: of_shard.test_a_successor_aborts_what_its_predecessor_has_open_and_fences_it(True),
    ),
    "verification admits everything": (
        TransactionShard, "verify_partitions", admits_everything,
        of_shard.test_a_partition_that_is_not_in_the_transaction_aborts_it,
    ),
    "what the log refuses stays in memory": (
        TransactionShard, "refused", lambda self, result, error, now_ms: result,
        of_shard.test_what_the_log_refuses_has_not_happened,
    ),
    "offsets of an open transaction are visible": (
        GroupOffsets, "commit_pending", visible_at_once,
        of_offsets.test_offsets_count_when_their_transaction_is_committed,
    ),
    "offsets of an aborted transaction count": (
        GroupOffsets, "end_transaction", aborted_offsets_count,
        of_offsets.test_offsets_of_an_aborted_transaction_are_gone,
    ),
    "a managed group hands out offsets that a transaction may replace": (
        ManagedTopics, "may_be_replaced", lambda self, group: False,
        lambda: of_managed.TestOpenTransactions()
        .test_a_rebalance_waits_for_the_end_of_a_transaction_with_offsets(GroupWorld(orders=4), True),
    ),
    "a managed group waits for a transaction that has ended": (
        ManagedRebalancer, "offsets_settled", lambda self, group, result, now_ms: None,
        lambda: of_managed.TestOpenTransactions()
        .test_a_rebalance_waits_for_the_end_of_a_transaction_with_offsets(GroupWorld(orders=4), True),
    ),
    "an earlier offset in the log counts because its transaction ends later": (
        PendingOffsets, "keys_of", lambda self, group_id, partition: [],
        of_offsets.test_what_the_log_has_last_counts_whatever_ends_first,
    ),
    "the markers of a partition that has moved are not sent again": (
        MarkerSender, "_fail", forgotten,
        lambda: of_markers.test_a_marker_that_is_not_written_goes_to_the_next_leader(
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        ),
    ),
    "a coordinator that was replaced goes on": (
        sender, "_OUTDATED", (),
        lambda: of_markers.test_a_coordinator_that_was_replaced_stops(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED
        ),
    ),
    "a marker leaves the questions under way": (
        GroupGuards, "markers_applied", lambda self, *marker: None,
        of_guards.test_a_marker_that_comes_in_between_closes_the_transaction,
    ),
    "a new coordinator of groups takes aborted offsets": (
        LatestRecords, "_end", lambda self, producer_id, is_commit: None,
        of_replay.test_records_of_an_aborted_transaction_are_left_out,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_missed(monkeypatch, (AssertionError, ValueError, KeyError), *MUTATIONS[name])
