"""Waiting requests: completed by an event, expired, or cancelled."""

from __future__ import annotations

from collections.abc import Hashable

from twisted.internet.task import Clock

from holdfast_log.broker.replication.waiting import MAX_WAIT_MS, OWNED_MAX, Waiting


class Request:
    """Completes once every key of `needed` has been woken."""

    def __init__(self, *needed: str) -> None:
        self.needed = set(needed)
        self.asked: list[Hashable] = []
        self.outcome: list[str] = []

    def check(self, key: Hashable) -> bool:
        self.asked.append(key)
        self.needed.discard(str(key))
        if not self.needed:
            self.outcome.append("completed")
        return not self.needed

    def expire(self) -> None:
        self.outcome.append("expired")


def test_a_request_completes_once_every_key_it_waits_for_was_woken() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    request = Request("a", "b")
    parked = waiting.park(["a", "b"], 1000, request.check, request.expire)
    waiting.wake("a")
    assert request.outcome == []
    assert not parked.is_over
    waiting.wake("b")
    assert request.outcome == ["completed"]
    assert parked.is_over
    clock.advance(10)
    assert request.outcome == ["completed"]
    assert len(waiting) == 0
    assert clock.getDelayedCalls() == []


def test_only_requests_parked_under_the_key_are_checked() -> None:
    waiting = Waiting(Clock())
    one, other = Request("a"), Request("b")
    waiting.park(["a"], 1000, one.check, one.expire)
    waiting.park(["b"], 1000, other.check, other.expire)
    waiting.wake("a")
    waiting.wake("unused key")
    assert one.outcome == ["completed"]
    assert other.asked == []
    assert len(waiting) == 1


def test_a_request_expires_once_after_its_timeout() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    request = Request("a")
    waiting.park(["a"], 500, request.check, request.expire)
    clock.advance(0.499)
    assert request.outcome == []
    clock.advance(0.001)
    assert request.outcome == ["expired"]
    waiting.wake("a")
    assert request.outcome == ["expired"]
    assert len(waiting) == 0


def test_a_cancelled_request_is_never_answered() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    request = Request("a")
    parked = waiting.park(["a"], 500, request.check, request.expire)
    parked.cancel()
    parked.cancel()
    waiting.wake("a")
    clock.advance(1)
    assert request.outcome == []
    assert len(waiting) == 0


def test_a_request_above_the_capacity_expires_at_once() -> None:
    waiting = Waiting(Clock(), capacity=1)
    first, second = Request("a"), Request("a")
    waiting.park(["a"], 500, first.check, first.expire)
    assert waiting.park(["a"], 500, second.check, second.expire).is_over
    assert second.outcome == ["expired"]
    assert first.outcome == []
    assert len(waiting) == 1


def test_a_timeout_above_the_maximum_is_shortened() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    request = Request("a")
    waiting.park(["a"], 2**31 - 1, request.check, request.expire)
    clock.advance(MAX_WAIT_MS / 1000)
    assert request.outcome == ["expired"]


def test_a_request_cancelled_during_its_check_is_removed_once() -> None:
    waiting = Waiting(Clock())
    cancelled: list[str] = []

    def check(key: Hashable) -> bool:
        parked.cancel()
        cancelled.append(str(key))
        return True

    parked = waiting.park(["a"], 500, check, lambda: None)
    waiting.wake("a")
    waiting.wake("a")
    assert cancelled == ["a"]
    assert len(waiting) == 0


def test_a_check_may_wake_and_park_other_requests() -> None:
    waiting = Waiting(Clock())
    second = Request("b")
    late = Request("a")

    def check(key: Hashable) -> bool:
        waiting.wake("b")
        waiting.park(["a"], 500, late.check, late.expire)
        return True

    waiting.park(["a"], 500, check, lambda: None)
    waiting.park(["b"], 500, second.check, second.expire)
    waiting.wake("a")
    assert second.outcome == ["completed"]
    assert late.asked == []
    assert len(waiting) == 1


def test_a_request_whose_check_wakes_its_own_key_is_answered_once() -> None:
    waiting = Waiting(Clock())
    answers: list[Hashable] = []

    def check(key: Hashable) -> bool:
        waiting.wake("b")  # as when a read fails because of the disk
        answers.append(key)
        return True

    waiting.park(["a", "b"], 500, check, lambda: None)
    waiting.wake("a")
    assert answers == ["a"]
    assert len(waiting) == 0


def test_a_key_woken_during_a_check_is_checked_afterwards() -> None:
    waiting = Waiting(Clock())
    asked: list[Hashable] = []

    def check(key: Hashable) -> bool:
        asked.append(key)
        if key == "a":
            waiting.wake("b")
        return key == "b"

    waiting.park(["a", "b"], 500, check, lambda: None)
    waiting.wake("a")
    assert asked == ["a", "b"]
    assert len(waiting) == 0


class BytesRequest(Request):
    """Never completes. Needs `needed` bytes to be worth a check."""

    def __init__(self, needed: int | None) -> None:
        super().__init__("never")
        self.bytes = needed

    def needed_bytes(self, key: Hashable) -> int | None:
        return self.bytes


def test_a_request_that_needs_bytes_is_checked_when_they_have_come() -> None:
    waiting = Waiting(Clock())
    few, many, unknown = BytesRequest(10), BytesRequest(1000), BytesRequest(None)
    for each in (many, few, unknown):
        waiting.park(["a"], 500, each.check, each.expire, needed=each.needed_bytes)
    waiting.wake("a", 9)
    assert (len(few.asked), len(many.asked), len(unknown.asked)) == (0, 0, 1)
    few.bytes, unknown.bytes = 20, 15
    waiting.wake("a", 10)
    assert (len(few.asked), len(many.asked), len(unknown.asked)) == (1, 0, 2)
    waiting.wake("a", 19)
    assert (len(few.asked), len(many.asked), len(unknown.asked)) == (1, 0, 3)
    few.bytes = None
    waiting.wake("a", 20)
    waiting.wake("a", 21)
    assert (len(few.asked), len(many.asked)) == (3, 0)
    waiting.wake("a")
    assert len(many.asked) == 1, "a change of another kind is looked at by all"
    waiting.wake("a", 1000)
    assert len(many.asked) == 2


def test_requests_that_ended_while_they_needed_bytes_are_forgotten() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    for number in range(1000):
        request = BytesRequest(1 << 40)
        parked = waiting.park(
            ["a"], 86_400_000, request.check, request.expire, owner=1, needed=request.needed_bytes
        )
        if number % 2:
            parked.cancel()
        elif number > 10:
            parked.expire()
    assert len(waiting) == 6
    assert len(waiting.parked["a"].heap) < 200
    assert len(waiting.deadlines) < 200
    waiting.cancel_all_of(1)
    assert not waiting.parked and not len(waiting.deadlines)
    assert clock.getDelayedCalls() == []


def test_many_requests_have_one_timer_and_expire_in_order() -> None:
    clock = Clock()
    clock.advance(0.1 + 0.2)  # a time of day that no timer hits exactly
    waiting = Waiting(clock)
    expired: list[int] = []
    for number, timeout_ms in enumerate((300, 100, 700, 100, 0)):

        def expire(number: int = number) -> None:
            expired.append(number)

        waiting.park(["a"], timeout_ms, lambda key: False, expire)
    assert len(clock.getDelayedCalls()) == 1
    clock.advance(0)
    assert expired == [4]
    clock.advance(0.1)
    assert expired == [4, 1, 3]
    clock.advance(0.2)
    assert expired == [4, 1, 3, 0]
    clock.advance(0.4)
    assert expired == [4, 1, 3, 0, 2] and len(waiting) == 0
    assert clock.getDelayedCalls() == []


def test_a_request_that_expires_may_park_another_one() -> None:
    clock = Clock()
    waiting = Waiting(clock)
    late = Request("a")
    waiting.park(["a"], 100, lambda key: False, lambda: park_late(waiting, late))
    clock.advance(0.1)
    assert late.outcome == []
    clock.advance(0.05)
    assert late.outcome == ["expired"]


def park_late(waiting: Waiting, late: Request) -> None:
    waiting.park(["a"], 50, late.check, late.expire)


def test_few_requests_of_one_connection_wait_and_the_oldest_goes_first() -> None:
    waiting = Waiting(Clock())
    requests = [Request("a") for _ in range(1000)]
    for request in requests:
        waiting.park(["a"], 60_000, request.check, request.expire, owner=7)
        assert len(waiting) <= OWNED_MAX
    other = Request("a")
    waiting.park(["a"], 60_000, other.check, other.expire, owner=8)
    assert [each.outcome for each in requests[:-OWNED_MAX]] == [["expired"]] * (1000 - OWNED_MAX)
    waiting.wake("a")
    assert sum(len(each.asked) for each in requests) == OWNED_MAX
    assert [each.outcome for each in [*requests[-OWNED_MAX:], other]] == [["completed"]] * (OWNED_MAX + 1)
    assert len(waiting) == 0
