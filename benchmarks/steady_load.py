"""A steady stream of numbered records, sent by librdkafka or our own client, with the outcome of each record.
The failover benchmark and the fault tests evaluate it.

Records of a partition are numbered from 0 in the order in which they are sent. All times are those of
`time.monotonic()`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as StockProducer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from holdfast_log import Message, Producer, RequestTimeoutError, SendResponse

TICK_S = 0.01
FLUSH_TIMEOUT_S = 120.0
_CREATE_TIMEOUT_S = 240.0
_CREATE_AGAIN_S = 0.5
_BROKERS_MISSING = frozenset({KafkaError.INVALID_REPLICA_ASSIGNMENT, KafkaError.INVALID_REPLICATION_FACTOR})
_NOT_ANSWERED = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT})
"""Errors after which the topic may have been created, or will be."""
_NUMBER_BYTES = 12
_PADDING = b"steadily, one record after another, "
"""Compressible content, so that compressed batches become smaller."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Offset and time at which the broker acknowledged a record.

    The offset is None where librdkafka took the answer for a later record of the partition for that of this
    one too: it does so for records whose own answer did not arrive, and that it was about to send again.
    """

    offset: int | None
    at: float


@dataclass(slots=True)
class PartitionAccount:
    """Outcomes of one partition's records, by their number."""

    sent_at: list[float] = field(default_factory=list)
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def first_acknowledged_of_those_sent_since(self, moment: float) -> float | None:
        """The time of the first acknowledgement of a record sent at `moment` or later."""
        return min(
            (
                self.acknowledged[number].at
                for number, sent_at in enumerate(list(self.sent_at))
                if sent_at >= moment and number in self.acknowledged
            ),
            default=None,
        )

    def longest_acknowledgement_s(self, since: float = -math.inf, until: float = math.inf) -> float:
        """The longest time from sending a record to its acknowledgement, of those sent within the period."""
        sent_at = list(self.sent_at)
        return max(
            (
                one.at - sent_at[number]
                for number, one in self.acknowledged.copy().items()
                if number < len(sent_at) and since <= sent_at[number] < until
            ),
            default=0.0,
        )

    def longest_pause_s(self, since: float = -math.inf, until: float = math.inf) -> float:
        """The longest time between two successive acknowledgements of which the second came within the
        period."""
        times = sorted(one.at for one in list(self.acknowledged.values()))
        return max(
            (later - at for at, later in itertools.pairwise(times) if since <= later < until), default=0.0
        )


ReportOutcome: TypeAlias = Callable[[int, int, int | None, str], None]
"""Called with (partition, number, offset or None, error or "") for the outcome of one record."""


def _said(error: object | None) -> str:
    return "" if error is None else str(error) or repr(error)


class Client(Protocol):
    """A producer that acknowledges each record by calling back."""

    def send(self, partition: int, number: int, value: bytes) -> bool:
        """Queue a record. Returns False if the client's buffer is full."""
        ...

    def poll(self) -> None:
        """Deliver the outcomes that have arrived."""
        ...

    def close(self, timeout_s: float) -> None:
        """Return once every outcome has been delivered, or raise TimeoutError."""
        ...

    def abandon(self) -> None:
        """Give up the records that have no outcome yet."""
        ...


class StockClient:
    """librdkafka, idempotent, with acks=all. `config` is added to its settings."""

    def __init__(self, bootstrap: str, topic: str, told: ReportOutcome, config: Mapping[str, Any]) -> None:
        self._topic = topic
        self._told = told
        self._producer = StockProducer(
            {
                "bootstrap.servers": bootstrap,
                "broker.address.family": "v4",
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
                **config,
            }
        )

    def send(self, partition: int, number: int, value: bytes) -> bool:
        def delivered(error: Any, message: Any) -> None:
            self._told(partition, number, message.offset(), _said(error))

        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        except BufferError:
            return False
        return True

    def poll(self) -> None:
        self._producer.poll(0)

    def close(self, timeout_s: float) -> None:
        if left := self._producer.flush(timeout_s):
            raise TimeoutError(f"librdkafka still has {left} records after {timeout_s:.0f} s")

    def abandon(self) -> None:
        self._producer.purge()


class OwnClient:
    """Our own producer, idempotent, with acks=all. `config` is added to its properties."""

    def __init__(self, bootstrap: str, topic: str, told: ReportOutcome, config: Mapping[str, Any]) -> None:
        self._topic = topic
        self._told = told
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 2, **config})

    def send(self, partition: int, number: int, value: bytes) -> bool:
        def completed(response: SendResponse) -> None:
            error = response.error
            self._told(partition, number, None if error else response.offset, _said(error))

        self._producer.send(Message(self._topic, value=value, partition=partition)).on_completion(completed)
        return True

    def poll(self) -> None:
        pass  # The producer's own thread delivers outcomes.

    def close(self, timeout_s: float) -> None:
        if not self._producer.flush(timeout_ms=int(timeout_s * 1000)):
            raise TimeoutError(f"our producer still has records after {timeout_s:.0f} s")
        self._producer.close()

    def abandon(self) -> None:
        with suppress(RequestTimeoutError):  # A busy machine lets its thread end later.
            self._producer.close(timeout_ms=0)


CLIENTS: Mapping[str, Callable[[str, str, ReportOutcome, Mapping[str, Any]], Client]] = {
    "librdkafka": StockClient,
    "holdfast": OwnClient,
}


class SteadyLoad:
    """Sends `records_per_second` of `record_bytes`, in turn to each of `partitions`, until it is stopped.

    A record that a client cannot queue at the moment is skipped.
    """

    def __init__(
        self,
        client: str,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        records_per_second: float,
        record_bytes: int = 200,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.topic = topic
        self.partitions = [PartitionAccount() for _ in range(partitions)]
        self.acknowledged_count = 0
        self._records_per_second = records_per_second
        self._padding = (_PADDING * (record_bytes // len(_PADDING) + 1))[: record_bytes - _NUMBER_BYTES]
        self._progress = threading.Condition()
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._client = CLIENTS[client](bootstrap, topic, self._told, config or {})
        self._thread = threading.Thread(target=self._run, name=f"{client}-load", daemon=True)

    @property
    def sent_count(self) -> int:
        return sum(len(account.sent_at) for account in self.partitions)

    @property
    def failures(self) -> list[str]:
        """The errors of records that were given up."""
        return [error for account in self.partitions for error in account.failed.values()]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and return once every record's outcome is known. Raises what the client raised."""
        self._end()
        if self._error is not None:
            raise self._error
        self._client.close(FLUSH_TIMEOUT_S)

    def abandon(self) -> None:
        """Send no more, and give up unacknowledged records. No effect after `stop`."""
        self._end()
        self._client.abandon()

    def _end(self) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self, count: int, timeout_s: float = 120.0) -> None:
        """Return once `count` further records are acknowledged. Raises TimeoutError."""
        with self._progress:
            wanted = self.acknowledged_count + count
            if not self._progress.wait_for(lambda: self.acknowledged_count >= wanted, timeout_s):
                raise TimeoutError(
                    f"{self.client}: {self.acknowledged_count} instead of {wanted} records are acknowledged "
                    f"after {timeout_s:.0f} s; failed: {self.failures[:3]}"
                )

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # Fatal error of a producer; `stop` raises it.
            self._error = error

    def _send_all(self) -> None:
        turns = itertools.cycle(range(len(self.partitions)))
        started = time.monotonic()
        due = 0
        while not self._stopping.wait(TICK_S):
            was_due, due = due, int((time.monotonic() - started) * self._records_per_second)
            for _ in range(due - was_due):
                self._send(next(turns))
            self._client.poll()

    def _send(self, partition: int) -> None:
        account = self.partitions[partition]
        number = len(account.sent_at)
        account.sent_at.append(time.monotonic())
        if not self._client.send(partition, number, value_of(number, self._padding)):
            account.sent_at.pop()

    def _told(self, partition: int, number: int, offset: int | None, error: str) -> None:
        account = self.partitions[partition]
        if error:
            account.failed[number] = error
            return
        account.acknowledged[number] = Acknowledged(offset, time.monotonic())
        with self._progress:
            self.acknowledged_count += 1
            self._progress.notify_all()


@contextmanager
def steady_loads(
    bootstrap: str,
    new_topic: Callable[[str], NewTopic],
    *,
    records_per_second: float,
    configs: Mapping[str, Mapping[str, Any]],
) -> Iterator[list[SteadyLoad]]:
    """One load for each of CLIENTS, on a topic that has the client's name and is created by `new_topic`.

    `records_per_second` is the rate of each client, `configs` has the settings of each. At the exit, records
    without an outcome are given up; call `stop` before, to wait for them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4", "log_level": 0})
    with ExitStack() as stack:
        loads = []
        for client in CLIENTS:
            topic = new_topic(client)
            create_once_possible(admin, topic)
            load = SteadyLoad(
                client,
                bootstrap,
                client,
                partitions=topic.num_partitions,
                records_per_second=records_per_second,
                config=configs[client],
            )
            loads.append(load)
            load.start()
            stack.callback(load.abandon)
        yield loads


def create_once_possible(admin: AdminClient, topic: NewTopic) -> None:
    """Create a topic. Waits up to four minutes for its brokers: on a busy machine one may have lost its
    session in ZooKeeper, and registers again, or does not answer in time. Raises KafkaException if the topic
    cannot be created."""
    until_s = time.monotonic() + _CREATE_TIMEOUT_S
    may_exist = False
    while True:
        try:
            admin.create_topics([topic])[topic.topic].result(_CREATE_TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS and may_exist:
                return
            may_exist = may_exist or code in _NOT_ANSWERED
            if code not in _BROKERS_MISSING | _NOT_ANSWERED or time.monotonic() > until_s:
                raise
        else:
            return
        time.sleep(_CREATE_AGAIN_S)


def value_of(number: int, padding: bytes) -> bytes:
    """The value of a partition's record with this number."""
    return b"%0*d" % (_NUMBER_BYTES, number) + padding


def number_of(value: bytes) -> int:
    """The inverse of `value_of`. Raises ValueError for any other value."""
    return int(value[:_NUMBER_BYTES])
