"""The producer: `send` queues a message and returns at once; a background thread sends it.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        response = producer.send(Message("flights", key="UA", value=b"..."))
        print(response.result().offset)

After the client rewrite, "Proposed Producer API". Any number of threads may share a producer.
"""

from __future__ import annotations

import random

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_TIMEOUT,
    FOR_SIMULATIONS,
    PROPERTIES,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties, producer_settings, required_acks
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending.arguments import A_FENCE
from holdfast_log.clients.sending.engine import SendingEngine, producer_connection
from holdfast_log.clients.sending.message_sender import MessageSender, Serializer, to_bytes
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.clients.sending.producer_face import ProducerFace
from holdfast_log.clients.transactions.face import TransactionalFace, machine_maker


class Producer(ProducerFace, TransactionalFace, MessageSender):
    """Sends messages. `properties` are Kafka's, from a dict or a properties file.

    The thread that calls `send` serializes; the background thread encodes and compresses. `partitioner` gets
    the serialized key. The background thread calls `on_event` for what happens (`clients.feedback.events`).
    With `is_threaded` false, for simulations, there is no such thread: the caller runs the loop by `turn`,
    and methods that wait run it too. Raises ConfigError.

    With a `fence`, which the owner of partitions has given to this process, messages are written for that
    owner, and to its partitions only: a message for another one fails with ValueError. When the owner's grant
    has ended, messages fail with ProducerFencedError, and every later `send` raises it. Needs acks=all.

    With a `transactional.id` it sends in transactions only: see `transaction`.
    """

    # A MessageSender, rather than the owner of one, to spare each message a call.

    @checked(
        properties=PROPERTIES,
        key_serializer=A_FUNCTION,
        value_serializer=A_FUNCTION,
        partitioner=A_FUNCTION,
        on_event=optional(A_FUNCTION),
        fence=A_FENCE,
        **FOR_SIMULATIONS,
    )
    def __init__(
        self,
        properties: Properties,
        *,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
        on_event: OnEvent | None = None,
        fence: OwnerFence | None = None,
    ) -> None:
        self.settings = producer_settings(properties)
        if fence is not None and required_acks(self.settings) != -1:
            raise ConfigError(f"acks={self.settings['acks']}: a producer with a fence needs acks=all")
        connection = producer_connection(self.settings, network, rng, on_event)
        transactions = machine_maker(self.settings, connection, fence)
        engine = SendingEngine(self.settings, connection, partitioner, fence=fence, transactions=transactions)
        ProducerFace.__init__(self, engine)
        TransactionalFace.__init__(self, engine, self.settings)
        MessageSender.__init__(
            self,
            engine,
            key_serializer,
            value_serializer,
            is_idempotent=self.settings["enable.idempotence"],
        )
        if is_threaded:
            engine.start(self)

    @checked(timeout_ms=A_TIMEOUT)
    def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, for at most `timeout_ms`, then stop. An open transaction is aborted first.

        Messages not acknowledged by then fail with ClosedError. Raises UndeliveredError as `flush` does. May
        be called again. In a callback it stops without sending if `timeout_ms` is 0, and otherwise raises
        InsideCallbackError.
        """
        self._end_transactions(timeout_ms)
        super().close(timeout_ms)
