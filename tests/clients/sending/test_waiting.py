"""Waits of processes that stand still."""

from __future__ import annotations

from threading import Event

from holdfast_log.clients.sending.waiting import wait_while_awake


class StoppedProcess(Event):
    """An event and a clock. Each wait takes its time, or longer if the process is stopped: `stops` has the
    seconds of each standstill by the number of the wait. The event is set in the wait `set_in`."""

    def __init__(self, stops: dict[int, float], set_in: int = -1) -> None:
        super().__init__()
        self._stops = stops
        self._set_in = set_in
        self.now_s = 100.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        number = len(self.waits)
        self.waits.append(timeout)
        if number == self._set_in:
            return True
        self.now_s += timeout + self._stops.get(number, 0.001)
        return False

    def awaits(self, timeout_ms: int) -> bool:
        return wait_while_awake(self, timeout_ms, lambda: self.now_s)


def test_a_process_that_is_awake_waits_as_long_as_it_was_asked_to() -> None:
    process = StoppedProcess({})
    assert not process.awaits(1100)
    assert 1.09 < sum(process.waits) < 1.2


def test_a_process_that_was_stopped_waits_on_for_what_brokers_have_sent_meanwhile() -> None:
    process = StoppedProcess({0: 4.0}, set_in=2)
    assert process.awaits(200)


def test_a_wait_ends_three_seconds_after_the_last_standstill() -> None:
    process = StoppedProcess({0: 4.0, 3: 2.0})
    assert not process.awaits(200)
    assert 2.9 < sum(process.waits[4:]) < 3.2


def test_a_standstill_takes_no_time_from_a_long_wait() -> None:
    process = StoppedProcess({2: 60.0})
    assert not process.awaits(10_000)
    assert 9.0 < sum(process.waits) < 10.3
