"""The send queue of a socket: what waits takes little more memory than its bytes."""

from __future__ import annotations

import socket
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.broker.network.outgoing import Outgoing

ANSWER = b"\0\0\0\x0eanswer-of-14b!"


def sent_by(outgoing: Outgoing) -> bytes:
    """All bytes of the queue, as a peer receives them."""
    one, other = socket.socketpair()
    received = bytearray()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        while outgoing:
            outgoing.send_some(one, one.fileno())
            while True:
                try:
                    received += other.recv(1 << 20)
                except BlockingIOError:
                    break
    return bytes(received)


@given(
    st.lists(
        st.one_of(
            st.lists(st.binary(max_size=40), max_size=200),
            st.lists(st.sampled_from([b"", bytes(1023), bytes(1024), bytes(100_000)]), max_size=5),
        ),
        max_size=8,
    )
)
def test_parts_are_sent_in_order_however_they_are_joined(added: list[list[bytes]]) -> None:
    outgoing = Outgoing()
    for parts in added:
        outgoing.add(parts)
    assert sent_by(outgoing) == b"".join(b"".join(parts) for parts in added)


def test_parts_that_are_added_while_others_are_sent_are_not_lost() -> None:
    outgoing = Outgoing()
    one, other = socket.socketpair()
    received = bytearray()
    wanted = bytearray()
    with one, other:
        one.setblocking(False)
        other.setblocking(False)
        for number in range(300):
            parts = [bytes([number % 256]) * 700] * 30
            wanted += b"".join(parts)
            outgoing.add(parts)
            outgoing.send_some(one, one.fileno())
            received += other.recv(5000)
        while outgoing:
            outgoing.send_some(one, one.fileno())
            received += other.recv(1 << 20)
        while len(received) < len(wanted):
            received += other.recv(1 << 20)
    assert received == wanted


def test_small_answers_that_wait_take_little_more_memory_than_their_bytes() -> None:
    count = 100_000
    outgoing = Outgoing()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count):
            outgoing.add([bytes(bytearray(ANSWER))])  # an object of its own
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 1.3 * count * len(ANSWER)
    outgoing.clear()
