"""Fixed scenarios catch bugs of logs, retention, keys and in-sync sets that a campaign rarely catches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.log import test_key_versions as of_index
from tests.broker.log import test_recovery as of_recovery
from tests.broker.replication import test_isr_proposals as of_proposals
from tests.broker.replication import test_key_conditions as of_conditions
from tests.broker.replication import test_retention as of_retention
from tests.sim.mutants import in_sync, keys, retention, storage
from tests.sim.mutation import Mutation, mutated

RARE = (*keys.RARE, *storage.RARE, *in_sync.RARE, *retention.RARE)


def _with_world(scenario: Callable[[of_conditions.World], None]) -> Callable[[Path], None]:
    return lambda path: scenario(of_conditions.world_with(path))


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "key-version-before-commit": _with_world(
        of_conditions.test_a_refusal_waits_until_the_record_that_it_names_is_committed
    ),
    "key-version-of-replaced-leader": _with_world(
        of_conditions.test_a_lease_that_ends_before_a_refusal_is_answered_withdraws_it
    ),
    "key-versions-kept-at-truncation": lambda path: (
        of_index.test_a_truncation_removes_the_keys_in_the_table()
    ),
    "key-files-kept-at-truncation": lambda path: (
        of_index.test_a_truncation_during_a_merge_discards_its_work_and_the_log_stays_in_use()
    ),
    "key-files-of-another-history": lambda path: (
        of_index.test_a_file_of_another_history_of_the_log_is_not_used()
    ),
    "key-files-without-first-keys": lambda path: (
        of_index.test_after_a_crash_the_log_may_begin_earlier_again_than_the_files()
    ),
    "key-files-shared": lambda path: (
        of_index.test_a_job_of_an_index_that_was_switched_off_does_not_write_into_the_files_of_the_next_one()
    ),
    "key-table-unbounded": lambda path: (
        of_index.test_while_a_slow_disk_writes_a_table_the_index_falls_behind_instead_of_growing()
    ),
    "truncation-not-durable": lambda path: (
        of_recovery.test_after_a_power_loss_truncated_records_are_not_before_newer_ones(0, is_flushed=True)
    ),
    "start-not-checkpointed": of_retention.test_removed_records_do_not_come_back_after_a_power_failure,
    "removed-before-start-durable": (of_retention.test_no_file_is_touched_before_the_new_start_is_durable),
    "proposal-overtaken": lambda path: (
        of_proposals.test_an_undecided_proposal_does_not_replace_a_later_one_whose_request_fails(
            of_proposals.Scene()
        )
    ),
}


@pytest.mark.parametrize("mutation", RARE, ids=[mutation.name for mutation in RARE])
def test_a_fixed_scenario_catches_the_bug(tmp_path: Path, mutation: Mutation) -> None:
    with mutated(mutation), pytest.raises(AssertionError):
        SCENARIOS[mutation.name](tmp_path)
