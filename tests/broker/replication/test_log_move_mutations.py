"""Each rule of a move between log directories (KIP-113), taken away: a scenario has to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.log import log_copy, names
from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.replication import log_moves
from holdfast_log.broker.replication.copy_pace import CopyPace
from holdfast_log.broker.replication.log_moves import LogMove, LogMoves
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.replication import test_copy_pace
from tests.broker.replication import test_log_moves as scenarios
from tests.missed import assert_missed

Check = Callable[[], None]
STEPS = scenarios.STEPS


def at_each_step(check: Callable[..., None], *arguments: Any) -> Check:
    def checks() -> None:
        for done in range(STEPS):
            check(*arguments, done)

    return checks


def crash_at_each_step(end: str) -> Check:
    return at_each_step(
        lambda end, done: scenarios.test_a_crash_at_any_step_leaves_one_whole_log_and_the_move_goes_on(
            done, end
        ),
        end,
    )


def finish_without_a_mark(disk: Disk, source: str, copy: str, copied: frozenset[str]) -> str:
    path = log_copy.finish_copy(disk, source, copy, copied)
    disk.remove(f"{path}/{names.MOVE_UNFINISHED}")
    return path


def cancel_this_process_only(self: LogMoves, partition: TopicPartition) -> None:
    move = self._moves.pop(partition, None)
    if move is not None:
        move.is_cancelled = True


_delete = LogManager.delete


def delete_the_log_only(self: LogManager, partition: TopicPartition) -> None:
    interrupted = dict(self.arrivals.interrupted_moves)
    _delete(self, partition)
    self.arrivals.interrupted_moves.update(interrupted)


async def announce_nothing(self: LogMoves, move: LogMove, copy: Log) -> None:
    move.target.spares[move.partition] = copy


def check_appends_meanwhile() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_copy_pace.test_the_log_takes_appends_while_its_copy_waits(patch)


def check_what_compaction_writes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_copy_pace.test_what_compaction_has_written_meanwhile_is_not_copied_in_one_go(patch)


PAUSE = LogMoves._pause


async def pause_untold(self: LogMoves, move: LogMove) -> bool:
    await PAUSE(self, move)
    return False


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "the log takes appends while the rest is copied": (
        log_moves, "begin_settling", lambda log: setattr(log, "settling", log.settling),
        scenarios.test_what_is_appended_meanwhile_moves_too,
    ),
    "what has changed since it was copied is not looked for": (
        log_moves, "_state_of", lambda log: (),
        at_each_step(scenarios.test_retention_goes_on_at_any_step),
    ),
    "a copy is not marked as long as the log is there": (
        log_moves, "finish_copy", finish_without_a_mark, crash_at_each_step("kill"),
    ),
    "the checkpoints of the target do not have the copy": (
        LogMoves, "_announce", announce_nothing, crash_at_each_step("kill"),
    ),
    "a move that a crash has ended is forgotten": (
        LogMoves, "role_changed", lambda self, partition: None, crash_at_each_step("kill"),
    ),
    "a copy that nothing uses stays beside the log": (
        LogManager, "drop", lambda self, log, directory: None, crash_at_each_step("power"),
    ),
    "a source that cannot be read stays online": (
        LogMoves, "_disk_failed", lambda self, move, error: None,
        at_each_step(scenarios.test_a_disk_that_fails_at_any_step_takes_only_its_own_log, "/d1"),
    ),
    "the partition goes on with the old log": (
        Partition, "replace_log", lambda self, log: None,
        scenarios.test_a_log_moves_with_all_that_it_has,
    ),
    "a cancelled move goes on": (
        LogMoves, "cancel", lambda self, partition: None,
        at_each_step(scenarios.test_a_move_that_is_cancelled_leaves_nothing),
    ),
    "a cancelled move goes on after a restart": (
        LogMoves, "cancel", cancel_this_process_only,
        scenarios.test_a_move_that_is_cancelled_before_it_goes_on_after_a_restart_does_not,
    ),
    "a new topic moves as the last one did": (
        LogManager, "delete", delete_the_log_only,
        scenarios.test_a_new_topic_does_not_move_since_the_last_one_of_its_name_did,
    ),
    "the copy does not wait": (
        CopyPace, "pause_s", lambda self: 0.0, test_copy_pace.test_a_move_copies_no_faster_than_the_rate,
    ),
    "what was copied is not counted": (
        CopyPace, "copied", lambda self, size: None,
        test_copy_pace.test_a_move_copies_no_faster_than_the_rate,
    ),
    "the log refuses appends although its copy is far behind": (
        log_moves, "_bytes_left", lambda move: 0, check_what_compaction_writes,
    ),
    "a copy that waits has only so many rounds": (
        LogMoves, "_pause", pause_untold, check_appends_meanwhile,
    ),
    "a copy that waits does not look whether it may go on": (
        LogMoves, "_is_under_way", lambda self, move: True,
        test_copy_pace.test_a_move_that_waits_is_cancelled_and_the_next_one_begins,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_missed(monkeypatch, (AssertionError, BrokerError, KeyError), *MUTATIONS[name])
