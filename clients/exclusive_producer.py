"""The exclusive producer (PIP-68): one that has a topic, or some of its partitions, to itself.

    with ExclusiveProducer(properties, "journal", ProducerAccessMode.WAIT_FOR_EXCLUSIVE) as producer:
        producer.send(Message("journal", value="I lead"))

Four modes: SHARED is granted beside other SHARED producers; EXCLUSIVE is refused if any producer has access;
WAIT_FOR_EXCLUSIVE waits until the producers before it have left; EXCLUSIVE_WITH_FENCING takes access from
the owner at that time.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count

from holdfast_log.clients.arguments import (
    A_COLUMN,
    A_FLAG,
    A_FUNCTION,
    A_NAME,
    A_TIMEOUT,
    A_TIMESTAMP,
    A_UUID,
    AN_OFFSET,
    FOR_SIMULATIONS,
    PARTITION_NUMBER,
    PROPERTIES,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties, producer_settings, required_acks
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ConfigError, RequestTimeoutError, with_cause
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.arguments import NUMBERS, OF_OWNERS
from holdfast_log.clients.ownership.claim import FOR_EVER, ClaimSettings
from holdfast_log.clients.ownership.claim_requests import ProducerAccessDialect
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.clients.ownership.events import OwnershipEvent
from holdfast_log.clients.ownership.whole_topic import WholeTopic
from holdfast_log.clients.ownership.write_access import ClaimedWriteAccess
from holdfast_log.clients.sending.arguments import A_LEADER_EPOCH, A_MESSAGE, AN_APPEND_ID, GUARDS
from holdfast_log.clients.sending.engine import SendingEngine, producer_connection
from holdfast_log.clients.sending.expectations import ANY_EPOCH, NO_GUARDS
from holdfast_log.clients.sending.message_sender import MessageSender, Serializer, to_bytes
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.clients.sending.producer_face import ProducerFace
from holdfast_log.clients.sending.responses import BulkResponse, SendResponse
from holdfast_log.protocol.messages.ownership import IF_FREE, ResourceStanding
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000
_CLOSE_MS = 5_000
_RELEASE_MS = 1_000
"""How long `close` waits for the release, even if what was queued has used up its timeout."""


class ExclusiveProducer(ProducerFace):
    """A producer of one topic, with access to `partitions`; if none are named, to all that the topic has, and
    to those that are added to it.

    The constructor returns when access is granted. With `is_waiting` false it returns at once: messages
    wait until access is granted, `on_ownership` reports that, and `claim` waits for it. `timeout_ms` is the
    maximum wait; None means no limit with WAIT_FOR_EXCLUSIVE, else `max.block.ms`. The sending thread calls
    `on_ownership` for every OwnershipEvent, and the callback must not block. The other arguments and methods
    are those of Producer.

    Access that is lost is not claimed again: queued messages fail with ProducerFencedError, and every later
    `send` raises it. A producer that lost only its connection resumes on the next one. Raises
    OwnershipRefusedError if the mode does not let it in, RequestTimeoutError, ConfigError (acks must be all),
    TypeError for arguments of a wrong type.
    """

    @checked(
        properties=PROPERTIES,
        topic=A_NAME,
        mode=OF_OWNERS["mode"],
        partitions=optional(NUMBERS),
        timeout_ms=A_TIMEOUT,
        is_waiting=A_FLAG,
        session_timeout_ms=OF_OWNERS["session_timeout_ms"],
        producer_id=OF_OWNERS["producer_id"],
        on_ownership=A_FUNCTION,
        key_serializer=A_FUNCTION,
        value_serializer=A_FUNCTION,
        partitioner=A_FUNCTION,
        on_event=optional(A_FUNCTION),
        **FOR_SIMULATIONS,
    )
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
        if settings["transactional.id"] is not None:
            raise ConfigError(
                "an exclusive producer has no transactions of its own: give its fence() to a Producer with a "
                "transactional.id, which then writes for this owner"
            )
        self.settings = settings
        self.topic = topic
        self.mode = mode
        self.producer_id = producer_id or str(uuid.uuid4())
        named = None if partitions is None else sorted(set(partitions))
        if named == []:
            raise ValueError("partitions is empty: name at least one, or None for all")
        may_queue = mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE
        wait_ms = timeout_ms
        if timeout_ms is None and not may_queue:
            wait_ms = settings["max.block.ms"]
        connection = producer_connection(settings, network, rng, on_event)
        partitions = named or _partitions_of(connection, topic, settings["max.block.ms"])
        self.partitions: Sequence[int] = partitions
        """The partitions that this producer writes to. A producer of a whole topic gets those that are
        added."""
        self._partitioner = partitioner
        self._turns: Iterator[int] = count()
        third_ms = settings["request.timeout.ms"] // 3
        self._claims = OwnershipClaims(
            connection,
            ProducerAccessDialect(self.producer_id, session_timeout_ms, mode, covers_topic=named is None),
            {TopicPartition(topic, number): IF_FREE for number in partitions},
            ClaimSettings(session_timeout_ms, settings["retry.backoff.ms"], queued_wait_ms=third_ms),
            wait_ms=(FOR_EVER if wait_ms is None else wait_ms) if may_queue else 0,
            answer_timeout_ms=2 * third_ms,
        )
        self._whole_topic: WholeTopic | None = None
        if named is None:
            self._whole_topic = WholeTopic(self._claims, connection.metadata, topic, partitions)
        access = ClaimedWriteAccess(self._claims, on_ownership, self._whole_topic)
        engine = SendingEngine(settings, connection, self._choose, access)
        super().__init__(engine)
        self._sender = MessageSender(
            engine, key_serializer, value_serializer, is_idempotent=settings["enable.idempotence"]
        )
        if is_threaded:
            engine.start(self)
        if is_waiting:
            try:
                self.claim(wait_ms)
            except BaseException:
                self.close(0)
                raise

    def _choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        """One of this producer's partitions: by the key, or in turn for messages without one."""
        index = self._partitioner(topic, key, len(self.partitions))
        return self.partitions[next(self._turns) % len(self.partitions) if index is None else index]

    # Access -------------------------------------------------------------------------------------------

    @checked(timeout_ms=A_TIMEOUT)
    def claim(self, timeout_ms: int | None = None) -> None:
        """Wait until access is granted. Raises what the constructor raises."""
        engine = self._engine
        with engine.lock:
            engine.network.wake()
            engine.wait_until(lambda: self._claims.is_held or engine.fatal_error is not None, timeout_ms)
            if engine.fatal_error is not None:
                raise engine.fatal_error
            if not self._claims.is_held:
                because = self._claims.last_error
                waited = f"{self.topic}: no access within {timeout_ms} ms"
                raise RequestTimeoutError(with_cause(waited, self._claims.waits_for())) from because

    @property
    def has_access(self) -> bool:
        """Whether this producer has access to all its partitions, with the caveat of `Lease.is_held`.

        Without named partitions these are all that the topic has: false while one that was added is not
        granted yet. Brokers let nobody else write to it meanwhile.
        """
        engine = self._engine
        with engine.lock:
            if self._whole_topic is not None:
                self._whole_topic.grow()
            return engine.fatal_error is None and self._claims.is_valid(engine.network.now_ms())

    @checked(partition=PARTITION_NUMBER)
    def epoch(self, partition: int = 0) -> int | None:
        """The topic epoch that was granted; None before that, and for SHARED."""
        grant = self._grant(partition)
        return None if grant is None or grant.generation < 0 else grant.generation

    @checked(partition=PARTITION_NUMBER)
    def token(self, partition: int = 0) -> int | None:
        """A number for storage outside, as `Lease.token`; None before access is granted, and for SHARED."""
        grant = self._grant(partition)
        return None if grant is None or grant.incarnation < 0 else grant.incarnation

    def fence(self) -> OwnerFence:
        """What lets other processes write to the partitions that this producer has now, as `Lease.fence`. A
        partition that is added later is in later fences only. Raises ClosedError for SHARED too."""
        with self._engine.lock:
            return self._claims.fence()

    @checked(partition=PARTITION_NUMBER)
    def fence_offset(self, partition: int = 0) -> int | None:
        """Where the partition ended when access was granted: no earlier producer writes there or later."""
        grant = self._grant(partition)
        return None if grant is None or grant.fence_offset < 0 else grant.fence_offset

    def _grant(self, partition: int) -> ResourceStanding | None:
        self._check(self.topic, partition)
        with self._engine.lock:
            return self._claims.by_resource[TopicPartition(self.topic, partition)].grant

    # Sending ------------------------------------------------------------------------------------------

    def send(self, *messages: Message) -> SendResponse:
        """As `Producer.send`. Raises ValueError for a topic or partition that this producer does not have."""
        for message in messages:
            if type(message) is not Message:
                A_MESSAGE.check("send()", "each argument", message)
            self._check(message.topic, message.partition)
        return self._sender.send(*messages)

    @checked(
        expected_offset=AN_OFFSET,
        messages=A_MESSAGE,
        last_leader_epoch=A_LEADER_EPOCH,
        guards=GUARDS,
        append_id=AN_APPEND_ID,
        topic_id=A_UUID,
        unused_before=optional(AN_OFFSET),
    )
    def send_at(
        self,
        expected_offset: int,
        *messages: Message,
        last_leader_epoch: int = ANY_EPOCH,
        guards: Mapping[TopicPartition, int] = NO_GUARDS,
        append_id: bytes | uuid.UUID | None = None,
        topic_id: uuid.UUID = ZERO_UUID,
        unused_before: int | None = None,
    ) -> SendResponse:
        """As `Producer.send_at`. Raises ValueError as `send` does."""
        for message in messages:
            self._check(message.topic, message.partition)
        return self._sender.send_at(
            expected_offset,
            *messages,
            last_leader_epoch=last_leader_epoch,
            guards=guards,
            append_id=append_id,
            topic_id=topic_id,
            unused_before=unused_before,
        )

    @checked(
        topic=A_NAME,
        values=A_COLUMN,
        keys=optional(A_COLUMN),
        partition=optional(PARTITION_NUMBER),
        timestamp=optional(A_TIMESTAMP),
    )
    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        keys: Iterable[object] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> BulkResponse:
        """As `Producer.send_many`; without keys all messages go to one partition. Raises as `send` does."""
        self._check(topic, partition)
        if partition is None and keys is None:
            partition = self._choose(topic, None, 0)
        return self._sender.send_many(topic, values, keys=keys, partition=partition, timestamp=timestamp)

    def _check(self, topic: str, partition: int | None) -> None:
        if topic != self.topic or (partition is not None and partition not in self.partitions):
            place = topic if partition is None else f"{topic}-{partition}"
            raise ValueError(f"{place}: this producer has access to {self.topic}-{list(self.partitions)}")

    # The end ------------------------------------------------------------------------------------------

    @checked(timeout_ms=A_TIMEOUT)
    def close(self, timeout_ms: int | None = None) -> None:
        """As `Producer.close`; then releases the topic: the next producer in the queue has it at once."""
        engine = self._engine
        since_ms = engine.network.now_ms()
        if timeout_ms != 0 and engine.lock.forked_from is None:
            engine.lock.check_may_wait("close()")
        if not engine.is_closed and engine.fatal_error is None and not engine.is_own_thread():
            engine.settle(timeout_ms)
            with engine.lock:
                self._claims.release()
                engine.network.wake()
                # A release that is not sent keeps the next owner waiting for the session to end.
                least_ms = 0 if timeout_ms == 0 else _RELEASE_MS
                left_ms = _left_ms(engine, timeout_ms, since_ms, _CLOSE_MS)
                limit_ms = max(least_ms, min(left_ms, _CLOSE_MS))
                engine.wait_until(lambda: self._claims.has_ended or engine.fatal_error is not None, limit_ms)
        engine.close(None if timeout_ms is None else _left_ms(engine, timeout_ms, since_ms, 0))


def _left_ms(engine: SendingEngine, timeout_ms: int | None, since_ms: int, default_ms: int) -> int:
    """What is left of `timeout_ms`; without one, `default_ms`."""
    return default_ms if timeout_ms is None else max(0, since_ms + timeout_ms - engine.network.now_ms())


def _partitions_of(connection: Connection, topic: str, timeout_ms: int) -> list[int]:
    """The numbers of a topic's partitions; closes the connection if no broker describes the topic.

    Raises RequestTimeoutError if that takes longer than `timeout_ms`, and errors that are not retriable at
    once.
    """
    try:
        _await_metadata(connection, topic, timeout_ms)
    except BaseException:
        connection.close()
        raise
    return [info.partition for info in connection.metadata.topics[topic].partitions]


def _await_metadata(connection: Connection, topic: str, timeout_ms: int) -> None:
    metadata = connection.metadata
    metadata.want(topic)
    deadline_ms = connection.network.now_ms() + timeout_ms
    while topic not in metadata.topics:
        left_ms = deadline_ms - connection.network.now_ms()
        error = metadata.topic_error(topic)
        if error is not None and not error.retriable:
            raise error
        unreached = connection.unreachable(connection.network.now_ms())
        if unreached is not None:
            raise unreached
        if left_ms <= 0:
            waited = f"no broker described topic {topic} within {timeout_ms} ms"
            raise RequestTimeoutError(with_cause(waited, error, connection.standing(ANY_NODE))) from error
        connection.keep(connection.poll(left_ms))
