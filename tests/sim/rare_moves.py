"""Fixed scenarios for bugs of moves between log directories: tests of the code concerned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.broker.replication import test_log_moves as of_moves

_LOSSES = 20


def _at_each_step(scenario: Callable[..., None], *arguments: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        for done in range(of_moves.STEPS):
            scenario(*arguments, done)

    return run


def _crash_at_each_step(end: str) -> Callable[[Path], None]:
    scenario = of_moves.test_a_crash_at_any_step_leaves_one_whole_log_and_the_move_goes_on
    return _at_each_step(lambda done: scenario(done, end))


def _power_loss_after_a_move(path: Path) -> None:
    """What a power loss undoes of a move differs. What has been written since is durable."""
    for seed in range(_LOSSES):
        scene = of_moves.Scene(of_moves.new_disk(seed))
        scene.fill()
        scene.move()
        assert scene.place == "/d2/t-0"
        scene.fill(1)
        had = of_moves.batches(scene.log)
        scene.disk.lose_power()
        again = of_moves.Scene(scene.disk)
        assert of_moves.batches(again.log) == had
        assert [*scene.files(scene.first), *scene.files(scene.second)] == ["t-0"]


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "moved-before-caught-up": lambda path: of_moves.test_what_is_appended_meanwhile_moves_too(),
    "appends-lost-in-move": lambda path: of_moves.test_what_is_appended_meanwhile_moves_too(),
    "moved-before-durable": _crash_at_each_step("power"),
    "high-watermark-not-moved": _crash_at_each_step("kill"),
    "moved-though-asked-back": _at_each_step(of_moves.test_a_move_that_is_cancelled_leaves_nothing),
    "old-log-used-after-move": lambda path: of_moves.test_a_log_moves_with_all_that_it_has(),
    "unused-copy-closed": _at_each_step(
        lambda done: of_moves.test_a_stop_in_order_at_any_step_closes_both_directories_cleanly(
            done, is_back=True
        )
    ),
    "truncation-not-moved": _at_each_step(of_moves.test_a_truncation_at_any_step_is_not_undone),
    "copy-not-marked": _crash_at_each_step("kill"),
    "mark-left-on-copy": _crash_at_each_step("kill"),
    "old-name-not-synced": _power_loss_after_a_move,
    "asked-back-after-a-crash": lambda path: (
        of_moves.test_a_move_that_is_cancelled_before_it_goes_on_after_a_restart_does_not()
    ),
    "next-topic-moves-too": lambda path: (
        of_moves.test_a_new_topic_does_not_move_since_the_last_one_of_its_name_did()
    ),
    "interrupted-move-forgotten": _crash_at_each_step("kill"),
    "dropped-copy-left": _crash_at_each_step("power"),
}
"""By the name of the bug."""
