"""The controller's requests reach a broker in order, also after failed attempts."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.coordinator.controller.channel import IN_FLIGHT_MAX, RETRY_DELAY_S, ControllerChannel
from holdfast_log.coordinator.controller.effects import BrokerRequest
from holdfast_log.coordinator.controller.events import BrokerResponse
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def news(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=1, controller_epoch=number, topic_states=[], live_brokers=[])


class Line:
    """A channel to a broker played by the test. Requests are identified by numbers."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[tuple[int, Deferred[BrokerResponse]]] = []
        self.answered: list[int] = []
        self.done: dict[int, bool] = {}
        self.under_way: list[Deferred[BrokerResponse]] = []
        self.is_full = False
        self.channel = ControllerChannel(7, 70, self._send, self.clock, self._answered)

    def _send(self, broker_id: int, request: BrokerRequest) -> Deferred[BrokerResponse]:
        answer: Deferred[BrokerResponse] = Deferred()
        self.sent.append((request.controller_epoch, answer))
        if self.is_full:
            answer.errback(ConnectionError("there is no room"))
        return answer

    def _answered(self, broker_id: int, epoch: int, request: BrokerRequest, response: BrokerResponse) -> None:
        self.answered.append(request.controller_epoch)

    def order(self, *numbers: int) -> None:
        for number in numbers:
            self.channel.send(news(number)).addCallback(self._ended, number)

    def _ended(self, is_answered: bool, number: int) -> None:
        self.done[number] = is_answered

    def take_sent(self) -> list[int]:
        """The requests sent since the last call."""
        numbers = [number for number, _ in self.sent]
        self.under_way = [answer for _, answer in self.sent]
        self.sent = []
        return numbers

    def answer(self, answer: Deferred[BrokerResponse]) -> None:
        answer.callback(UpdateMetadataResponse(error_code=0))

    def fail(self, answer: Deferred[BrokerResponse]) -> None:
        answer.errback(ConnectionError("the line is dead"))


def test_a_request_is_sent_before_the_previous_one_is_answered() -> None:
    line = Line()
    line.order(*range(IN_FLIGHT_MAX + 1))
    assert line.take_sent() == list(range(IN_FLIGHT_MAX)), "the maximum number in flight"

    line.answer(line.under_way[0])

    assert line.take_sent() == [IN_FLIGHT_MAX]
    assert (line.answered, line.done) == ([0], {0: True})


def test_after_a_failure_all_unanswered_requests_are_sent_again_in_order() -> None:
    line = Line()
    line.order(1, 2, 3)
    assert line.take_sent() == [1, 2]
    first, second = line.under_way

    line.fail(first)
    line.order(4)
    line.clock.advance(RETRY_DELAY_S)
    assert line.take_sent() == [], "the second is still in flight"
    line.fail(second)
    assert line.take_sent() == []
    line.clock.advance(RETRY_DELAY_S)

    assert line.take_sent() == [1, 2]
    for answer in line.under_way:
        line.answer(answer)
    assert line.take_sent() == [3, 4]
    assert line.answered == [1, 2]


def test_a_request_answered_after_an_earlier_failure_is_not_sent_again() -> None:
    line = Line()
    line.order(1, 2)
    line.take_sent()
    first, second = line.under_way

    line.fail(first)
    line.answer(second)
    line.clock.advance(RETRY_DELAY_S)

    assert line.take_sent() == [1]
    assert line.done == {2: True}


def test_no_request_overtakes_one_that_fails_at_once() -> None:
    line = Line()
    line.is_full = True
    line.order(1, 2)
    assert line.take_sent() == [1]

    line.is_full = False
    line.clock.advance(RETRY_DELAY_S)

    assert line.take_sent() == [1, 2]


def test_a_closed_channel_answers_all_waiting_requests_with_false_and_sends_no_more() -> None:
    line = Line()
    line.order(1, 2, 3)
    line.take_sent()

    line.channel.close()
    line.answer(line.under_way[0])
    line.fail(line.under_way[1])
    line.clock.advance(RETRY_DELAY_S)

    assert line.done == {1: False, 2: False, 3: False}
    assert (line.take_sent(), line.answered) == ([], [])
