"""Arguments of every kind, at every public method: what is refused harms nothing, what is taken works.

The calls are drawn from everything that an application might write by mistake. After them the object does
what it is for: a producer delivers, a consumer reads, a lease is held, an admin client answers.
"""

from __future__ import annotations

import inspect
import random
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.admin.configs import ConfigChange, ConfigResource
from holdfast_log.clients.admin.quotas import ClientQuotaEntity
from holdfast_log.clients.consumer import BaseConsumer, Consumer
from holdfast_log.clients.dead_letter import DeadLetterTopic
from holdfast_log.clients.errors import ClientError, ClosedError
from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.offsets import OffsetAndTimestamp
from holdfast_log.clients.message import ConsumerRecord, Message, OffsetAndMetadata
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.producer_face import ProducerFace
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.elect_leaders import ElectionType
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.sending.settling import settle
from tests.models.batches import encoded

FLIGHTS = TopicPartition("flights", 0)
REFUSALS = (TypeError, ValueError, LookupError, ClientError, BrokerError)
PUBLIC = (
    Producer,
    Consumer,
    Admin,
    ExclusiveProducer,
    ExclusiveConsumer,
    Lease,
    SendResponse,
    OwnerFence,
    DeadLetterTopic,
)
CHECKED_INSIDE = {("send", "messages"), ("__call__", "error"), ("__init__", "more")}
"""The methods that check for themselves: `send`, which must cost little; what only our consumer calls; and
what is passed on to a checked call."""


def public_methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        is_own = name in ("__init__", "__call__") or not name.startswith("_")
        if is_own and inspect.isfunction(method) and not (cls is OwnerFence and name == "__init__"):
            yield name, method


@pytest.mark.parametrize("cls", PUBLIC)
def test_every_argument_of_every_public_method_is_checked(cls: type) -> None:
    unchecked = [
        f"{cls.__name__}.{name}({argument})"
        for name, method in public_methods(cls)
        for argument in list(inspect.signature(method).parameters)[1:]
        if argument not in getattr(method, "kinds", {}) and (name, argument) not in CHECKED_INSIDE
    ]
    if cls is SendResponse:
        unchecked = [each for each in unchecked if "__init__" not in each]

    assert not unchecked


# What applications write ------------------------------------------------------------------------------

FEW = st.integers(-3, 5)
HUGE = st.integers(2**31, 2**70) | st.integers(-(2**70), -4)
TEXTS = st.sampled_from(["flights", "carriers", "", "0", "flights-0", "\ud800", "a b", "x" * 300])
SCALARS = (
    st.none()
    | st.booleans()
    | FEW
    | HUGE
    | st.floats()
    | TEXTS
    | st.binary(max_size=17)
    | st.sampled_from(
        [
            object(),
            int,
            len,
            1j,
            Decimal(5),
            bytearray(b"k"),
            memoryview(b"v"),
            uuid.UUID(int=7),
            range(3),
            ...,
        ]
    )
)
RECORD = ConsumerRecord("flights", 0, 5, 1, None, b"v")
FIELDS = st.fixed_dictionaries(
    {"topic": SCALARS | st.just("flights")},
    optional={
        "key": SCALARS,
        "value": SCALARS,
        "partition": SCALARS,
        "timestamp": SCALARS,
        "headers": SCALARS | st.lists(st.tuples(SCALARS, SCALARS), max_size=2),
        "offset": SCALARS,
        "expected_version": SCALARS,
    },
)
MESSAGES = FIELDS.map(lambda fields: Message(**fields))
PARTITIONS = st.builds(TopicPartition, SCALARS, SCALARS) | st.just(FLIGHTS)
OBJECTS = (
    MESSAGES
    | PARTITIONS
    | st.builds(OffsetAndMetadata, SCALARS, SCALARS, SCALARS)
    | st.builds(OffsetAndTimestamp, SCALARS, SCALARS)
    | st.builds(NewTopic, SCALARS, SCALARS, SCALARS, st.dictionaries(TEXTS, SCALARS, max_size=1))
    | st.builds(ConfigResource, st.sampled_from([*ResourceType, 2, None]), SCALARS)
    | st.builds(ConfigChange, SCALARS, SCALARS, SCALARS)
    | st.builds(ClientQuotaEntity, SCALARS | st.just((("user", "u"),)))
    | st.sampled_from([RECORD, *ElectionType, *Access, OwnerFence({FLIGHTS: 1}, b"s"), random.Random(1)])
)
VALUES = SCALARS | OBJECTS
HASHABLE = st.sampled_from(
    [FLIGHTS, TopicPartition("flights", 1), ("flights", 0), "flights", 0, None, RECORD]
)
ANYTHING = (
    VALUES
    | st.lists(VALUES, max_size=2)
    | st.lists(VALUES, max_size=2).map(iter)
    | st.dictionaries(HASHABLE, VALUES | st.lists(VALUES, max_size=2), max_size=2)
    | st.tuples(VALUES, VALUES)
)


def good(name: str) -> st.SearchStrategy[Any]:
    """Values that an argument of this name may well have."""
    if name in ("partition", "partitions"):
        return st.sampled_from([0, FLIGHTS, [FLIGHTS], None])
    if name.endswith("_ms"):
        return st.sampled_from([0, 5])
    if name in ("topic", "names", "topics"):
        return st.sampled_from(["flights", ["flights"]])
    return st.sampled_from([{FLIGHTS: 5}, 5, "flights", ["flights"], print, True])


@st.composite
def calls(draw: st.DrawFn, cls: type) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """A few calls of public methods, with arguments by position and by name."""
    methods = {name: method for name, method in public_methods(cls) if name not in NOT_DRAWN}
    drawn = []
    for name in draw(st.lists(st.sampled_from(sorted(methods)), min_size=1, max_size=5)):
        by_position: list[Any] = []
        by_name: dict[str, Any] = {}
        parameters = list(inspect.signature(methods[name]).parameters.values())[1:]
        for index, parameter in enumerate(parameters):
            value = draw(ANYTHING | good(parameter.name))
            if parameter.kind is parameter.KEYWORD_ONLY:
                if draw(st.booleans()):
                    by_name[parameter.name] = value
            elif parameter.default is parameter.empty or (index == len(by_position) and draw(st.booleans())):
                by_position.append(value)
        drawn.append((name, by_position, by_name))
    return drawn


NOT_DRAWN = {"__init__", "__iter__", "close", "turn", "wake"}
"""Constructors and what ends an object are tested on their own; `__iter__` does not end."""


def carry_out(target: Any, drawn: list[tuple[str, list[Any], dict[str, Any]]]) -> None:
    for name, by_position, by_name in drawn:
        try:
            result = getattr(target, name)(*by_position, **by_name)
            if isinstance(result, SendResponse):
                carry_out_on_response(result, by_position)
        except REFUSALS:
            pass


def carry_out_on_response(response: SendResponse, values: list[Any]) -> None:
    for value in values:
        for method in (response.result, response.on_completion):
            with pytest.raises(REFUSALS):
                method(value if not callable(value) and value is not None and type(value) is not int else -1)


# The objects, and what each is for --------------------------------------------------------------------


def a_cluster() -> FakeCluster:
    cluster = FakeCluster()
    for partition in cluster.add_topic("flights", 2):
        partition.append(memoryview(encoded([(1, b"k", b"v")])))
    return cluster


def properties_on(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, **more}


PATIENCE = {"max.block.ms": 500, "delivery.timeout.ms": 2_000, "request.timeout.ms": 1_000, "linger.ms": 0}
READING = {"auto.offset.reset": "earliest", "default.api.timeout.ms": 500}


def delivers(producer: Any) -> None:
    settle(producer)
    response = producer.send(Message("flights", key=b"k", value=b"v", partition=0))
    settle(producer)
    assert response.result(0).partition == 0


def reads(consumer: BaseConsumer) -> None:
    """The consumer reads flights-0 from its beginning: errors of what was asked before come once."""
    for _ in range(50):
        try:
            if FLIGHTS not in consumer.assignment():
                consumer.poll(1_000)
                continue
            consumer.resume(FLIGHTS)
            consumer.seek_to_beginning(FLIGHTS)
            for _ in range(20):
                if any(record.partition == 0 for record in consumer.poll(1_000)):
                    return
        except (ClientError, BrokerError) as error:
            assert not isinstance(error, ClosedError)
    raise AssertionError("no record came")


def reads_again(consumer: Consumer) -> None:
    consumer.remove_topic("flights")
    consumer.add_topic("flights", 0)
    reads(consumer)


def reads_in_group(consumer: Consumer) -> None:
    consumer.add_topic("flights")
    reads(consumer)


def make_producer(cluster: FakeCluster) -> Producer:
    given = properties_on(cluster, **PATIENCE)
    return Producer(given, network=cluster.network(), rng=random.Random(1), is_threaded=False)


def make_consumer(cluster: FakeCluster) -> Consumer:
    given = properties_on(cluster, **READING)
    consumer = Consumer(given, network=cluster.network(), rng=random.Random(1))
    consumer.add_topic("flights")
    return consumer


def make_member(cluster: FakeCluster) -> Consumer:
    given = properties_on(cluster, **READING, **{"group.id": "readers"})
    consumer = Consumer(given, network=cluster.network(), rng=random.Random(1))
    consumer.add_topic("flights")
    consumer.poll(1_000)
    return consumer


def make_exclusive_producer(cluster: FakeCluster) -> ExclusiveProducer:
    return ExclusiveProducer(
        properties_on(cluster, **PATIENCE),
        "flights",
        partitions=[0],
        network=cluster.network(),
        rng=random.Random(1),
        is_threaded=False,
    )


def make_exclusive_consumer(cluster: FakeCluster) -> ExclusiveConsumer:
    return ExclusiveConsumer(
        properties_on(cluster, **READING),
        "app",
        [FLIGHTS],
        network=cluster.network(),
        rng=random.Random(1),
    )


def make_lease(cluster: FakeCluster) -> Lease:
    lease = Lease(
        properties_on(cluster), "app", ["leader", FLIGHTS], network=cluster.network(), is_threaded=False
    )
    lease.claim(5_000)
    return lease


def make_admin(cluster: FakeCluster) -> Admin:
    cluster.brokers[1].features.clear()  # The broker in memory describes no owners.
    given = properties_on(cluster, **{"default.api.timeout.ms": 500})
    return Admin(given, network=cluster.network(), rng=random.Random(1))


def is_held(lease: Lease) -> None:
    lease.claim(5_000)
    assert lease.is_held and lease.token("leader") >= 0


def answers(admin: Admin) -> None:
    assert [topic.name for topic in admin.describe_topics(["flights"])] == ["flights"]


@pytest.mark.parametrize(
    ("make", "cls", "works"),
    [
        (make_producer, Producer, delivers),
        (make_exclusive_producer, ExclusiveProducer, delivers),
        (make_consumer, Consumer, reads_again),
        (make_member, Consumer, reads_in_group),
        (make_exclusive_consumer, ExclusiveConsumer, reads),
        (make_lease, Lease, is_held),
        (make_admin, Admin, answers),
    ],
    ids=["producer", "exclusive producer", "consumer", "member", "exclusive consumer", "lease", "admin"],
)
@settings(max_examples=40)
@given(data=st.data())
def test_whatever_is_given_to_its_methods_an_object_works_on(
    make: Callable[[FakeCluster], Any], cls: type, works: Callable[[Any], None], data: st.DataObject
) -> None:
    target = make(a_cluster())

    carry_out(target, data.draw(calls(cls)))

    works(target)


@pytest.mark.parametrize("timeout_ms", [-1, 1.5, "5", 2**31, [5], True])
@pytest.mark.parametrize(
    ("make", "works"),
    [
        (make_producer, delivers),
        (make_exclusive_producer, delivers),
        (make_consumer, reads),
        (make_lease, is_held),
    ],
)
def test_a_close_that_is_refused_closes_nothing(
    make: Callable[[FakeCluster], Any], works: Callable[[Any], None], timeout_ms: Any
) -> None:
    target = make(a_cluster())

    with pytest.raises((TypeError, ValueError), match=r"\.close\(\): timeout_ms must be a time in ms"):
        target.close(timeout_ms)

    works(target)


@pytest.mark.parametrize("cls", [Producer, Consumer, Admin, ExclusiveProducer, ExclusiveConsumer, Lease])
@settings(max_examples=30)
@given(data=st.data())
def test_a_constructor_refuses_what_it_cannot_use(cls: type, data: st.DataObject) -> None:
    cluster = a_cluster()
    parameters = [
        parameter
        for parameter in list(inspect.signature(cls).parameters.values())
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in ("network", "is_threaded")
    ]
    wrong = data.draw(st.sampled_from([parameter.name for parameter in parameters]))
    arguments: dict[str, Any] = {
        "properties": properties_on(cluster, **({"max.block.ms": 500} if "roducer" in cls.__name__ else {})),
        "topic": "flights",
        "group": "app",
        "own_group": "app",
        "resources": ["leader"],
        "partitions": [0] if cls is ExclusiveProducer else [FLIGHTS],
    }
    arguments = {name: value for name, value in arguments.items() if name in {p.name for p in parameters}}
    arguments[wrong] = data.draw(ANYTHING)
    more = {} if "onsumer" in cls.__name__ or cls is Admin else {"is_threaded": False}
    try:
        made = cls(**arguments, network=cluster.network(), **more)
    except REFUSALS:
        return
    if isinstance(made, ProducerFace):
        made.close(0)
    else:
        made.close()
