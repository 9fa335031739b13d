"""Tills and readers of librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.bank.books import BankPlan
from tests.bank.ledger import Ending
from tests.bank.tills import CALL_S, READ_S, TRANSACTION_TIMEOUT_MS, BankError, Ended, Patience, TillError

CONFIG: Mapping[str, Any] = {
    "broker.address.family": "v4",
    "log_level": 0,
    "socket.timeout.ms": 8_000,
    "reconnect.backoff.max.ms": 500,
}
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors that a consumer reports while it goes on by itself."""
_AT_A_TIME = 500


class LibrdkafkaTill:
    """A transactional producer of librdkafka."""

    def __init__(self, bootstrap: str, topic: str, name: str, is_over: Callable[[], bool]) -> None:
        config = {
            **CONFIG,
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "linger.ms": 1,
        }
        self.ends: dict[int, int] = {}
        self._topic = topic
        self._is_over = is_over
        patience = Patience(is_over)
        while True:
            self._producer = Producer(config)
            try:
                self._until_done(self._producer.init_transactions, patience)
            except KafkaException as error:
                # Another producer, which got no answer, may have been given a later epoch.
                if patience.is_over:
                    raise BankError(f"{name} gets no producer: {error}") from error
            else:
                return

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise TillError(str(error)) from error

    def send(self, partition: int, value: bytes) -> None:
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        except KafkaException as error:
            if not self.abort():
                raise TillError(str(error)) from error
            raise TillError(f"aborted: {error}") from error

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:  # librdkafka sometimes knows no offset; then it is negative.
            partition = message.partition()
            self.ends[partition] = max(self.ends.get(partition, 0), message.offset() + 1)

    def flush(self, seconds: float) -> None:
        self._producer.flush(seconds)

    def commit(self) -> Ended:
        try:
            self._until_done(self._producer.commit_transaction, Patience(self._is_over))
        except KafkaException as error:
            if error.args[0].txn_requires_abort() and self.abort():
                return Ended(Ending.ABORTED, goes_on=True)
            return Ended(Ending.UNKNOWN, goes_on=False)
        return Ended(Ending.COMMITTED, goes_on=True)

    def abort(self) -> bool:
        try:
            self._until_done(self._producer.abort_transaction, Patience(self._is_over))
        except KafkaException:
            return False
        return True

    def close(self) -> None:
        """Do nothing: the producer ends with its last reference, without an abort."""

    @staticmethod
    def _until_done(call: Callable[[float], object], patience: Patience) -> None:
        """Call what may be called again after an error that says so. Raises KafkaException with any other."""
        while True:
            try:
                call(CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable() or patience.is_over:
                    raise
            else:
                return


class LibrdkafkaReader:
    """A consumer of librdkafka."""

    def __init__(self, bootstrap: str, plan: BankPlan) -> None:
        self._consumer = Consumer(
            {
                **CONFIG,
                "bootstrap.servers": bootstrap,
                "group.id": "auditors",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(plan.topic, number, 0) for number in range(plan.partitions)])
        self._upcoming = [0] * plan.partitions

    def read(self) -> Sequence[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        message: Any
        for message in self._consumer.consume(_AT_A_TIME, READ_S):
            error, partition = message.error(), message.partition()
            if error is None:
                found.append((partition, message.offset(), message.value()))
                self._upcoming[partition] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # Markers and aborted records are passed without a message.
                self._upcoming[partition] = max(self._upcoming[partition], message.offset())
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        return found

    def upcoming(self) -> Sequence[int]:
        return self._upcoming

    def close(self) -> None:
        self._consumer.close()
