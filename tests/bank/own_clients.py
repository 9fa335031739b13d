"""Tills and readers of Holdfast's own clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClientError, CommitUnknownError, RequestTimeoutError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.clients.transactions.transaction import ProducerTransaction
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.bank.books import BankPlan
from tests.bank.ledger import Ending
from tests.bank.tills import (
    CALL_S,
    READ_S,
    TRANSACTION_TIMEOUT_MS,
    WAIT_S,
    BankError,
    Ended,
    Patience,
    TillError,
)

_REQUEST_TIMEOUT_MS = 8_000
_BOOTSTRAP_TIMEOUT_MS = int(WAIT_S * 1000)
"""Faults may hit all brokers while a client is opened."""
_CLOSE_MS = 1_000


class HoldfastTill:
    """A transactional producer of Holdfast."""

    def __init__(self, bootstrap: str, topic: str, name: str, is_over: Callable[[], bool]) -> None:
        self.ends: dict[int, int] = {}
        self._topic = topic
        self._is_over = is_over
        self._transaction: ProducerTransaction | None = None
        self._answers: list[SendResponse] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "request.timeout.ms": _REQUEST_TIMEOUT_MS,
                "max.block.ms": int(CALL_S * 1000),
                "bootstrap.timeout.ms": _BOOTSTRAP_TIMEOUT_MS,
            }
        )
        try:
            self._until_done(self._producer.init_transactions)
        except (ClientError, BrokerError) as error:
            raise BankError(f"{name} gets no producer: {error}") from error

    def begin(self) -> None:
        try:
            self._transaction = self._until_done(self._producer.transaction)
            self._answers.clear()
        except (ClientError, BrokerError) as error:
            raise TillError(str(error)) from error

    def send(self, partition: int, value: bytes) -> None:
        try:
            self._answers.append(self._open.send(Message(self._topic, partition=partition, value=value)))
        except (ClientError, BrokerError) as error:
            self.abort()
            raise TillError(str(error)) from error

    def flush(self, seconds: float) -> None:
        with suppress(ClientError, BrokerError):  # An error of a message is one of the commit.
            self._producer.flush(int(seconds * 1000))

    def commit(self) -> Ended:
        try:
            self._until_done(self._open.commit)
        except (CommitUnknownError, RequestTimeoutError):
            return Ended(Ending.UNKNOWN, goes_on=False)
        except (ClientError, BrokerError):
            return Ended(Ending.ABORTED, goes_on=self.abort())  # All others say that nothing counts.
        for answer in self._answers:
            partition, offset = answer.partition, answer.offset
            assert partition is not None and offset is not None, "all of a commit is acknowledged"
            self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)
        return Ended(Ending.COMMITTED, goes_on=True)

    def abort(self) -> bool:
        try:
            self._until_done(self._open.abort)
        except (ClientError, BrokerError):
            return False
        return True

    def close(self) -> None:
        """End the producer: its successor has fenced it, so this ends nothing else."""
        with suppress(ClientError, BrokerError):
            self._producer.close(_CLOSE_MS)

    @property
    def _open(self) -> ProducerTransaction:
        assert self._transaction is not None, "begin() comes first"
        return self._transaction

    def _until_done(self, call: Callable[[], Any]) -> Any:
        """Call again what has not ended in time, which goes on meanwhile."""
        patience = Patience(self._is_over)
        while True:
            try:
                return call()
            except RequestTimeoutError:
                if patience.is_over:
                    raise


class HoldfastReader:
    """A consumer of Holdfast."""

    def __init__(self, bootstrap: str, plan: BankPlan) -> None:
        self._places = [TopicPartition(plan.topic, number) for number in range(plan.partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "request.timeout.ms": _REQUEST_TIMEOUT_MS,
                "bootstrap.timeout.ms": _BOOTSTRAP_TIMEOUT_MS,
            }
        )
        for place in self._places:
            self._consumer.add_topic(*place)
            self._consumer.seek(place, 0)

    def read(self) -> Sequence[tuple[int, int, bytes]]:
        records = self._consumer.poll(int(READ_S * 1000))
        return [(record.partition, record.offset, record.value) for record in records]

    def upcoming(self) -> Sequence[int]:
        return [self._consumer.position(place) for place in self._places]

    def close(self) -> None:
        self._consumer.close()
