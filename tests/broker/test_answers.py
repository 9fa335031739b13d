"""Long answers: a thing named twice is answered once, rows are made in turns, and their bytes are bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from holdfast_log.broker.cluster.auto_creation import AutoCreation
from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.handlers.metadata import CREATED_MAX, AutoCreationSettings, MetadataHandler
from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.requests.answers import ACTIVE_MAX, TURN_BYTES, AnswerLimits, LongAnswers
from holdfast_log.broker.requests.dispatch import Dispatcher
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from holdfast_log.protocol.schema import decode, encode
from tests.models.orders import broker_metadata, partition_metadata, update_metadata
from tests.models.quotas import no_mutation_quotas
from tests.models.wires import FakeWire

PARTITIONS = 3000
VERSION = 12


def naming(*names: str, creates: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)


class Wire:
    """Takes what is sent, and sends nothing on."""

    def __init__(self) -> None:
        self.is_aborted = False

    def send(self, parts: Any) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


class Broker:
    """A broker's Metadata requests, with one topic of many partitions."""

    def __init__(self, limits: AnswerLimits | None = None, partitions: int = PARTITIONS) -> None:
        self.clock = Clock()
        self.creations: list[Deferred[dict[str, ErrorCode]]] = []
        self.answers = LongAnswers(self.clock, limits)
        cache = MetadataCache()
        states = [partition_metadata(index, leader=1, leader_epoch=4) for index in range(partitions)]
        cache.update(update_metadata(states=states, live=[broker_metadata(1)]))
        self.handler = MetadataHandler(
            cache,
            BrokerIdentity(1, "cluster", "PLAINTEXT"),
            cast(AutoCreation, SimpleNamespace(create=self._create)),
            AutoCreationSettings(True),
            FirstUpdate(cache, self.clock),
            no_mutation_quotas(),
            self.answers,
        )
        self._connections = 0

    def _create(self, names: list[str], on_behalf_of: str | None) -> Deferred[dict[str, ErrorCode]]:
        self.creations.append(Deferred())
        return self.creations[-1]

    def connect(self) -> ServerConnection:
        self._connections += 1
        connection = ServerConnection(
            self._connections,
            "PLAINTEXT",
            Address("127.0.0.1", 4000 + self._connections),
            lambda *_: None,
            ConnectionLimits(1 << 20, 1 << 20, 1000),
            self.clock,
        )
        connection.connected(Wire())
        return connection

    def connect_with_requests(
        self, request: MetadataRequest, count: int
    ) -> tuple[ServerConnection, FakeWire]:
        """A connection whose client has sent the request so often, without waiting for an answer."""
        connection, wire = self.connect(), FakeWire()
        dispatcher = Dispatcher(RepeatedLog(self.clock))
        dispatcher.add([self.handler])
        connection._handler = dispatcher.dispatch
        connection.connected(wire)
        frame = join_parts(encode_request(request, VERSION, 1, "flood"))[SIZE.size :]
        connection.frames_received([memoryview(bytearray(frame)) for _ in range(count)])
        return connection, wire

    def ask(self, names: list[str], connection: ServerConnection | None = None) -> list[MetadataResponse]:
        """The answer, once it is there."""
        context = RequestContext(VERSION, "", connection)
        request = naming(*names)
        answered: list[MetadataResponse] = []
        done = self.handler.handle(context, request)
        assert isinstance(done, Deferred)
        done.addCallbacks(answered.append, lambda failure: None)
        return answered

    def turns(self) -> int:
        """Take turns of the reactor until nothing is left to make. Returns their number."""
        count = 0
        while self.answers.waiting:
            self.turn()
            count += 1
        return count

    def turn(self) -> None:
        # `advance(0)` would take all turns at once.
        (call,) = self.clock.calls
        self.clock.calls.remove(call)
        call.called = 1
        call.func()


def test_a_topic_that_is_named_many_times_is_answered_once() -> None:
    broker = Broker(partitions=2)
    answered = broker.ask(["t", "unknown"] * 3000)
    broker.turns()
    answer = answered[0]
    assert [topic.name for topic in answer.topics] == ["t", "unknown"]


def test_a_short_answer_is_made_at_once() -> None:
    broker = Broker(partitions=10)
    assert broker.ask(["t"], broker.connect())[0].topics[0].name == "t"


def test_a_long_answer_is_made_in_turns_and_reads_as_if_made_at_once() -> None:
    broker = Broker()
    connection = broker.connect()
    answered = broker.ask(["t", "unknown"], connection)
    assert not answered
    assert broker.turns() >= PARTITIONS * 40 // TURN_BYTES
    (answer,) = answered
    found = decode(MetadataResponse, VERSION, encode(answer, VERSION))
    local = Broker()
    whole = local.ask(["t", "unknown"])
    local.turns()
    assert found == decode(MetadataResponse, VERSION, encode(whole[0], VERSION))
    assert [len(topic.partitions) for topic in found.topics] == [PARTITIONS, 0]


@pytest.mark.parametrize("version", range(VERSION + 1))
def test_rows_are_encoded_in_every_version_as_the_whole_response_is(version: int) -> None:
    plain = MetadataResponse(brokers=[], topics=[_topic(name) for name in "ab"])
    broker = Broker()
    with broker.answers.begin(RequestContext(version, "", broker.connect()), MetadataResponse) as answer:
        rows = answer.rows(MetadataResponseTopic)
        for name in "ab":
            rows.add(_topic(name))
            answer._seal()
        made = MetadataResponse(brokers=[], topics=rows.finish())
    assert encode(made, version) == encode(plain, version)


def _topic(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=0, name=name, partitions=[])


def test_many_answers_take_turns_one_at_a_time() -> None:
    broker = Broker()
    asked = [broker.ask(["t"], broker.connect()) for _ in range(2 * ACTIVE_MAX)]
    alone = Broker()
    alone.ask(["t"], alone.connect())
    turns = alone.turns()
    assert broker.turns() >= turns * len(asked) - ACTIVE_MAX
    assert all(asked)


def test_few_answers_are_being_made_at_a_time() -> None:
    broker = Broker()
    for _ in range(3 * ACTIVE_MAX):
        broker.ask(["t"], broker.connect())
    while broker.answers.waiting:
        broker.turn()
        assert len(broker.answers._active) <= ACTIVE_MAX


def test_short_answers_share_a_turn() -> None:
    """Pipelined requests: each answer is short, and together they would hold up every other client."""
    broker = Broker(partitions=300)
    connection = broker.connect()
    asked = [broker.ask(["t"], connection) for _ in range(64)]
    assert not all(asked)
    broker.turns()
    assert all(asked)


def test_what_is_beyond_the_limit_of_an_answer_is_refused() -> None:
    broker = Broker(AnswerLimits(answer_bytes_max=50_000))
    answered = broker.ask(["unknown", "t"], broker.connect())
    broker.turns()
    assert [topic.error_code for topic in answered[0].topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.POLICY_VIOLATION,
    ]


def test_an_answer_ends_when_its_client_has_gone() -> None:
    broker = Broker()
    connection = broker.connect()
    answered = broker.ask(["t"], connection)
    connection.close("closed by the test")
    broker.turns()
    assert not answered
    assert broker.answers.queued_bytes == 0


def test_clients_that_do_not_read_are_closed_when_all_answers_are_over_their_limit() -> None:
    broker = Broker(AnswerLimits(queued_bytes_max=500_000))
    deaf = [broker.connect() for _ in range(20)]
    for connection in deaf:
        answered = broker.ask(["t"], connection)
        broker.turns()
        # As the dispatcher does: the bytes of the answer wait for the client.
        connection._buffered_bytes += len(encode(answered[0], VERSION))
        assert broker.answers.queued_bytes <= 700_000
    assert any(each.is_closed for each in deaf)
    # One that reads stays.
    assert not deaf[-1].is_closed


def test_a_broker_asks_itself_for_rows_that_it_can_read() -> None:
    broker = Broker()
    answered = broker.ask(["t"])
    broker.turns()
    assert answered[0].topics[0].partitions[-1].partition_index == PARTITIONS - 1


def test_requests_that_are_sent_ahead_wait_for_a_long_answer_before_they_are_begun() -> None:
    broker = Broker()
    connection, wire = broker.connect_with_requests(MetadataRequest(topics=None), 5)
    turns = 0
    while broker.clock.calls:
        assert broker.answers.waiting <= 1
        assert connection.in_flight_requests <= 1
        call = broker.clock.calls.pop(0)
        call.called = 1
        call.func(*call.args, **call.kw)
        turns += 1
    assert turns > 5 * 3
    assert len(list(wire.frames())) == 5
    assert not connection.is_paused


def test_requests_that_are_sent_ahead_wait_for_topics_that_a_long_one_creates() -> None:
    """What was decoded of each would be kept until the controller has answered."""
    broker = Broker()
    request = naming(*map(str, range(CREATED_MAX + 1)), creates=True)
    connection, wire = broker.connect_with_requests(request, 5)
    for number in range(1, 6):
        broker.clock.pump([0] * 20)
        assert len(broker.creations) == number
        assert connection.in_flight_requests == 1
        broker.creations[-1].callback({})
    broker.clock.pump([0] * 20)
    assert len(list(wire.frames())) == 5
    assert not connection.is_paused


def test_short_requests_that_create_topics_wait_for_nobody() -> None:
    broker = Broker()
    request = naming(*map(str, range(CREATED_MAX)), creates=True)
    connection, wire = broker.connect_with_requests(request, 5)
    broker.clock.pump([0] * 20)
    assert len(broker.creations) == 5
    for creation in broker.creations:
        creation.callback({})
    broker.clock.pump([0] * 20)
    assert len(list(wire.frames())) == 5
    assert not connection.is_paused


def test_an_answer_that_is_made_at_once_holds_nothing() -> None:
    broker = Broker(partitions=10)
    connection = broker.connect()
    broker.ask(["t"], connection)
    assert not connection.is_paused


def test_turns_end_when_nothing_waits() -> None:
    broker = Broker()
    broker.ask(["t"], broker.connect())
    broker.turns()
    broker.clock.advance(0)
    assert not broker.clock.getDelayedCalls()


def test_a_pause_is_awaited_by_coroutines() -> None:
    broker = Broker()

    async def make() -> int:
        with broker.answers.begin(RequestContext(VERSION, "", None), MetadataResponse) as answer:
            for _ in range(5):
                await answer.turn(TURN_BYTES)
        return 5

    made: list[int] = []
    ensureDeferred(make()).addCallback(made.append)
    assert not made
    assert broker.turns() == 4
    assert made == [5]
