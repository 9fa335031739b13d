"""The producer: `send` queues a message and returns at once; a background thread sends it.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        response = producer.send(Message("flights", key="UA", value=b"..."))
        print(response.result().offset)

After the client rewrite, "Proposed Producer API". Any number of threads may share a producer.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import TYPE_CHECKING, Self

from clients.config import Properties, producer_settings
from clients.connection.network import ClientNetwork
from clients.feedback.events import OnEvent
from clients.sending.engine import SendingEngine, producer_connection
from clients.sending.message_sender import MessageSender, Serializer, to_bytes
from clients.sending.partitioner import Partitioner, by_key

if TYPE_CHECKING:
    from clients.feedback.snapshots import ProducerFeedback


class Producer(MessageSender):
    """Sends messages. `properties` are Kafka's, from a dict or a properties file.

    The thread that calls `send` serializes; the background thread encodes and compresses. `partitioner` gets
    the serialized key. The background thread calls `on_event` for what happens (`clients.feedback.events`).
    With `is_threaded` false, for simulations, there is no such thread: the caller runs the loop by `turn`,
    and methods that wait run it meanwhile. Raises ConfigError.
    """

    # A MessageSender, rather than the owner of one, to spare each message a call.

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
    ) -> None:
        self.settings = producer_settings(properties)
        connection = producer_connection(self.settings, network, rng, on_event)
        self._engine = SendingEngine(self.settings, connection, partitioner)
        super().__init__(
            self._engine,
            key_serializer,
            value_serializer,
            is_idempotent=self.settings["enable.idempotence"],
        )
        if is_threaded:
            self._engine.start(self)

    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what is queued without lingering, and wait until every message sent so far has its outcome.

        False if that takes longer than `timeout_ms`.
        """
        return self._engine.flush(timeout_ms)

    def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, for at most `timeout_ms`, then stop.

        What is not acknowledged by then fails with ClosedError. May be called again, and by a callback.
        """
        self._engine.close(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(0 if kind is KeyboardInterrupt else None)

    def partitions_for(self, topic: str) -> int | None:
        """How many partitions a topic has; None while this producer does not know."""
        return self._engine.partitions_for(topic)

    def feedback(self) -> ProducerFeedback:
        """Counts of what was sent and its outcomes, and of requests. May be called by any thread."""
        return self._engine.feedback()

    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for a producer without a thread; waits at most `max_wait_ms`."""
        self._engine.turn(max_wait_ms)
