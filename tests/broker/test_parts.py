"""Requests of many rows: handled a few at a time, answered as if at once, not overtaken by later ones."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, get_type_hints

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.rotation import TURN_S
from holdfast_log.broker.requests.answers import ROW_BYTES, TURN_BYTES, AnswerLimits, LongAnswers
from holdfast_log.broker.requests.dispatch import AnyHandler, Dispatcher
from holdfast_log.broker.requests.handler import (
    ANY_ELEMENTS,
    PLAIN_ELEMENTS_MAX,
    Handler,
    RequestContext,
    RowPaths,
)
from holdfast_log.broker.requests.parts import PART_PRICE, PART_ROWS, PartedRequests
from holdfast_log.broker.wiring.handlers import HandlerType, handler_types
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.fields import Array, Struct, fields_of
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.models.wires import FakeWire

ROWS = 20 * PART_ROWS + 7
PARTS = TURN_BYTES // (PART_PRICE + ROW_BYTES)
"""Of a request, in one turn: so many, and no more once the time of a slice is over."""
WITH_OWN_LIMITS = {"Fetch", "Renew", "Release", "Resume"}
"""They bound the work of a request by its bytes, by limits of their own, or by what a connection may hold."""


class Looking(Handler[ListOffsetsRequest, ListOffsetsResponse]):
    """Answers each partition with its own number as its offset; a topic "bad" fails."""

    request = ListOffsetsRequest
    parts = (RowPaths(("topics", "partitions"), ("topics", "partitions")),)
    elements_max = ANY_ELEMENTS

    def __init__(self, ready: Callable[[], Deferred[None]] = lambda: succeed(None)) -> None:
        self.handled: list[list[int]] = []
        self._ready = ready

    def handle(self, context: RequestContext, request: ListOffsetsRequest) -> Deferred[ListOffsetsResponse]:
        if any(topic.name == "bad" for topic in request.topics):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        rows = [wanted.partition_index for topic in request.topics for wanted in topic.partitions]
        self.handled.append(rows)
        return self._ready().addCallback(lambda _: _answer(request, 0))

    def failed(
        self, context: RequestContext, request: ListOffsetsRequest, error: BrokerError
    ) -> ListOffsetsResponse:
        return _answer(request, error.code)


class Overlapping(Looking):
    parts_overlap = True


class Undivided(Looking):
    """Handles a request whose first topic is "whole" as a whole, and refuses one with "refused"."""

    steps = 0

    def divisible_steps(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> Generator[None, None, bool]:
        for _ in range(self.steps):
            yield
        if request.topics[0].name == "refused":
            raise BrokerError(ErrorCode.POLICY_VIOLATION)
        return request.topics[0].name != "whole"


def _answer(request: ListOffsetsRequest, code: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        error_code=code,
                        offset=-1 if code else wanted.partition_index,
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


TURNS_MAX = 10_000


class World:
    """One connection to a dispatcher with one handler."""

    def __init__(self, handler: Looking, limits: AnswerLimits | None = None) -> None:
        self.clock = Clock()
        self.answers = LongAnswers(self.clock, limits)
        dispatcher = Dispatcher(RepeatedLog(self.clock), parted=PartedRequests(self.answers))
        dispatcher.add([handler])
        self.wire = FakeWire()
        self.connection = ServerConnection(
            1,
            "PLAINTEXT",
            self.wire.peer,
            dispatcher.dispatch,
            ConnectionLimits(1 << 24, 1 << 24, 100),
            self.clock,
        )
        self.connection.connected(self.wire)

    def send(self, request: Request[Any]) -> None:
        frame = join_parts(encode_request(request, request.api.max_version, 1, "test"))[4:]
        self.connection.frames_received([memoryview(bytearray(frame))])

    def turns(self) -> int:
        """Take turns of the reactor until none is due. Returns their number."""
        count = 0
        while self.turn():
            count += 1
            assert count < TURNS_MAX, "the reactor has something to do without an end"
        return count

    def turn(self) -> bool:
        """Take one turn, if any is due."""
        due = [call for call in self.clock.calls if call.getTime() <= self.clock.seconds()]
        for call in due[:1]:
            self.clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
        return bool(due)

    def answered(self) -> list[ListOffsetsResponse]:
        version = ListOffsetsRequest.api.max_version
        return [decode_response(ListOffsetsRequest, version, frame) for frame in self.wire.frames()]


def asking(*topics: tuple[str, int]) -> ListOffsetsRequest:
    rows = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)],
        )
        for name, count in topics
    ]
    return ListOffsetsRequest(replica_id=-1, topics=rows)


def test_a_long_request_is_handled_in_parts_and_answered_as_if_at_once() -> None:
    handler = Looking()
    world = World(handler)
    request = asking(("a", 3), ("b", ROWS), ("none", 0), ("c", 2))
    world.send(request)
    assert len(handler.handled) == PARTS, "a turn's work is handled in that in which the request arrives"
    world.turns()
    assert max(map(len, handler.handled)) == PART_ROWS
    assert sum(map(len, handler.handled)) == ROWS + 5
    assert world.answered() == [_answer(request, 0)]


def test_few_parts_share_a_turn() -> None:
    handler = Looking()
    world = World(handler)
    world.send(asking(("b", ROWS)))
    assert world.turns() >= ROWS // PART_ROWS // PARTS
    assert PARTS * PART_ROWS <= 50


def test_a_part_that_took_long_ends_the_turn() -> None:
    def take_long() -> Deferred[None]:
        world.clock.advance(TURN_S)
        return succeed(None)

    handler = Looking(take_long)
    world = World(handler)
    world.send(asking(("b", ROWS)))
    counts = []
    while not world.answered():
        before = len(handler.handled)
        world.turn()
        counts.append(len(handler.handled) - before)
    assert max(counts) == 1, counts


def test_a_short_request_is_handled_at_once() -> None:
    handler = Looking()
    world = World(handler)
    request = asking(("b", PART_ROWS))
    world.send(request)
    assert len(handler.handled) == 1
    assert world.answered() == [_answer(request, 0)]


@pytest.mark.parametrize(
    ("topics", "parts"),
    [
        ([("b", PART_ROWS + 1)], 2),
        ([("b", 0)] * PART_ROWS, 1),
        ([("b", 0)] * (PART_ROWS + 1), 2),
        ([("a", PART_ROWS - 1), ("b", 0)], 1),
        ([("a", PART_ROWS - 1), ("b", 0), ("c", 1)], 2),
    ],
)
def test_topics_without_partitions_count_as_one(topics: list[tuple[str, int]], parts: int) -> None:
    handler = Looking()
    world = World(handler)
    world.send(asking(*((name * 20, count) for name, count in topics)))
    world.turns()
    assert len(handler.handled) == parts


def test_a_later_request_does_not_overtake_one_that_is_handled_in_parts() -> None:
    handler = Looking()
    world = World(handler)
    world.send(asking(("b", ROWS)))
    world.send(asking(("later", 1)))
    assert world.connection.is_paused
    world.turns()
    assert len(handler.handled[-1]) == 1 and all(len(each) > 1 for each in handler.handled[:-1])
    assert [len(answer.topics[0].partitions) for answer in world.answered()] == [ROWS, 1]
    assert not world.connection.is_paused


def test_a_part_that_is_refused_has_its_error_and_the_others_are_answered() -> None:
    world = World(Looking())
    world.send(asking(("a", PART_ROWS), ("bad", 1)))
    world.turns()
    (answer,) = world.answered()
    assert {row.error_code for row in answer.topics[0].partitions} == {0}
    assert answer.topics[1].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_an_answer_that_becomes_too_long_is_refused_for_every_row() -> None:
    world = World(Looking(), AnswerLimits(answer_bytes_max=PART_ROWS * 20))
    request = asking(("b", ROWS))
    world.send(request)
    world.turns()
    assert world.answered() == [_answer(request, ErrorCode.POLICY_VIOLATION)]


def test_a_part_that_waits_costs_no_turns() -> None:
    waiting: list[Deferred[None]] = []

    def ready() -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    world = World(Looking(ready))
    parts = 2 * PARTS + 1  # The last ones follow a pause: the answer has asked for a turn before it waits.
    world.send(asking(("b", parts * PART_ROWS)))
    for _ in range(parts):
        assert world.turns() <= 2 and len(waiting) == 1, "no part is begun before the last one is done"
        waiting.pop().callback(None)
    world.turns()
    assert len(world.answered()) == 1


def test_parts_that_overlap_wait_together() -> None:
    waiting: list[Deferred[None]] = []

    def ready() -> Deferred[None]:
        waiting.append(Deferred())
        return waiting[-1]

    handler = Overlapping(ready)
    world = World(handler)
    request = asking(("b", ROWS))
    world.send(request)
    world.turns()
    assert sum(map(len, handler.handled)) == ROWS, "a part has waited for the answer to another"
    for each in reversed(waiting):
        assert not world.answered()
        each.callback(None)
        world.turns()
    assert world.answered() == [_answer(request, 0)]


def test_a_request_that_is_indivisible_is_handled_as_a_whole() -> None:
    handler = Undivided()
    world = World(handler)
    request = asking(("whole", ROWS))
    world.send(request)
    assert world.turns() >= ROWS // PART_ROWS // PARTS, "it is answered in turns"
    assert handler.handled == [list(range(ROWS))] and world.answered() == [_answer(request, 0)]


@pytest.mark.parametrize("topic", ["whole", "refused", "divided"])
def test_whether_a_request_may_be_divided_is_judged_in_turns(topic: str) -> None:
    handler = Undivided()
    handler.steps = 10 * PARTS
    world = World(handler)
    request = asking((topic, ROWS))
    world.send(request)
    for _ in range(handler.steps // PARTS - 1):
        assert not handler.handled and not world.answered()
        world.turn()
    world.turns()
    code = ErrorCode.POLICY_VIOLATION if topic == "refused" else ErrorCode.NONE
    assert world.answered() == [_answer(request, code)]


def test_a_client_that_goes_while_its_request_is_judged_ends_the_work() -> None:
    handler = Undivided()
    handler.steps = 10 * PARTS
    world = World(handler)
    world.send(asking(("whole", ROWS)))
    world.connection.close("gone")
    world.turns()
    assert not handler.handled and world.answers.waiting == 0


def test_a_request_that_must_not_be_divided_is_refused_in_turns() -> None:
    handler = Undivided()
    world = World(handler)
    request = asking(("refused", ROWS))
    world.send(request)
    assert world.turns() >= ROWS // PART_ROWS // PARTS
    assert not handler.handled
    assert world.answered() == [_answer(request, ErrorCode.POLICY_VIOLATION)]


def test_a_client_that_goes_ends_the_work() -> None:
    handler = Looking()
    world = World(handler)
    world.send(asking(("b", ROWS)))
    world.connection.close("gone")
    world.turns()
    assert len(handler.handled) < ROWS // PART_ROWS
    assert world.answers.waiting == 0


# -- all handlers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", handler_types(), ids=lambda each: each.__name__)
def test_a_handler_that_takes_long_requests_handles_them_in_turns(handler: HandlerType) -> None:
    if handler.elements_max <= PLAIN_ELEMENTS_MAX or handler.request.api.name in WITH_OWN_LIMITS:
        return
    makes_long_answers = LongAnswers in get_type_hints(handler).values()
    assert handler.parts or makes_long_answers, f"{handler.__name__} does all of a request in one turn"


def _parted() -> Iterator[tuple[AnyHandler, RowPaths]]:
    return ((handler, parts) for handler in handler_types() for parts in handler.parts)  # type: ignore[misc]


@pytest.mark.parametrize(("handler", "parts"), list(_parted()))
def test_parts_name_arrays_of_the_messages(handler: HandlerType, parts: RowPaths) -> None:
    api = handler.request.api
    assert len(parts.asked) == len(parts.answered)
    _check_path(api.request, parts.asked)
    _check_path(api.response, parts.answered)


def _check_path(message: type, path: tuple[str, ...]) -> None:
    within: type | None = message
    for name in path:
        assert within is not None, f"nothing is in the rows before {name}"
        (field,) = [each for each in fields_of(within) if each.name == name]
        assert isinstance(field.type, Array), f"{name} is no array"
        within = field.type.element.cls if isinstance(field.type.element, Struct) else None
