"""How many handshakes there may be, for how long, and how much of a turn they take."""

from __future__ import annotations

from twisted.internet.task import Clock

from holdfast_log.broker.network.rotation import SLICE_S, Rotation
from holdfast_log.broker.network.rotation import TURN_S as ROTATION_S
from holdfast_log.broker.network.tls.handshakes import TURN_S, Handshakes
from holdfast_log.broker.network.tls.settings import HandshakeLimits


class Shaking:
    """A handshake whose steps take `step_s` each, by the clock."""

    def __init__(
        self, clock: Clock, handshakes: Handshakes, step_s: float = 0.0, *, has_begun: bool = True
    ) -> None:
        self._clock = clock
        self._handshakes = handshakes
        self._step_s = step_s
        self.steps = 0
        self.waits = 0
        self.ended_by: str | None = None
        handshakes.expect(self)
        if has_begun:
            handshakes.begin(self)

    def shake(self) -> None:
        self.steps += 1
        self._clock.rightNow += self._step_s

    def wait_in_line(self) -> None:
        self.waits += 1

    def give_up(self, reason: str) -> None:
        self.ended_by = reason
        self._clock.rightNow += self._step_s
        self._handshakes.end(self)


def turn(clock: Clock) -> None:
    """One turn of a reactor: what this turn puts off until later runs in none of its own calls."""
    call = min(clock.calls, key=lambda each: each.getTime())
    clock.calls.remove(call)
    call.called = 1
    call.func(*call.args, **call.kw)


def test_the_oldest_gives_way() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(open_max=3))
    first, *others = [Shaking(clock, handshakes) for _ in range(4)]

    assert first.ended_by == "3 handshakes (ssl.handshakes.max) began after it"
    assert not any(each.ended_by for each in others)
    assert (len(handshakes), handshakes.ended) == (3, 1)


def test_peers_that_have_not_begun_displace_nobody() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(open_max=3, timeout_ms=1000))
    first = Shaking(clock, handshakes)
    silent = [Shaking(clock, handshakes, has_begun=False) for _ in range(100)]
    assert (len(handshakes), first.ended_by) == (1, None)

    clock.advance(1)
    assert first.ended_by is not None and all(each.ended_by for each in silent)
    assert (len(handshakes), handshakes.ended) == (0, 101)
    assert clock.getDelayedCalls() == []


def test_a_crowd_that_is_late_ends_in_several_turns() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(timeout_ms=1000))
    crowd = [Shaking(clock, handshakes, 0.6 * TURN_S, has_begun=False) for _ in range(100)]
    clock.rightNow += 1

    for number in range(1, 51):
        before_s = clock.seconds()
        turn(clock)
        assert clock.seconds() - before_s <= 1.5 * TURN_S
        assert sum(each.ended_by is not None for each in crowd) == 2 * number
    assert clock.getDelayedCalls() == []


def test_each_ends_in_time_and_none_before() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(timeout_ms=1000))
    first = Shaking(clock, handshakes)
    clock.advance(0.6)
    second = Shaking(clock, handshakes)
    done = Shaking(clock, handshakes)
    handshakes.end(done)

    clock.advance(0.4)
    assert (first.ended_by is not None, second.ended_by) == (True, None)
    clock.advance(0.6)
    assert second.ended_by is not None and done.ended_by is None
    assert clock.getDelayedCalls() == []


def look(clock: Clock) -> None:
    """All calls that are due, as the reactor makes them before it looks at the sockets."""
    for call in [each for each in clock.calls if each.getTime() <= clock.seconds()]:
        clock.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


def test_one_expensive_step_is_taken_between_two_looks_at_the_sockets_however_many_wait() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(open_max=1000, timeout_ms=600_000))
    crowd = [Shaking(clock, handshakes, TURN_S) for _ in range(20)]

    for number in range(20):
        # The sockets of these are reported together.
        for each in crowd if number == 0 else ():
            handshakes.step(each)
        assert sum(each.steps for each in crowd) == number, "no step while sockets are read"
        look(clock)
        assert sum(each.steps for each in crowd) == number + 1
    assert [each.steps for each in crowd] == [1] * 20


def test_one_that_comes_alone_has_its_step_before_the_next_look_at_the_sockets() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(timeout_ms=600_000))
    alone = Shaking(clock, handshakes, TURN_S)
    for steps in (1, 2, 3):
        handshakes.step(alone)
        look(clock)
        assert alone.steps == steps


def test_a_crowd_takes_its_share_of_each_turn_and_all_have_their_turn() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(open_max=1000, timeout_ms=600_000))
    crowd = [Shaking(clock, handshakes, 0.6 * TURN_S) for _ in range(100)]

    for each in crowd:
        handshakes.step(each)
    for number in range(1, 51):
        before_s = clock.seconds()
        look(clock)
        assert clock.seconds() - before_s <= 1.5 * TURN_S
        assert sum(each.steps for each in crowd) == 2 * number
    assert [each.steps for each in crowd] == [1] * 100


def test_handshakes_of_all_listeners_and_all_other_work_that_can_wait_take_one_turn_together() -> None:
    clock = Clock()
    rotation = Rotation(clock)
    limits = HandshakeLimits(open_max=1000, timeout_ms=600_000)
    listeners = [Handshakes(clock, limits, rotation) for _ in range(5)]
    step_s = SLICE_S / 2
    crowd = [Shaking(clock, each, step_s) for each in listeners for _ in range(10)]
    done: list[str] = []

    def work() -> None:
        clock.rightNow += step_s
        done.append("other work")

    for number, each in enumerate(crowd):
        listeners[number // 10].step(each)
        rotation.call(work)
        listeners[0].call(work)
    while rotation.waiting:
        before_s = clock.seconds()
        look(clock)
        assert clock.seconds() - before_s <= ROTATION_S + step_s
    assert [each.steps for each in crowd] == [1] * 50 and len(done) == 100


def test_one_under_way_is_done_before_so_many_begin_that_it_gives_way() -> None:
    """Beside a crowd that begins again and again, with a line of those that wait for it."""
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(open_max=10, timeout_ms=600_000))

    class Beginning(Shaking):
        def shake(self) -> None:
            super().shake()
            handshakes.begin(self)

    for each in [Shaking(clock, handshakes, TURN_S) for _ in range(9)]:
        handshakes.step(each)
    honest = Shaking(clock, handshakes, TURN_S)
    for _ in range(100):
        handshakes.step(Beginning(clock, handshakes, TURN_S, has_begun=False))
    handshakes.step(honest)
    for _ in range(120):
        look(clock)
        if honest.steps:
            break
    assert (honest.ended_by, honest.steps) == (None, 1)


def test_those_under_way_keep_nobody_from_beginning() -> None:
    """They send a byte at a time, so that each of them has something to do again at once."""
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(timeout_ms=600_000))
    busy = [Shaking(clock, handshakes, TURN_S) for _ in range(5)]
    new = [Shaking(clock, handshakes, TURN_S, has_begun=False) for _ in range(5)]
    for each in (*busy, *new):
        handshakes.step(each)
    for _ in range(15):
        before = [each.steps for each in busy]
        look(clock)
        for each, steps in zip(busy, before, strict=True):
            if each.steps > steps:
                handshakes.step(each)
    assert [each.steps for each in new] == [1] * 5 and sum(each.steps for each in busy) == 10


def test_one_that_has_ended_loses_its_place_in_the_line() -> None:
    clock = Clock()
    handshakes = Handshakes(clock, HandshakeLimits(timeout_ms=600_000))
    first, second, third = [Shaking(clock, handshakes, TURN_S) for _ in range(3)]
    for each in (first, second, third):
        handshakes.step(each)

    handshakes.end(second)
    for _ in range(2):
        look(clock)

    assert (first.steps, second.steps, third.steps) == (1, 0, 1)
