"""A connection without a socket: order of responses, byte budget, muting, severing."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import (
    REQUESTS_PER_TURN,
    ConnectionLimits,
    ReplySlot,
    ServerConnection,
)
from holdfast_log.broker.network.rotation import TURN_S
from holdfast_log.broker.network.turns import SENDERS_MAX, WAIT_S, SendingTurn
from holdfast_log.protocol.frames import SIZE
from tests.models.wires import PEER, FakeWire


def frame(body: bytes) -> memoryview:
    return memoryview(bytearray(body))


class Served:
    """A connection whose handler records the requests; the test answers them."""

    def __init__(self, sending: SendingTurn | None = None, **limits: int) -> None:
        bounds = {
            "frame_bytes_max": 1000,
            "buffered_bytes_max": 1000,
            "in_flight_requests_max": 1000,
        } | limits
        self.clock = Clock()
        self.handled: list[bytes] = []
        self.replies: list[ReplySlot] = []
        self.connection = ServerConnection(
            1, "L", PEER, self._handle, ConnectionLimits(**bounds), self.clock, sending=sending
        )
        self.wire = FakeWire()
        self.connection.connected(self.wire)

    def _handle(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        self.handled.append(bytes(frame))
        self.replies.append(reply)
        if frame == b"now":
            reply.send([b"<now>"])
        elif frame == b"fail":
            raise ValueError("no good")

    def receive(self, *bodies: bytes) -> None:
        self.connection.frames_received([frame(body) for body in bodies])

    def sent(self, count: int) -> None:
        """Report that `count` bytes given to the wire were sent."""
        self.connection.bytes_sent(count)


def test_responses_are_sent_in_the_order_of_their_requests() -> None:
    served = Served()
    served.receive(b"a", b"b", b"c")
    served.replies[2].send([b"C"])
    served.replies[1].send([b"B1", b"B2"])
    assert served.wire.data == b""
    assert served.connection.in_flight_requests == 3
    served.replies[0].send([b"A"])
    assert served.wire.data == b"AB1B2C"
    assert served.wire.sends == 1
    assert served.connection.in_flight_requests == 0


def test_requests_that_take_long_leave_the_rest_of_the_turn_to_others() -> None:
    served = Served()
    handle = served.connection._handler
    served.connection._handler = lambda *request: (served.clock.pump([TURN_S]), handle(*request))[1]  # type: ignore[arg-type]
    served.receive(b"now", b"now", b"now")
    assert len(served.handled) < 3
    served.clock.advance(0)
    assert len(served.handled) == 3


def test_a_request_without_a_response_keeps_the_order_and_sends_no_bytes() -> None:
    served = Served()
    served.receive(b"acks=0", b"b", b"acks=0")
    served.replies[1].send([b"B"])
    served.replies[2].nothing()
    assert served.wire.data == b""
    served.replies[0].nothing()
    assert served.wire.data == b"B"
    served.sent(1)
    assert served.connection.buffered_bytes == 0


def test_responses_given_within_one_turn_are_sent_together() -> None:
    served = Served()
    served.receive(*[b"now"] * 10)
    assert served.wire.data == b"<now>" * 10
    assert served.wire.sends == 1


def test_responses_of_one_turn_of_the_reactor_are_sent_at_its_end() -> None:
    sending = SendingTurn()
    first, second = Served(sending), Served(sending)
    sending.begin()
    for served in (first, second):
        served.receive(b"now")
    second.receive(b"later")
    second.replies[1].send([b"<later>"])
    assert (first.wire.data, second.wire.data) == (b"", b"")
    sending.end()
    assert (first.wire.data, second.wire.data) == (b"<now>", b"<now><later>")
    assert second.wire.sends == 1
    first.receive(b"now")
    assert first.wire.data == b"<now>" * 2, "nothing waits while the reactor reads from one socket"


def test_so_many_responses_do_not_wait_for_the_end_of_the_turn() -> None:
    sending = SendingTurn()
    served = [Served(sending) for _ in range(SENDERS_MAX + 1)]
    sending.begin()
    for each in served:
        each.receive(b"now")
    assert [each.wire.sends for each in served] == [1] * SENDERS_MAX + [0]
    sending.end()
    assert [each.wire.sends for each in served] == [1] * (SENDERS_MAX + 1)
    assert all(each.connection.is_idle and not each.wire.is_paused for each in served)


def test_responses_do_not_wait_while_others_take_long() -> None:
    sending = SendingTurn()
    served, slow, later = Served(sending), Served(sending), Served(sending)
    slow.clock = later.clock = served.clock
    for each in (slow, later):
        each.connection._clock_s = served.clock.seconds
    sending.begin()
    served.receive(b"now")
    slow.receive(b"slow")
    assert served.wire.sends == 0
    slow.connection.may_take_long()
    assert served.wire.sends == 1
    slow.replies[0].send([b"done"])
    served.clock.advance(2 * WAIT_S)
    later.receive(b"now")
    assert (slow.wire.sends, later.wire.sends) == (1, 0)
    sending.end()
    assert (served.wire.sends, slow.wire.sends, later.wire.sends) == (1, 1, 1)


def test_a_connection_that_closes_before_the_turn_ends_sends_nothing() -> None:
    sending = SendingTurn()
    served, other, last = Served(sending), Served(sending), Served(sending)
    sending.begin()
    for each in (served, other, last):
        each.receive(b"now")
    served.connection.close("gone")
    other.connection.close_when_sent("the end")
    assert (served.wire.data, other.wire.data) == (b"", b"<now>")
    sending.end()
    assert (served.wire.data, other.wire.data, last.wire.data) == (b"", b"<now>", b"<now>")


def test_a_wire_that_fails_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    sending = SendingTurn()
    served, other = Served(sending), Served(sending)
    served.wire.send = None  # type: ignore[method-assign, assignment]
    sending.begin()
    for each in (served, other):
        each.receive(b"now")
    sending.end()
    assert served.connection.is_closed and served.wire.is_aborted
    assert not other.connection.is_closed
    assert other.wire.data == b"<now>"
    assert any(record.exc_info for record in caplog.records)


def test_a_response_that_waits_for_the_end_of_the_turn_counts_towards_the_budget() -> None:
    sending = SendingTurn()
    served = Served(sending, buffered_bytes_max=100)
    sending.begin()
    served.receive(b"a")
    served.replies[0].send([b"A" * 500])
    served.receive(b"b")
    assert served.handled == [b"a"]
    sending.end()
    assert served.wire.is_paused
    served.sent(500)
    assert served.handled == [b"a", b"b"]
    assert not served.wire.is_paused


def test_a_second_response_to_a_request_is_refused() -> None:
    served = Served()
    served.receive(b"a")
    served.replies[0].send([b"A"])
    with pytest.raises(AssertionError, match="once"):
        served.replies[0].nothing()


def test_a_connection_over_its_budget_reads_nothing_until_responses_are_sent() -> None:
    served = Served(buffered_bytes_max=100)
    served.receive(b"x" * 60, b"y" * 60, b"z")
    assert served.handled == [b"x" * 60, b"y" * 60]  # the second request exceeds the limit
    assert served.wire.is_paused
    served.replies[0].send([b"A" * 10])
    assert len(served.handled) == 3  # 60 + 10 bytes are below the limit
    assert not served.wire.is_paused
    assert served.connection.buffered_bytes == 60 + 10 + 1


def test_unsent_responses_count_towards_the_budget() -> None:
    served = Served(buffered_bytes_max=100)
    served.receive(b"a")
    served.replies[0].send([b"A" * 500])
    assert served.wire.is_paused
    served.sent(399)
    assert served.wire.is_paused
    served.sent(1)
    assert not served.wire.is_paused
    assert served.connection.buffered_bytes == 100


def test_a_single_request_above_the_budget_is_handled() -> None:
    served = Served(buffered_bytes_max=10)
    served.receive(b"x" * 500)
    assert len(served.handled) == 1
    assert served.wire.is_paused
    served.replies[0].nothing()
    assert not served.wire.is_paused


def test_responses_waiting_for_an_earlier_one_count_towards_the_budget() -> None:
    served = Served(buffered_bytes_max=100)
    served.receive(b"a", b"b")
    served.replies[1].send([b"B" * 200])
    assert served.connection.buffered_bytes == 201
    served.receive(b"c")
    assert len(served.handled) == 2
    assert served.wire.is_paused


def test_a_response_out_of_order_that_frees_bytes_resumes_reading() -> None:
    served = Served(buffered_bytes_max=100)
    served.receive(b"a", b"x" * 500)
    assert served.wire.is_paused
    served.replies[1].nothing()
    assert not served.wire.is_paused


def test_requests_in_flight_do_not_exceed_the_limit() -> None:
    served = Served(in_flight_requests_max=2)
    served.receive(b"a", b"b", b"c", b"d")
    assert served.handled == [b"a", b"b"]
    assert served.wire.is_paused
    served.replies[0].nothing()
    assert served.handled == [b"a", b"b", b"c"]
    served.replies[1].nothing()
    assert served.handled == [b"a", b"b", b"c", b"d"]
    assert served.wire.is_paused
    served.replies[2].nothing()
    assert not served.wire.is_paused


def test_a_connection_yields_to_other_calls_after_each_turn() -> None:
    served = Served()
    served.clock.callLater(0, lambda: served.handled.append(b"other call"))
    served.receive(*[b"now"] * (2 * REQUESTS_PER_TURN + 1))
    assert len(served.handled) == REQUESTS_PER_TURN
    assert served.wire.is_paused
    served.clock.advance(0)
    assert served.handled.index(b"other call") == REQUESTS_PER_TURN
    assert served.handled.count(b"now") == 2 * REQUESTS_PER_TURN + 1
    assert served.wire.sends == 3
    assert not served.wire.is_paused
    assert not served.clock.getDelayedCalls()


def test_responses_sent_at_once_do_not_lengthen_a_turn() -> None:
    """Turns must not nest when the wire reports bytes as sent within its `send`."""
    served = Served(buffered_bytes_max=1)

    class Instant(FakeWire):
        def send(self, parts: list[bytes]) -> None:  # type: ignore[override]
            super().send(parts)
            served.connection.bytes_sent(sum(map(len, parts)))

    served.connection.connected(Instant())
    served.receive(*[b"now"] * 5000)
    for _ in range(6000):
        served.clock.advance(0)
    assert len(served.handled) == 5000
    assert served.connection.buffered_bytes == 0


def test_a_muted_connection_sends_but_neither_reads_nor_handles() -> None:
    served = Served()
    served.receive(b"a")
    served.connection.mute(500)
    served.receive(b"b")  # read before the wire was paused
    served.replies[0].send([b"A"])
    assert served.wire.data == b"A"
    assert served.wire.is_paused
    assert served.handled == [b"a"]
    served.clock.advance(0.499)
    assert served.handled == [b"a"]
    served.clock.advance(0.001)
    assert served.handled == [b"a", b"b"]
    assert not served.wire.is_paused


def test_a_connection_stays_muted_for_the_longer_of_two_mutes_or_until_unmute() -> None:
    served = Served()
    served.connection.mute(500)
    served.connection.mute(100)
    served.clock.advance(0.2)
    assert served.connection.is_muted
    served.connection.mute(1000)
    served.clock.advance(0.9)
    assert served.connection.is_muted
    served.connection.unmute()
    assert not served.connection.is_muted
    assert not served.wire.is_paused
    assert not served.clock.getDelayedCalls()


def test_a_mute_can_be_shortened_and_not_made_longer() -> None:
    served = Served()
    served.connection.mute(1000)
    served.connection.shorten_mute(2000)
    served.clock.advance(0.4)
    served.connection.shorten_mute(100)
    served.clock.advance(0.09)
    assert served.connection.is_muted
    served.clock.advance(0.02)
    assert not served.connection.is_muted
    served.connection.mute(1000)
    served.connection.shorten_mute(0)
    assert not served.connection.is_muted
    served.connection.shorten_mute(100)
    assert not served.clock.getDelayedCalls()


def test_a_connection_that_is_muted_before_it_has_a_wire_reads_nothing_until_the_mute_ends() -> None:
    clock = Clock()
    connection = ServerConnection(
        1, "L", PEER, lambda *request: None, ConnectionLimits(1000, 1000, 1000), clock
    )
    connection.mute(1000)
    wire = FakeWire()
    connection.connected(wire)
    assert wire.is_paused
    clock.advance(1)
    assert not wire.is_paused


def test_severing_drops_queued_requests_and_calls_the_close_callbacks() -> None:
    served = Served(in_flight_requests_max=1)
    told: list[str] = []
    served.connection.add_close_callback(lambda connection: told.append(f"first {connection.close_reason}"))
    served.connection.add_close_callback(lambda connection: told.append("second"))
    served.receive(b"a", b"b")
    served.connection.mute(100)
    served.connection.close("fenced")
    assert told == ["first fenced", "second"]
    assert served.wire.is_aborted
    served.replies[0].send([b"too late"])
    served.receive(b"c")
    served.connection.close("again")
    served.connection.connection_lost("aborted")
    assert served.handled == [b"a"]
    assert told == ["first fenced", "second"]
    assert served.connection.close_reason == "fenced"
    assert not served.clock.getDelayedCalls()
    served.connection.add_close_callback(lambda connection: told.append("late"))
    assert told[-1] == "late"


def test_a_failing_close_callback_does_not_prevent_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served = Served()
    told: list[str] = []
    served.connection.add_close_callback(lambda connection: [][1])
    served.connection.add_close_callback(lambda connection: told.append("second"))
    served.connection.connection_lost("the peer left")
    assert told == ["second"]
    assert served.connection.close_reason == "the peer left"
    assert len(caplog.records) == 1


def test_a_connection_severed_within_a_turn_handles_no_further_requests() -> None:
    served = Served()
    served.connection.add_close_callback(lambda connection: None)
    original = served._handle

    def handle(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        original(connection, frame, reply)
        if frame == b"last":
            connection.close("enough")

    served.connection._handler = handle
    served.receive(b"now", b"last", b"never")
    assert served.handled == [b"now", b"last"]
    assert served.wire.is_aborted


def test_close_when_sent_sends_the_responses_given_so_far() -> None:
    served = Served()
    served.receive(b"a", b"b")
    served.replies[0].send([b"A"])
    served.connection.close_when_sent("wrong password")
    assert served.wire.data == b"A"
    assert served.wire.is_closed and not served.wire.is_aborted
    served.sent(1)
    assert served.connection.bytes_out == 1
    assert served.connection.buffered_bytes == 0


def test_a_failing_handler_closes_its_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    served = Served()
    with caplog.at_level(logging.ERROR):
        served.receive(b"fail", b"never")
    assert served.handled == [b"fail"]
    assert served.wire.is_aborted
    (record,) = caplog.records
    assert record.exc_info is not None and "192.0.2.1" in record.getMessage()


def test_a_connection_counts_requests_and_bytes_and_records_times() -> None:
    served = Served()
    served.clock.advance(2.5)
    served.receive(b"abc", b"de")
    assert served.connection.created_ms == 0
    assert served.connection.last_activity_ms == 2500
    assert served.connection.requests == 2
    assert served.connection.bytes_in == 5 + 2 * SIZE.size
    served.clock.advance(1)
    served.replies[0].send([b"answer"])
    served.sent(6)
    assert served.connection.bytes_out == 6
    assert served.connection.last_activity_ms == 3500
