"""The exclusive producer (PIP-68): one that has a topic, or some of its partitions, for itself.

    with ExclusiveProducer(properties, "journal", ProducerAccessMode.WAIT_FOR_EXCLUSIVE) as producer:
        producer.send(Message("journal", value="I lead"))

To be had in four modes: SHARED beside others that have asked for that, EXCLUSIVE or not at all,
WAIT_FOR_EXCLUSIVE when those before have gone, EXCLUSIVE_WITH_FENCING at once, whoever has it.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from clients.config import Properties, producer_settings, required_acks
from clients.connection.connection import Connection
from clients.connection.network import ClientNetwork
from clients.errors import ConfigError, RequestTimeoutError
from clients.feedback.events import OnEvent
from clients.message import Message
from clients.ownership.claim import FOR_EVER, ClaimSettings
from clients.ownership.claim_requests import ProducerAccessDialect
from clients.ownership.claims import OwnershipClaims
from clients.ownership.events import OwnershipEvent
from clients.ownership.write_access import ClaimedWriteAccess
from clients.producer import Producer, Serializer, to_bytes
from clients.sending.expectations import Expectation
from clients.sending.partitioner import Partitioner, by_key
from clients.sending.responses import BulkResponse, SendResponse
from protocol.messages.ownership import IF_FREE
from protocol.messages.producer_access import ProducerAccessMode
from protocol.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000
_CLOSE_MS = 5_000


class ExclusiveProducer(Producer):
    """A producer of one topic, with access to `partitions`: all that there are, where none are named.

    Returns when access is granted; to get into the queue and go on, `is_waiting` false: then what is sent
    waits until it is, `on_ownership` tells, and `claim` waits. `timeout_ms` is how long to wait: None is for
    ever with WAIT_FOR_EXCLUSIVE, else `max.block.ms`. `on_ownership` is called by the sending thread for
    every OwnershipEvent; it must not block. The rest is as for Producer, `on_event` too.

    Access lost is lost for good: what waits fails with ProducerFencedError, and every later `send` raises it.
    A producer that lost its connection, and nothing else, goes on by itself. Raises OwnershipRefusedError
    where the mode does not let it in, RequestTimeoutError, ConfigError (acks must be all).
    """

    def __init__(
        self,
        properties: Properties,
        topic: str,
        mode: ProducerAccessMode = ProducerAccessMode.EXCLUSIVE,
        *,
        partitions: Iterable[int] | None = None,
        timeout_ms: int | None = None,
        is_waiting: bool = True,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        producer_id: str | None = None,
        on_ownership: Callable[[OwnershipEvent], object] = lambda _: None,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
        on_event: OnEvent | None = None,
    ) -> None:
        settings = producer_settings(properties)
        if required_acks(settings) != -1:
            raise ConfigError(f"acks={settings['acks']}: an exclusive producer needs acks=all")
        self.topic = topic
        self.mode = mode
        self.producer_id = producer_id or str(uuid.uuid4())
        self.partitions: Sequence[int] = sorted(set(partitions or ()))
        if partitions is not None and not self.partitions:
            raise ValueError("no partition to have access to")
        self._wait_ms = timeout_ms
        if timeout_ms is None:
            waits = mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE
            self._wait_ms = None if waits else settings["max.block.ms"]
        self._partitioner = partitioner
        self._turns: Iterator[int] = count()
        dialect = ProducerAccessDialect(self.producer_id, session_timeout_ms, mode)
        third_ms = settings["request.timeout.ms"] // 3
        claim_settings = ClaimSettings(
            session_timeout_ms, settings["retry.backoff.ms"], queued_wait_ms=third_ms
        )
        queue_ms = 0
        if mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE:
            queue_ms = FOR_EVER if self._wait_ms is None else self._wait_ms

        def own(connection: Connection) -> ClaimedWriteAccess:
            if not self.partitions:
                try:
                    self.partitions = _partitions_of(connection, topic, settings["max.block.ms"])
                except BaseException:
                    connection.close()
                    raise
            self._claims = OwnershipClaims(
                connection,
                dialect,
                {TopicPartition(topic, number): IF_FREE for number in self.partitions},
                claim_settings,
                wait_ms=queue_ms,
                answer_timeout_ms=2 * third_ms,
            )
            return ClaimedWriteAccess(self._claims, on_ownership)

        super().__init__(
            properties,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=self._choose,
            network=network,
            rng=rng,
            is_threaded=is_threaded,
            on_event=on_event,
            own=own,
        )
        if is_waiting:
            try:
                self.claim(self._wait_ms)
            except BaseException:
                self.close(0)
                raise

    def _choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """One of the partitions that this producer has: by the key, else in turn."""
        index = self._partitioner(topic, key, len(self.partitions))
        return self.partitions[next(self._turns) % len(self.partitions) if index is None else index]

    # Access -------------------------------------------------------------------------------------------

    def claim(self, timeout_ms: int | None = None) -> None:
        """Wait until access is granted. Raises what the constructor does."""
        with self._lock:
            self._network.wake()
            self._wait_until(lambda: self._claims.is_held or self._queues.fatal_error is not None, timeout_ms)
            if self._queues.fatal_error is not None:
                raise self._queues.fatal_error
            if not self._claims.is_held:
                because = self._claims.last_error
                detail = "others have it" if because is None else str(because)
                waited = f"{self.topic}: no access within {timeout_ms} ms: {detail}"
                raise RequestTimeoutError(waited) from because

    @property
    def has_access(self) -> bool:
        """Whether all partitions are this producer's, as far as can be known (see `Lease.is_held`)."""
        with self._lock:
            return self._queues.fatal_error is None and self._claims.is_valid(self._network.now_ms())

    def epoch(self, partition: int = 0) -> int | None:
        """The topic epoch that was granted; None before that, and for SHARED."""
        with self._lock:
            grant = self._claims.by_resource[TopicPartition(self.topic, partition)].grant
            return None if grant is None or grant.generation < 0 else grant.generation

    def fence_offset(self, partition: int = 0) -> int | None:
        """Where the partition ended when access was granted: nobody before writes there or later."""
        with self._lock:
            grant = self._claims.by_resource[TopicPartition(self.topic, partition)].grant
            return None if grant is None or grant.fence_offset < 0 else grant.fence_offset

    # Sending ------------------------------------------------------------------------------------------

    def send(self, *messages: Message) -> SendResponse:
        """As `Producer.send`. Raises ValueError for a topic or partition that this producer does not have."""
        for message in messages:
            self._check(message.topic, message.partition)
        return super().send(*messages)

    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> BulkResponse:
        """As `Producer.send_many`; without keys all goes to one partition. Raises as `send` does."""
        self._check(topic, partition)
        if partition is None and keys is None:
            partition = self._choose(topic, None, 0)
        return super().send_many(topic, values, keys=keys, partition=partition, timestamp=timestamp)

    def _send_at(self, message: Message, expected: Expectation) -> SendResponse:
        self._check(message.topic, message.partition)
        return super()._send_at(message, expected)

    def _check(self, topic: str, partition: int | None) -> None:
        if topic != self.topic or (partition is not None and partition not in self.partitions):
            place = topic if partition is None else f"{topic}-{partition}"
            raise ValueError(f"{place}: this producer has access to {self.topic}-{list(self.partitions)}")

    # The end ------------------------------------------------------------------------------------------

    def close(self, timeout_ms: int | None = None) -> None:
        """As `Producer.close`; then lets go of the topic, so that the next that waits has it at once."""
        if not self._entrance.is_closed and self._queues.fatal_error is None and not self._is_own_thread():
            self.flush(timeout_ms)
            with self._lock:
                self._claims.release()
                self._network.wake()
                limit_ms = _CLOSE_MS if timeout_ms is None else min(timeout_ms, _CLOSE_MS)
                self._wait_until(
                    lambda: self._claims.has_ended or self._queues.fatal_error is not None, limit_ms
                )
        super().close(timeout_ms)


def _partitions_of(connection: Connection, topic: str, timeout_ms: int) -> list[int]:
    """The numbers of a topic's partitions. Raises RequestTimeoutError where nothing is known of them in time,
    and at once what will not pass by itself."""
    metadata = connection.metadata
    metadata.want(topic)
    deadline_ms = connection.network.now_ms() + timeout_ms
    while topic not in metadata.topics:
        left_ms = deadline_ms - connection.network.now_ms()
        error = metadata.topic_error(topic)
        if error is not None and not error.retriable:
            raise error
        if left_ms <= 0:
            detail = "" if error is None else f": {error}"
            waited = f"nothing is known of topic {topic} after {timeout_ms} ms{detail}"
            raise RequestTimeoutError(waited) from error
        connection.keep(connection.poll(left_ms))
    return [info.partition for info in metadata.topics[topic].partitions]
