"""The producer for asyncio.

async with AsyncProducer({"bootstrap.servers": "localhost:9092"}) as producer:
    response = await producer.send(Message("flights", value="queued"))
    print((await response).offset)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from holdfast_log.clients.aio.call_threads import wait_for
from holdfast_log.clients.aio.calls import awaited
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.sender import AsyncSender
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ClientError, TransactionStateError
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer, TransactionalFace
from holdfast_log.clients.sending.message_sender import Serializer, to_bytes
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.clients.sending.responses import BulkResponse, SendResponse
from holdfast_log.clients.transactions.transaction import ProducerTransaction


class AsyncProducer(AsyncSender):
    """Sends messages from an event loop. The arguments are those of Producer.

    The loop's thread serializes the messages of `send` and `send_at`. `on_event` is called in the loop, and
    may be a coroutine. Belongs to the event loop that runs when it is made, or in which it is first used:
    raises WrongLoopError in others. Raises ConfigError.
    """

    _client: Producer

    def __init__(
        self,
        properties: Properties,
        *,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
        fence: OwnerFence | None = None,
    ) -> None:
        super().__init__(HomeLoop(type(self).__name__))
        self._use(
            Producer(
                properties,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                network=network,
                rng=rng,
                on_event=partial(self._home.tell, on_event) if callable(on_event) else on_event,
                fence=fence,
            )
        )

    init_transactions = awaited(TransactionalFace.init_transactions)

    def transaction(self, timeout_ms: int | None = None) -> AsyncTransaction:
        """A transaction, which begins with `async with`, or when it is awaited: as `Producer.transaction`.

            async with producer.transaction() as t:
                await t.send(Message("accounts", key="alice", value="-10"))

        At the end of the block it is committed. An exception in the block, a cancellation included, aborts
        it, and goes on. Raises what `Producer.transaction` raises when it begins.
        """
        return AsyncTransaction(self, timeout_ms)


class AsyncTransaction:
    """A transaction of an AsyncProducer. Methods are those of ProducerTransaction, as coroutines.

    A `commit` that is cancelled goes on, and so does an `abort`: the next `transaction` waits for its end.
    """

    def __init__(self, producer: AsyncProducer, timeout_ms: int | None) -> None:
        self._producer = producer
        self._timeout_ms = timeout_ms
        self._begun: ProducerTransaction | None = None

    @property
    def _client(self) -> ProducerTransaction:
        if self._begun is None:
            raise TransactionStateError(
                "this transaction has not begun: write `async with producer.transaction() as t`, or "
                "`t = await producer.transaction()`"
            )
        return self._begun

    async def _begin(self) -> Self:
        if self._begun is not None:
            raise TransactionStateError("this transaction has begun already: call transaction() for another")
        self._begun = await self._producer._call(self._begin_after_others, _abort)
        return self

    def _begin_after_others(self) -> ProducerTransaction:
        """Begin, after the abort of transactions whose begin nobody waited for."""
        wait_for(self._producer._undoing)
        return self._producer._client.transaction(self._timeout_ms)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._call(partial(self._client.__exit__, kind, error, traceback))

    async def send(self, *messages: Message) -> SendResponse:
        """As `AsyncProducer.send`. Raises TransactionStateError if this transaction has ended or must be
        aborted."""
        self._client._check("send()")
        return await self._producer.send(*messages)

    async def send_at(self, expected_offset: int, *messages: Message, **arguments: Any) -> SendResponse:
        """As `AsyncProducer.send_at`: if the condition does not hold, the transaction cannot be committed."""
        self._client._check("send_at()")
        return await self._producer.send_at(expected_offset, *messages, **arguments)

    async def send_many(self, topic: str, values: Iterable[Any], **arguments: Any) -> BulkResponse:
        """As `AsyncProducer.send_many`."""
        self._client._check("send_many()")
        return await self._producer.send_many(topic, values, **arguments)

    send_offsets = awaited(ProducerTransaction.send_offsets)
    commit = awaited(ProducerTransaction.commit)
    abort = awaited(ProducerTransaction.abort)

    async def _call(self, call: Callable[[], Any]) -> Any:
        return await self._producer._call(call)


def _abort(transaction: ProducerTransaction) -> None:
    """End a transaction whose begin nobody waited for."""
    with suppress(ClientError):  # Else the next transaction says what is wrong with the producer.
        transaction.abort()
