"""The clients that come and go: each visit creates its own clients, uses them for a while, and closes them.

A visit is a function of the `Place`. It returns after a few seconds, when its work is done, or raises an
error. `Visitor` repeats one kind of visit in a thread.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer as StockConsumer
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from benchmarks.steady_load import CLIENTS, FLUSH_TIMEOUT_S
from holdfast_log import (
    Admin,
    CommitFailedError,
    Consumer,
    ExclusiveProducer,
    Lease,
    Message,
    NewTopic,
    Producer,
    ProducerAccessMode,
    ProducerFencedError,
    TopicPartition,
)
from holdfast_log.clients.admin import TopicDescription
from holdfast_log.protocol.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from tests.soak.ledger import Ledger, Visit

TOPICS = {"librdkafka": 3, "holdfast": 3, "owned": 1}
"""The topics whose records the ledger checks, and their numbers of partitions."""
OWNED = "owned"
_CODECS = ("none", "lz4", "zstd", "snappy", "gzip")
_TICK_S = 0.02
_RETRY_S = 0.5
_SESSION_MS = 30_000
"""On a busy machine clients, or the coordinator, may not run for seconds."""
_FIRST_RECORD_S = 120.0
"""Longest wait for a first record: longer than any restart, so a consumer without a record by then has
failed."""
_APART_S = 0.5
"""Least time from the begin of one visit to the next one of its kind. As many visits as the processors allow
would be more when other work on the machine ends, and what a deleted topic keeps until its files are removed
would look like growth."""
_CROWD = 10
"""Connections to each broker in a visit of idle connections."""


@dataclass(slots=True)
class Place:
    """The cluster's addresses, the ledger and the load, which every visit gets."""

    bootstrap: str
    addresses: Sequence[tuple[str, int]]
    ledger: Ledger
    stay_s: float
    records_per_second: float
    ending: threading.Event = field(default_factory=threading.Event)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def stay(self) -> float:
        """Draw how long the next visit lasts, in seconds."""
        return random.uniform(0.5, 1.5) * self.stay_s

    def properties(self, **more: object) -> dict[str, object]:
        """Properties for Holdfast's clients. Underscores in the names stand for dots."""
        return {"bootstrap.servers": self.bootstrap} | {
            name.replace("_", "."): value for name, value in more.items()
        }

    def stock(self, **more: object) -> dict[str, object]:
        """Properties for librdkafka's clients. Underscores in the names stand for dots, except
        `log_level`."""
        return self.properties(**more) | {"broker.address.family": "v4", "log_level": 0}

    def moments(self) -> itertools.takewhile[float]:
        """The times of a visit's ticks, until the visit has lasted long enough or the soak ends."""
        until = time.monotonic() + self.stay()
        nows = (time.monotonic() for _ in itertools.count())
        return itertools.takewhile(lambda now: now < until and not self.ending.wait(_TICK_S), nows)


VisitKind = Callable[[Place], None]


class Visitor:
    """Repeats one kind of visit in a thread, until `Place.ending` is set."""

    def __init__(self, name: str, visit: VisitKind, place: Place) -> None:
        self.name = name
        self.visits = 0
        self.errors: Counter[str] = Counter()
        self._visit = visit
        self._place = place
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for the last visit, after `Place.ending` was set. Returns whether it ended within
        `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._place.ending.is_set():
            began = time.monotonic()
            try:
                self._visit(self._place)
                self.visits += 1
            except Exception as error:  # The soak counts it, shows it at the end, and fails.
                traceback.print_exc()
                self.errors[f"{type(error).__name__}: {error}".splitlines()[0]] += 1
                self._place.ending.wait(1.0)
            self._place.ending.wait(began + _APART_S - time.monotonic())


# Producers


def produce_with(client: str, *, is_idempotent: bool = True) -> VisitKind:
    """Visits by a producer of that client, with acks=all, which writes at a steady rate."""

    def visit(place: Place) -> None:
        account = place.ledger.open(client, TOPICS[client], is_idempotent=is_idempotent)
        config: dict[str, object] = {"compression.type": random.choice(_CODECS), "acks": "all"}
        config["enable.idempotence"] = is_idempotent
        producer = CLIENTS[client](place.bootstrap, client, account.told, config)
        began, sent = time.monotonic(), 0
        for now in place.moments():
            while sent < (now - began) * place.records_per_second:
                producer.send(*account.next_value())
                sent += 1
            producer.poll()
        producer.close(FLUSH_TIMEOUT_S)

    return visit


# Consumers


def consume_in_a_group(place: Place) -> None:
    """Two members of a new group, with Holdfast's client: both read, one leaves, the other one reads on and
    commits. Then the group is deleted."""
    group = f"group-{next(place.numbers)}"
    properties = place.properties(group_id=group, auto_offset_reset="latest", session_timeout_ms=_SESSION_MS)
    with Consumer(properties) as stays:
        stays.add_topic("librdkafka")
        with Consumer(properties) as leaves:
            leaves.add_topic("librdkafka")
            _poll_until_read(place, [stays, leaves])
        _poll_until_read(place, [stays])
        if place.ending.is_set():
            return  # The members may have read no record yet, so there may be no offset to commit.
        offsets = _committed(stays)
    with Admin(place.properties()) as admin:
        kept = {key: entry.offset for key, entry in admin.list_group_offsets(group, offsets).items()}
        assert kept == offsets, f"{group} has committed {offsets}, and {kept} is there"
        _delete_group(admin, group)


def _committed(consumer: Consumer) -> dict[TopicPartition, int]:
    """Commit where the consumer is. While its group is divided anew, because another member has left, a
    commit may fail: then it polls, as applications do, and commits where it is then."""
    deadline = time.monotonic() + _FIRST_RECORD_S
    while True:
        offsets = {partition: consumer.position(partition) for partition in consumer.assignment()}
        try:
            consumer.commit(offsets=offsets)
            return offsets
        except CommitFailedError:
            if time.monotonic() > deadline:
                raise
            consumer.poll(50)


def _delete_group(admin: Admin, group: str) -> None:
    """Delete a group, and retry while it has members. If the coordinator restarts when the members leave, it
    removes them only when their sessions expire."""
    deadline = time.monotonic() + _FIRST_RECORD_S
    while True:
        try:
            admin.delete_groups([group])
            return
        except GroupNotFoundError:
            return  # An earlier request deleted it, and its answer was lost.
        except GroupNotEmptyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def consume_in_a_stock_group(place: Place) -> None:
    """A member of a new group, with librdkafka. Nobody deletes the group, so its offsets expire."""
    consumer = StockConsumer(place.stock(group_id=f"stock-{next(place.numbers)}", auto_offset_reset="latest"))
    try:
        consumer.subscribe(["holdfast"])
        read, deadline = 0, time.monotonic() + _FIRST_RECORD_S
        for _ in place.moments():
            read += _read(consumer)
        while not read and not place.ending.is_set():
            read += _read(consumer)
            assert time.monotonic() < deadline, f"librdkafka's member read nothing in {_FIRST_RECORD_S:.0f} s"
    finally:
        consumer.close()


def _read(consumer: StockConsumer) -> int:
    return sum(message.error() is None for message in consumer.consume(500, 0.1))


def tail(place: Place) -> None:
    """A consumer without a group, which reads new records at the end of a topic."""
    with Consumer(place.properties(auto_offset_reset="latest")) as consumer:
        consumer.add_topic("holdfast")
        _poll_until_read(place, [consumer])


def _poll_until_read(place: Place, consumers: Sequence[Consumer]) -> None:
    """Poll all consumers for the time of a visit, and until a record has come. Raises AssertionError if none
    comes within `_FIRST_RECORD_S` seconds."""
    read, deadline = 0, time.monotonic() + _FIRST_RECORD_S
    for _ in place.moments():
        read += sum(len(consumer.poll(50)) for consumer in consumers)
    while not read and not place.ending.is_set():
        read += sum(len(consumer.poll(50)) for consumer in consumers)
        assert time.monotonic() < deadline, f"nothing read in {_FIRST_RECORD_S:.0f} s"


# Owners


def own_a_topic(place: Place) -> None:
    """A producer with exclusive access. It waits for its turn or fences the topic's owner, and writes until
    its visit ends or another producer fences it."""
    mode = random.choice([ProducerAccessMode.WAIT_FOR_EXCLUSIVE, ProducerAccessMode.EXCLUSIVE_WITH_FENCING])
    account = place.ledger.open(OWNED, TOPICS[OWNED], may_fail=True)
    wait_ms = int(_FIRST_RECORD_S * 1000)
    with (
        contextlib.suppress(ProducerFencedError),
        ExclusiveProducer(
            place.properties(),
            OWNED,
            mode,
            timeout_ms=wait_ms,
            session_timeout_ms=_SESSION_MS,
        ) as producer,
    ):
        for _ in place.moments():
            _send(producer, account)
        producer.flush(int(FLUSH_TIMEOUT_S * 1000))


def _send(producer: ExclusiveProducer, account: Visit) -> None:
    partition, number, value = account.next_value()
    response = producer.send(Message(OWNED, value=value, partition=partition))
    response.on_completion(
        lambda done: account.told(partition, number, None if done.error else done.offset, str(done.error))
    )


def hold_a_lease(place: Place) -> None:
    """A lease on a name that other visitors want too."""
    name = random.choice(["north", "south"])
    wait_ms = int(_FIRST_RECORD_S * 1000)
    with Lease(place.properties(), "soak", [name], wait_ms=wait_ms, session_timeout_ms=_SESSION_MS) as lease:
        for _ in place.moments():
            lease.check()


# Administration


def administer(place: Place) -> None:
    """An administrator creates a topic, writes to it, deletes its records, describes it and deletes it. The
    topic has two replicas, so that it can also be created while a broker restarts. If that broker's answer is
    lost, the client asks another one, which finds the work done."""
    topic = f"short-lived-{next(place.numbers)}"
    first = TopicPartition(topic, 0)
    with Admin(place.properties()) as admin:
        with contextlib.suppress(TopicExistsError):
            admin.create_topics([NewTopic(topic, 3, 2)])
        with Producer(place.properties()) as producer:
            responses = [producer.send(Message(topic, value=b"gone soon", partition=0)) for _ in range(20)]
            offset = max(response.result().offset for response in responses)
        admin.describe_cluster()
        admin.list_groups()
        admin.describe_owners(["soak"])
        assert admin.delete_records({first: offset}) == {first: offset}
        described = _described(admin, topic)
        assert len(described.partitions) == 3, described
        with contextlib.suppress(UnknownTopicOrPartitionError):
            admin.delete_topics([topic])


def _described(admin: Admin, topic: str) -> TopicDescription:
    """Describe a topic that exists. Any broker may be asked, also one that does not know of it yet."""
    deadline = time.monotonic() + _FIRST_RECORD_S
    while True:
        try:
            (described,) = admin.describe_topics([topic])
            return described
        except UnknownTopicOrPartitionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def administer_by_librdkafka(place: Place) -> None:
    """A new librdkafka admin client, which lists topics and groups, then stays connected."""
    admin = AdminClient(place.stock())
    found = admin.list_topics(timeout=_FIRST_RECORD_S).topics
    assert set(TOPICS) <= set(found), sorted(found)
    admin.list_consumer_groups(request_timeout=_FIRST_RECORD_S).result()
    for _ in place.moments():
        pass


def idle(place: Place) -> None:
    """Connections that send nothing or an incomplete frame, then close. A restarting broker may refuse
    some."""
    with contextlib.ExitStack() as stack:
        for address in place.addresses:
            for number in range(_CROWD):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(socket.create_connection(address, timeout=5.0))
                    connection.sendall(b"\0\0"[: number % 3])
        for _ in place.moments():
            pass


KINDS: Sequence[tuple[str, VisitKind]] = (
    ("librdkafka producer", produce_with("librdkafka")),
    ("our producer", produce_with("holdfast")),
    ("librdkafka producer, not idempotent", produce_with("librdkafka", is_idempotent=False)),
    ("our group", consume_in_a_group),
    ("librdkafka's group", consume_in_a_stock_group),
    ("tail consumer", tail),
    ("owner A", own_a_topic),
    ("owner B", own_a_topic),
    ("lease A", hold_a_lease),
    ("lease B", hold_a_lease),
    ("our admin client", administer),
    ("librdkafka's admin client", administer_by_librdkafka),
    ("idle connections", idle),
)
