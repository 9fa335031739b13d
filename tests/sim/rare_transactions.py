"""Fixed scenarios for bugs of transactions that a campaign rarely catches: tests of the code concerned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.broker import test_transaction_mutations as of_partitions
from tests.broker.log import test_transactions as of_log
from tests.broker.ownership import test_fences as of_fences
from tests.broker.ownership.world import OwnershipWorld
from tests.broker.replication import test_transactions as of_leader
from tests.broker.shards import test_replay as of_replay
from tests.broker.transactions import test_end_txn as of_end
from tests.broker.transactions import test_group_guards as of_guards
from tests.broker.transactions import test_verification as of_verification
from tests.broker.world import World
from tests.coordinator.groups import test_pending_offsets as of_offsets
from tests.coordinator.transactions import test_durable_decisions as of_decisions
from tests.coordinator.transactions import test_shard as of_shard


def _pure(test: Callable[[], None]) -> Callable[[Path], None]:
    return lambda path: test()


def _in_world(test: Callable[[World], None]) -> Callable[[Path], None]:
    return lambda path: test(World(path))


def _batches_for_an_owner(path: Path) -> None:
    world = OwnershipWorld(path)
    world.lead("t")
    anna = world.owner("anna")
    anna.claim("t")
    of_fences.test_each_batch_of_a_transaction_needs_a_grant_in_force(world, anna)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "decided-before-durable": _pure(of_decisions.test_no_marker_is_sent_before_the_decision_is_committed),
    "complete-at-first-marker": _pure(of_shard.test_a_transaction_from_its_begin_to_its_end),
    "commit-turned-into-abort": lambda path: of_shard.test_a_new_coordinator_finishes_what_was_decided(True),
    "ended-by-any-epoch": lambda path: (
        of_shard.test_a_successor_aborts_what_its_predecessor_has_open_and_fences_it(False)
    ),
    "time-out-keeps-epoch": _pure(of_shard.test_a_producer_whose_transaction_has_timed_out_is_fenced),
    "init-overtakes-markers": _pure(
        of_shard.test_a_producer_begins_the_next_transaction_only_when_all_markers_are_written
    ),
    "add-overtakes-markers": _pure(
        of_shard.test_a_producer_begins_the_next_transaction_only_when_all_markers_are_written
    ),
    "never-timed-out": _pure(of_shard.test_a_transaction_is_aborted_when_its_time_is_over_and_not_before),
    "abort-answers-commit": _pure(of_shard.test_an_aborted_transaction_is_not_committed_any_more),
    "question-adds": _pure(
        of_verification.test_a_question_names_the_transaction_and_is_answered_for_each_partition
    ),
    "refused-decision-stays": _pure(of_shard.test_what_the_log_refuses_has_not_happened),
    "settled-by-marker": of_partitions.walk,
    "settled-at-high-watermark": of_partitions.walk,
    "aborted-told-late": _in_world(of_leader.test_readers_learn_of_aborted_transactions_in_their_range),
    "aborted-index-left": of_partitions.walk,
    "aborted-index-trusted": _pure(of_log.test_recovery_rebuilds_an_index_that_was_lost_or_is_behind),
    "open-forgotten-at-start": of_partitions.walk,
    "unsettled-forgotten": of_partitions.walk,
    "any-marker-taken": _in_world(
        of_leader.test_markers_are_fenced_by_the_epochs_of_producer_and_coordinator
    ),
    "written-outside": _in_world(of_leader.test_a_producer_writes_nothing_outside_of_its_open_transaction),
    "answer-remembered": of_partitions.asked,
    "committed-offsets-dropped": _pure(of_offsets.test_offsets_count_when_their_transaction_is_committed),
    "aborted-offsets-loaded": _pure(of_replay.test_records_of_an_aborted_transaction_are_left_out),
    "open-offsets-not-loaded": _pure(of_offsets.test_a_new_coordinator_goes_on_with_open_transactions),
    "unstable-offsets-told": _pure(of_offsets.test_offsets_count_when_their_transaction_is_committed),
    "questions-under-way-left": _pure(of_guards.test_a_marker_that_comes_in_between_closes_the_transaction),
    "next-epoch-not-stored": _pure(of_shard.test_a_repeated_end_is_known_to_a_new_coordinator),
    "ended-epoch-admitted": _pure(of_shard.test_each_end_raises_the_epoch),
    "later-partitions-not-added": _pure(of_shard.test_leaders_add_one_partition_after_the_other),
    "repeated-end-fenced": _pure(of_shard.test_each_end_raises_the_epoch),
    "late-producer-fenced": _pure(
        of_shard.test_a_producer_with_an_epoch_for_each_transaction_goes_on_after_a_time_out
    ),
    "early-producer-fenced": lambda path: (
        of_shard.test_a_producer_that_goes_on_while_markers_are_missing_asks_again(0)
    ),
    "decided-commit-refused": lambda path: of_end.test_a_commit_that_is_decided_stays_when_the_grant_ends(
        of_end.Coordinator(path)
    ),
    "refused-commit-decided": lambda path: (
        of_end.test_an_owner_that_has_a_successor_commits_nothing_and_aborts(of_end.Coordinator(path))
    ),
    "fence-judged-at-begin-only": _batches_for_an_owner,
}
"""By the name of the bug. A scenario gets an empty directory, or one that does not exist yet."""
