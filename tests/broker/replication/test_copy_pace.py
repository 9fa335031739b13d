"""A copy between log directories keeps to `replica.alter.log.dirs.io.max.bytes.per.second` (KIP-113)."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.log.truncation import advance_log_start
from holdfast_log.broker.replication import log_moves
from holdfast_log.broker.replication.copy_pace import PART_BYTES, CopyPace
from holdfast_log.broker.replication.settings import SETTINGS, ThrottleRates
from holdfast_log.broker.replication.throttle import UNLIMITED, follower_throttle, leader_throttle
from holdfast_log.broker.replication.throttled_rates import ThrottledRates
from holdfast_log.broker.setting_groups import Live
from tests.broker.replication.test_log_moves import AT, BATCHES, Scene, batches, filled
from tests.models.logs import append

RATE = 1_000
STEP_S = 0.05


def paced(clock: Clock, rate: int) -> CopyPace:
    pace = CopyPace(clock)
    pace.set_rate(rate)
    return pace


@pytest.mark.parametrize("rate", [1, 1_000, 30_000_001, 10**9])
def test_no_stretch_of_time_has_more_bytes_than_the_rate_allows_and_two_parts(rate: int) -> None:
    clock = Clock()
    clock.advance(1e6)
    pace = paced(clock, rate)
    clock.advance(3_600)  # What was not used before is not made up for.
    begun_s, copied = clock.seconds(), 0
    for _ in range(200):
        while pause_s := pace.pause_s():
            clock.advance(pause_s)
        pace.copied(pace.part_bytes)
        copied += pace.part_bytes
        assert copied <= rate * (clock.seconds() - begun_s) + 2 * pace.part_bytes + 1
    assert copied >= rate * (clock.seconds() - begun_s) * 0.9


def test_without_a_rate_there_is_no_pause() -> None:
    pace = CopyPace(Clock())
    for _ in range(10):
        assert (pace.part_bytes, pace.pause_s()) == (PART_BYTES, 0)
        pace.copied(PART_BYTES)
    pace.set_rate(1_000)
    assert pace.pause_s() == 1
    pace.set_rate(UNLIMITED)
    assert pace.pause_s() == 0


def test_a_new_rate_applies_to_what_has_been_copied() -> None:
    clock = Clock()
    pace = paced(clock, 1_000)
    pace.copied(10_000)
    clock.advance(2)
    pace.set_rate(16_000)
    assert pace.pause_s() == pytest.approx(0.5)
    pace.set_rate(0)
    clock.advance(3_600)
    assert pace.pause_s() == 1.0
    pace.set_rate(8_000)
    assert pace.pause_s() == 1.0
    clock.advance(1)
    assert pace.pause_s() == 0


def large() -> Scene:
    """A log of many parts at the lowest rates."""
    scene = filled()
    scene.fill(400)
    assert scene.log.size_bytes > 8 * 4_096
    return scene


def test_the_rates_in_force_are_those_of_the_settings() -> None:
    settings = {row.name: row.default for row in SETTINGS}
    leader, follower, pace = leader_throttle(1), follower_throttle(1), CopyPace(Clock())
    rates = ThrottledRates(Live(ThrottleRates, settings), leader, follower, pace)
    pace.copied(1)
    assert (leader.is_set, follower.is_set, pace.pause_s()) == (False, False, 0)
    settings["replica.alter.log.dirs.io.max.bytes.per.second"] = 100
    rates.settings_changed()
    pace.copied(10)
    assert (leader.is_set, follower.is_set) == (False, False)
    assert pace.pause_s() > 0


class Observed:
    """A move at a rate. The workers work whenever they can, and the clock goes on in small steps."""

    def __init__(self, scene: Scene, rate: int) -> None:
        self.scene = scene
        scene.pace.set_rate(rate)
        scene.begin()
        (self.move,) = scene.moves
        self.seconds = 0.0

    @property
    def has_moved(self) -> bool:
        return not list(self.scene.moves)

    def go_on(self) -> None:
        self.scene.work()
        self.scene.broker.clock.advance(STEP_S)
        self.seconds += STEP_S

    def finish(self, seconds_max: float) -> None:
        while not self.has_moved:
            assert self.seconds < seconds_max
            self.go_on()
        self.scene.work()
        assert self.scene.place == "/d2/t-0"


def test_a_move_copies_no_faster_than_the_rate() -> None:
    scene = large()
    size = scene.log.size_bytes
    observed = Observed(scene, RATE)
    while not observed.has_moved:
        observed.scene.work()
        # A part has at least 4 KiB, and the last ones wait for nobody.
        allowed = RATE * observed.seconds + 2 * 4_096
        assert observed.move.copied_bytes <= allowed
        observed.go_on()
    assert scene.place == "/d2/t-0"
    assert size / RATE - 9 <= observed.seconds <= size / RATE * 1.5 + 10
    assert len(batches(scene.log)) == BATCHES + 400


def test_a_move_waits_as_long_as_the_rate_is_0() -> None:
    scene = large()
    observed = Observed(scene, 0)
    for _ in range(1_000):
        observed.go_on()
    assert (scene.place, observed.move.copied_bytes) == ("/d1/t-0", 0)
    scene.pace.set_rate(UNLIMITED)
    observed.finish(seconds_max=60)


def test_a_move_that_waits_is_cancelled_and_the_next_one_begins() -> None:
    scene = large()
    observed = Observed(scene, 1)
    for _ in range(100):
        observed.go_on()
    assert 0 < observed.move.copied_bytes < 3 * 4_096
    scene.moves.cancel(AT)
    for _ in range(30):
        observed.go_on()
    assert (scene.place, scene.files(scene.second)) == ("/d1/t-0", [])
    scene.pace.set_rate(UNLIMITED)
    scene.move()
    assert scene.place == "/d2/t-0"


def test_the_log_takes_appends_while_its_copy_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers that outrun the copy are not stopped until it is nearly done."""
    monkeypatch.setattr(log_moves, "_LAST_BYTES", 500)
    monkeypatch.setattr(log_moves, "_ROUNDS_MAX", 2)
    scene = large()
    size = scene.log.size_bytes
    append(scene.log)
    written_per_s = (scene.log.size_bytes - size) / STEP_S
    observed = Observed(scene, int(written_per_s * 0.9))
    for _ in range(2_000):
        scene.log.check_may_grow()
        append(scene.log)
        observed.go_on()
    assert not observed.has_moved
    observed.finish(seconds_max=10_000)
    assert len(batches(scene.log)) == BATCHES + 400 + 1 + 2_000


def test_what_compaction_has_written_meanwhile_is_not_copied_in_one_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what is left to copy says when the log refuses appends, not what was appended."""
    monkeypatch.setattr(log_moves, "_LAST_BYTES", 500)
    scene = large()
    observed = Observed(scene, RATE)
    while observed.move.copied_bytes < 20_000:
        observed.go_on()
    # As if another segment had taken the place of each that was copied.
    observed.move.copied.clear()
    left = scene.log.size_bytes
    begun_s = observed.seconds
    observed.finish(seconds_max=10_000)
    assert observed.seconds - begun_s > left / RATE - 9


def test_a_move_that_waits_ends_with_its_log() -> None:
    scene = large()
    observed = Observed(scene, RATE)
    for _ in range(20):
        observed.go_on()
    advance_log_start(scene.log, scene.log.segments[2].base_offset)
    observed.go_on()
    scene.logs.delete(AT)
    for _ in range(30):
        observed.go_on()
    assert observed.has_moved
    assert scene.files(scene.second) == []
