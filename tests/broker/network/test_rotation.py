"""Clients that send ahead share the broker's time: others wait for a little of it, however many there are."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import (
    REQUESTS_PER_TURN,
    ConnectionLimits,
    ReplySlot,
    ServerConnection,
)
from holdfast_log.broker.network.rotation import SLICE_S, TURN_S, Rotation
from holdfast_log.broker.network.turns import LONG_BYTES
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.messages.metadata import MetadataResponse
from tests.models.wires import PEER, FakeWire

LIMITS = ConnectionLimits(frame_bytes_max=1000, buffered_bytes_max=100_000, in_flight_requests_max=1000)
REQUEST_S = SLICE_S / 4


class Broker:
    """Connections that share a rotation. Each request takes `request_s` of the clock's time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rotation = Rotation(self.clock)
        self.request_s = REQUEST_S
        self.handled: list[int] = []
        """The connections' ids, in the order of their handled requests."""
        self.spent: list[str] = []
        """The steps of other work."""

    def connect(self) -> ServerConnection:
        connection = ServerConnection(
            len(self.handled), "L", PEER, self._handle, LIMITS, self.clock, rotation=self.rotation
        )
        connection.connected(FakeWire())
        return connection

    def flood(self, number: int, count: int) -> ServerConnection:
        """A connection that sends so many requests at once."""
        connection = self.connect()
        connection.id = number
        send(connection, count)
        return connection

    def turn(self) -> float:
        """Take the one turn that is due. Returns how long it took."""
        (call,) = self.clock.getDelayedCalls()
        self.clock.calls.remove(call)  # type: ignore[arg-type]
        began_s = self.clock.seconds()
        call.func()  # type: ignore[attr-defined]
        return self.clock.seconds() - began_s

    def look(self) -> float:
        """Take all calls that are due, as the reactor does before it looks at the sockets. Returns how long
        they took."""
        began_s = self.clock.seconds()
        for call in [each for each in self.clock.getDelayedCalls() if each.getTime() <= began_s]:
            self.clock.calls.remove(call)  # type: ignore[arg-type]
            call.func()  # type: ignore[attr-defined]
        return self.clock.seconds() - began_s

    def spend(self, kind: str) -> None:
        """Do one step of other work, which takes as long as a request."""
        self.clock.rightNow += self.request_s  # type: ignore[attr-defined]
        self.spent.append(kind)

    def _handle(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        self.clock.rightNow += self.request_s  # type: ignore[attr-defined]
        self.handled.append(connection.id)
        reply.send([b"answer"])


def send(connection: ServerConnection, count: int) -> None:
    connection.frames_received([memoryview(bytearray(b"request"))] * count)


@pytest.mark.parametrize("floods", [1, 3, 50])
def test_all_who_send_ahead_take_one_turn_together(floods: int) -> None:
    broker = Broker()
    for number in range(floods):
        broker.flood(number, 60)
    assert broker.clock.seconds() <= TURN_S + REQUEST_S, "what is handled on arrival is one turn together"
    while broker.rotation.waiting:
        assert broker.turn() <= TURN_S + REQUEST_S
    assert len(broker.handled) == floods * 60
    assert not broker.clock.getDelayedCalls()


def test_each_gets_as_much_as_the_others() -> None:
    broker = Broker()
    for number in range(3):
        broker.flood(number, 60)
    counts = []
    while broker.rotation.waiting == 3:
        broker.turn()
        counts.append([broker.handled.count(number) for number in range(3)])
    requests_per_slice = round(SLICE_S / REQUEST_S)
    # The first one was alone when it came.
    assert all(max(each) - min(each) <= 3 * requests_per_slice for each in counts)
    assert len(counts) > 10


def test_who_comes_later_waits_for_one_slice_of_each() -> None:
    broker = Broker()
    for number in range(5):
        broker.flood(number, 60)
    broker.flood(9, 2)
    before = len(broker.handled)
    while 9 not in broker.handled:
        broker.turn()
    assert len(broker.handled) - before <= 5 * round(SLICE_S / REQUEST_S) + round(TURN_S / REQUEST_S)


def begin_long_answer(broker: Broker, answers: LongAnswers, rows: int) -> None:
    """An answer each of whose rows takes as long as a request."""

    async def make() -> None:
        with answers.begin(RequestContext(0, "", None), MetadataResponse) as answer:
            for _ in range(rows):
                await answer.turn(0)
                broker.spend("row")

    ensureDeferred(make())


def test_all_that_can_wait_takes_one_turn_together() -> None:
    """Requests that were sent ahead, long answers, long decoding, and what closed connections leave."""
    broker = Broker()
    answers = LongAnswers(broker.clock, rotation=broker.rotation)
    for number in range(3):
        broker.flood(number, 60)
        begin_long_answer(broker, answers, 60)
        broker.rotation.call(lambda: broker.spend("left"))
    looks = []
    while broker.rotation.waiting:
        looks.append(broker.look())
    assert max(looks) <= TURN_S + REQUEST_S, looks
    assert broker.spent.count("row") == 180 and broker.spent.count("left") == 3
    assert len(broker.handled) == 180


def test_an_answer_makes_no_row_once_its_slice_is_over() -> None:
    broker = Broker()
    answers = LongAnswers(broker.clock, rotation=broker.rotation)
    begin_long_answer(broker, answers, 60)
    broker.flood(0, 60)
    while "row" in broker.spent and len(broker.handled) < 60:
        broker.spent.clear()
        broker.look()
        assert broker.spent.count("row") <= TURN_S / REQUEST_S


def test_work_of_the_next_turn_waits_for_a_look_at_the_sockets() -> None:
    """A long answer takes one slice between two looks, even if nothing else waits."""
    broker = Broker()
    steps: list[int] = []

    def step() -> None:
        steps.append(len(steps))
        if len(steps) < 3:
            broker.rotation.call(step)

    broker.rotation.call(step)
    for count in (1, 2, 3):
        broker.look()
        assert len(steps) == count
    assert not broker.clock.getDelayedCalls()


def test_a_client_that_waits_for_each_answer_waits_for_no_turn() -> None:
    broker = Broker()
    broker.flood(0, 60)
    alone = broker.connect()
    alone.id = 9
    send(alone, 1)
    assert broker.handled[-1] == 9


@pytest.mark.parametrize(("key", "in_one_turn"), [(3, 1), (0, 4)])
def test_long_requests_that_arrive_together_have_turns_of_their_own(key: int, in_one_turn: int) -> None:
    """Each connection has one. Records are not decoded, so requests that bring them are no long ones."""
    broker = Broker()
    connections = [broker.connect() for _ in range(4)]
    frame = bytearray(LONG_BYTES)
    frame[:2] = key.to_bytes(2, "big")
    broker.request_s = 20 * TURN_S
    for connection in connections:
        connection.frames_received([memoryview(frame)])
    assert len(broker.handled) == in_one_turn
    if broker.rotation.waiting:
        broker.turn()
    while broker.rotation.waiting:
        assert broker.turn() == pytest.approx(broker.request_s)
    assert len(broker.handled) == 4


def test_a_long_request_ends_the_time_before_the_next_look_at_the_sockets() -> None:
    broker = Broker()
    broker.request_s = 20 * TURN_S
    send(broker.connect(), 2)
    assert len(broker.handled) == 1
    assert broker.turn() == 0.0, "two long requests are handled without a look at the sockets between them"
    assert broker.turn() == pytest.approx(broker.request_s)


def test_work_in_slices_takes_turns_and_holds_its_connection() -> None:
    broker = Broker()
    connection = broker.connect()
    left = [3]

    class Work:
        def take_slice(self, ends_s: float) -> bool:
            assert ends_s > broker.clock.seconds()
            broker.clock.rightNow = ends_s  # type: ignore[attr-defined]
            left[0] -= 1
            return left[0] > 0

    connection.take_turns(Work())
    send(connection, 1)
    assert not broker.handled
    while broker.rotation.waiting:
        broker.turn()
    assert left == [0] and len(broker.handled) == 1


def test_work_in_slices_that_fails_closes_its_connection_and_no_other() -> None:
    broker = Broker()
    connection = broker.connect()

    class Work:
        def take_slice(self, ends_s: float) -> bool:
            raise RuntimeError("no")

    connection.take_turns(Work())
    other = broker.flood(1, 60)
    while broker.rotation.waiting:
        broker.turn()
    assert connection.is_closed and not other.is_closed and len(broker.handled) == 60


def test_requests_that_take_no_time_end_their_slice_by_their_number() -> None:
    broker = Broker()
    handled: list[int] = []
    connection = ServerConnection(
        1,
        "L",
        PEER,
        lambda connection, frame, reply: (handled.append(1), reply.send([b"answer"]))[1],
        LIMITS,
        broker.clock,
        rotation=broker.rotation,
    )
    connection.connected(FakeWire())
    send(connection, 2 * REQUESTS_PER_TURN)
    assert len(handled) == REQUESTS_PER_TURN


def test_a_connection_that_closes_while_it_waits_leaves_the_others_their_turns() -> None:
    broker = Broker()
    closing = broker.flood(0, 60)
    broker.flood(1, 60)
    closing.close("closed by the test")
    while broker.rotation.waiting:
        broker.turn()
    assert broker.handled.count(1) == 60


def test_a_connection_that_is_muted_while_it_waits_goes_on_afterwards() -> None:
    broker = Broker()
    muted = broker.flood(0, 60)
    muted.mute(100)
    while broker.rotation.waiting:
        broker.clock.advance(0)
    assert len(broker.handled) < 60
    broker.clock.advance(0.1)
    assert len(broker.handled) == 60


def test_an_unexpected_error_of_one_connection_leaves_the_others_their_turns() -> None:
    class Broken:
        def take_slice(self, ends_s: float) -> bool:
            raise ValueError("broken by the test")

    broker = Broker()
    broker.rotation.enqueue(Broken())
    broker.flood(1, 60)
    with pytest.raises(ValueError, match="by the test"):
        broker.turn()
    while broker.rotation.waiting:
        broker.turn()
    assert broker.handled.count(1) == 60


def test_steps_share_the_turns_and_return_what_they_have_made() -> None:
    broker = Broker()
    taken: list[int] = []

    def steps(count: int) -> Generator[None, None, int]:
        for number in range(count):
            taken.append(number)
            broker.clock.advance(REQUEST_S)
            yield
        return count

    made: list[int] = []
    count = int(3 * TURN_S / REQUEST_S)
    broker.rotation.take_steps(steps(count)).addCallback(made.append)
    looks = 0
    while not made:
        before = len(taken)
        assert broker.turn() <= TURN_S + REQUEST_S
        looks += 1
        assert len(taken) - before <= TURN_S / REQUEST_S + 1
    assert made == [count] and taken == list(range(count)) and looks >= 3


def test_steps_that_fail_say_why_and_take_no_more() -> None:
    broker = Broker()

    def steps() -> Generator[None, None, None]:
        yield
        raise OSError("the disk is gone")

    failed: list[str] = []
    taken = broker.rotation.take_steps(steps())
    taken.addErrback(lambda failure: failed.append(failure.getErrorMessage()))
    broker.turn()
    assert failed == ["the disk is gone"] and not broker.rotation.waiting
