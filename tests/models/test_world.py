"""The simulated clock makes calls in order; simulated processes pause, resume and die."""

from __future__ import annotations

import pytest
from twisted.internet.error import AlreadyCalled, AlreadyCancelled

from tests.models.workers import SimWorkers
from tests.models.world import START_S, Process, SimClock, StandsStill, World


def test_calls_are_made_in_the_order_of_their_times_then_of_their_scheduling() -> None:
    clock = SimClock()
    made: list[str] = []
    clock.callLater(2, made.append, "c")
    clock.callLater(1, made.append, "a")
    clock.callLater(1, made.append, "b")
    clock.advance(3)
    assert made == ["a", "b", "c"]


def test_a_busy_loop_without_time_passing_raises_stands_still() -> None:
    clock = SimClock()

    def again() -> None:
        clock.callLater(0, again)

    again()
    with pytest.raises(StandsStill, match=r"100000 calls at 0\.0000 s, now <call of .*again>"):
        clock.advance(1)


def test_a_call_can_be_delayed_advanced_and_cancelled() -> None:
    clock = SimClock()
    made: list[str] = []
    late, early, never = (clock.callLater(5, made.append, name) for name in ("late", "early", "never"))
    late.reset(10)
    early.delay(-4)
    never.cancel()
    assert [call.getTime() - clock.seconds() for call in (late, early)] == [10, 1]
    clock.advance(4)
    assert (made, early.active(), late.active(), never.active()) == (["early"], False, True, False)
    clock.advance(7)
    assert made == ["early", "late"]
    with pytest.raises(AlreadyCancelled):
        never.cancel()
    with pytest.raises(AlreadyCalled):
        late.reset(1)


def test_a_resumed_process_makes_its_missed_calls_in_order() -> None:
    world = World(1)
    process = Process(world, "p")
    made: list[str] = []
    process.clock.callLater(1, made.append, "timer")
    world.clock.callLater(2, process.run, made.append, "message")
    process.pause()
    world.run(3)
    assert made == []
    process.run(made.append, "last")
    process.resume()
    assert made == ["timer", "message", "last"]


def test_a_missed_call_can_be_cancelled_by_an_earlier_missed_call() -> None:
    world = World(1)
    process = Process(world, "p")
    made: list[str] = []
    timer = process.clock.callLater(2, made.append, "timeout")
    world.clock.callLater(1, process.run, lambda: timer.cancel())
    process.pause()
    world.run(3)
    assert timer.active()
    process.resume()
    world.run(3)
    assert made == []


def test_a_wrong_time_of_day_changes_neither_timers_nor_the_clock_that_times_them() -> None:
    world = World(1)
    process = Process(world, "p")
    made: list[str] = []
    process.clock.ahead_s = -15.0
    timer = process.clock.callLater(1, made.append, "timer")
    assert process.clock.date_ms() == int(world.clock.seconds() * 1000) - 15_000
    assert process.clock.seconds() == world.clock.seconds() - START_S
    assert timer.getTime() == process.clock.seconds() + 1
    world.run(1)
    assert made == ["timer"]


def test_a_dead_process_does_nothing_more() -> None:
    world = World(1)
    process = Process(world, "p")
    made: list[str] = []
    process.on_death.append(lambda: made.append("died"))
    process.clock.callLater(1, made.append, "timer")
    SimWorkers(process).run(made.append, "work")
    process.kill()
    process.kill()
    world.run(2)
    assert made == ["died"]


def test_an_unexpected_exception_is_recorded_as_a_problem_and_the_process_continues() -> None:
    world = World(1)
    process = Process(world, "p")
    process.run(int, "x")
    process.run(world.trace, "p", "continues")
    assert len(world.problems) == 1
    assert "ValueError" in world.problems[0]
    assert "continues" in world.trace.lines[-1]


def test_generators_of_different_names_are_independent() -> None:
    one, other = World(1), World(1)
    other.rng("a").random()
    assert one.rng("b").random() == other.rng("b").random()
    assert one.rng("b").random() != one.rng("a").random()
    assert World(2).rng("b").random() != one.rng("b").random()


def test_the_trace_hash_covers_the_whole_run_though_only_its_end_is_kept() -> None:
    worlds = [World(1, keep_lines=1) for _ in range(3)]
    for number, world in enumerate(worlds):
        world.trace("a", "begins" if number < 2 else "begins otherwise")
        world.trace("a", "ends")
    digests = [world.trace.digest() for world in worlds]
    assert digests[0] == digests[1] != digests[2]
    assert all(list(world.trace.lines) == list(worlds[0].trace.lines) for world in worlds)
