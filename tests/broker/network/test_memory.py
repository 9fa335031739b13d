"""The request memory shared by all connections: which requests get room, which wait, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.broker.network.memory import NO_LIMIT, RequestMemory


class Line:
    """Borrowers by name, and the grants made after a wait."""

    def __init__(self, bytes_max: int) -> None:
        self.memory = RequestMemory(bytes_max)
        self.granted: list[str] = []
        self.calls = {name: lambda name=name: self.granted.append(name) for name in "abcdef"}

    def borrow(self, name: str, size: int) -> bool:
        return self.memory.borrow(size, self.calls[name])


def test_a_request_that_fits_is_granted_at_once() -> None:
    line = Line(100)
    assert line.borrow("a", 60)
    assert line.borrow("b", 40)
    assert not line.borrow("c", 1)
    assert line.memory.lent_bytes == 100


def test_requests_are_granted_in_order() -> None:
    line = Line(100)
    line.borrow("a", 100)
    assert not line.borrow("b", 80)
    assert not line.borrow("c", 30)
    assert not line.borrow("d", 10)
    line.memory.give_back(100)
    assert line.granted == ["b"]
    line.memory.give_back(80)
    assert line.granted == ["b", "c", "d"]


def test_a_small_request_does_not_overtake_a_large_one() -> None:
    line = Line(100)
    line.borrow("a", 50)
    assert not line.borrow("b", 80)
    assert not line.borrow("c", 10)


def test_a_request_above_the_limit_is_granted_when_alone() -> None:
    line = Line(100)
    assert line.borrow("a", 10)
    assert not line.borrow("b", 500)
    line.memory.give_back(10)
    assert line.granted == ["b"]
    assert not line.borrow("c", 10)
    line.memory.give_back(500)
    assert line.granted == ["b", "c"]


def test_a_request_that_leaves_the_queue_blocks_no_other() -> None:
    line = Line(100)
    line.borrow("a", 50)
    line.borrow("b", 80)
    line.borrow("c", 10)
    line.memory.leave(line.calls["b"])
    assert line.granted == ["c"]
    assert line.memory.waiting == 0


def test_without_a_limit_no_request_waits() -> None:
    line = Line(NO_LIMIT)
    assert all(line.borrow(name, 1 << 40) for name in "abc")


@given(st.lists(st.integers(1, 150), max_size=30))
def test_all_requests_are_granted_in_order_within_the_limit(sizes: list[int]) -> None:
    memory = RequestMemory(100)
    served: list[int] = []
    held: list[int] = []
    for number, size in enumerate(sizes):
        # Each borrower holds its grant until it is given back below.
        def granted(number: int = number, size: int = size) -> None:
            served.append(number)
            held.append(size)

        if memory.borrow(size, granted):
            granted()
    while held:
        assert memory.lent_bytes == sum(held)
        assert memory.lent_bytes <= 100 or len(held) == 1
        memory.give_back(held.pop(0))
    assert served == list(range(len(sizes)))
    assert memory.lent_bytes == memory.waiting == 0
