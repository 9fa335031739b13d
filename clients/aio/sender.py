"""What asyncio producers have in common: sending, waiting for what was sent, and the end."""

from __future__ import annotations

import asyncio
import atexit
import threading
import warnings
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from holdfast_log.clients.aio.call_threads import end_calls, in_thread
from holdfast_log.clients.aio.calls import awaited, passed_on
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.room import RoomQueue
from holdfast_log.clients.connection.network import InterruptedCall
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message, RecordMetadata
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.accumulator import NeedsRoom
from holdfast_log.clients.sending.expectations import ANY_EPOCH, NO_GUARDS
from holdfast_log.clients.sending.producer_face import ProducerFace
from holdfast_log.clients.sending.responses import BulkResponse, GroupResponse, SendResponse
from holdfast_log.clients.settings import Settings
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")
_SENT_IN_A_ROW = 500
"""After so many calls of `send` that did not wait, other tasks get a turn."""
_INTERRUPTED_MS = 1_000
"""How long the end of a block waits for what is queued, after Ctrl-C or a cancellation."""

atexit.register(end_calls)
"""Runs before producers are closed and report losses, because `Producer` has registered that first."""


class AsyncSender:
    """Sends messages of an event loop through an ordinary producer and its thread.

    `send` never holds up the loop: while `buffer.memory` is used up, it waits for room as a task.
    """

    _client: Producer | ExclusiveProducer

    def __init__(self, home: HomeLoop) -> None:
        self._home = home
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop, once it has been compared."""
        self._left = _SENT_IN_A_ROW
        """How many more messages may be sent in a row."""
        self._is_closed = False
        self._undoing: set[threading.Thread] = set()
        """Undo what was done for callers that were cancelled meanwhile."""

    def _use(self, client: Producer | ExclusiveProducer) -> None:
        self._client = client
        self._send: Callable[..., SendResponse] = client.send
        self._room = RoomQueue(self._home, client._engine, client.settings["max.block.ms"])
        self._places = self._room.places

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._client.settings

    # Sending ------------------------------------------------------------------------------------------

    async def send(self, *messages: Message) -> SendResponse:
        """Queue messages; the response gets their outcome, and can be awaited: `await (await send(m))`.

        As `Producer.send`. While `buffer.memory` is used up it waits for room, at most `max.block.ms`, after
        the tasks that wait already; the loop goes on meanwhile. If it is cancelled, the message was not
        queued; of several messages, those before the first that had to wait were.
        """
        left = self._left
        # Every message comes this way: few steps, and the others only if one of these does not hold.
        if left and not self._places and get_running_loop() is self._loop and len(messages) == 1:
            self._left = left - 1
            try:
                return self._send(messages[0])
            except NeedsRoom:
                pass
        return await self._send_in_turn(messages)

    async def _send_in_turn(self, messages: tuple[Message, ...]) -> SendResponse:
        self._loop = self._home.enter()
        if len(messages) != 1:
            if not messages:
                return self._send()  # Raises what it raises.
            return GroupResponse(tuple([await self.send(message) for message in messages]))
        if not self._left:
            self._left = _SENT_IN_A_ROW
            await asyncio.sleep(0)
        attempt = partial(self._send, messages[0])
        if not self._places:
            try:
                return attempt()
            except NeedsRoom:
                pass
        return await self._room.send(attempt)

    async def publish(self, message: Message) -> RecordMetadata:
        """Send one message and wait for its outcome. Raises the error if it failed."""
        return await (await self.send(message))

    async def send_at(
        self,
        expected_offset: int,
        *messages: Message,
        last_leader_epoch: int = ANY_EPOCH,
        guards: Mapping[TopicPartition, int] = NO_GUARDS,
        append_id: bytes | UUID | None = None,
        topic_id: UUID = ZERO_UUID,
        unused_before: int | None = None,
    ) -> SendResponse:
        """As `Producer.send_at`. Waits for room as `send` does."""
        self._home.enter()
        attempt = partial(
            self._client.send_at,
            expected_offset,
            *messages,
            last_leader_epoch=last_leader_epoch,
            guards=guards,
            append_id=append_id,
            topic_id=topic_id,
            unused_before=unused_before,
        )
        if not self._places:
            try:
                return attempt()
            except NeedsRoom:
                pass
        return await self._room.send(attempt)

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> BulkResponse:
        """As `Producer.send_many`. A thread iterates over the columns and serializes them, so that the loop
        goes on. If it is cancelled, some of the messages may have been queued."""
        send = partial(
            self._client.send_many, topic, values, keys=keys, partition=partition, timestamp=timestamp
        )
        return await self._call(send)

    partitions_for = passed_on(ProducerFace.partitions_for)
    feedback = passed_on(ProducerFace.feedback)
    flush = awaited(ProducerFace.flush)

    async def _call(self, call: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """Make a call that waits, in a thread of its own."""
        return await in_thread(self._home, self._client._engine.lock, call, undo, self._undoing)

    # The end ------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int | None = None) -> None:
        """As `Producer.close`. If it is cancelled, the producer stops at once, and what is not acknowledged
        by then fails with ClosedError."""
        self._home.enter()
        close = partial(_close, self._client, timeout_ms)
        self._is_closed = True
        await self._call(close)

    async def __aenter__(self) -> Self:
        self._home.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        is_interrupted = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
        try:
            await self.close(_INTERRUPTED_MS if is_interrupted else None)
        except ClientError as undelivered:
            error.add_note(str(undelivered))  # What ended the block is raised, with this below it.

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and "_client" in self.__dict__:
            message = f"an {type(self).__name__} was not closed: use async with, or close()"
            warnings.warn(message, ResourceWarning, source=self, stacklevel=1)


def _close(producer: Producer | ExclusiveProducer, timeout_ms: int | None) -> None:
    try:
        producer.close(timeout_ms)
    except InterruptedCall:
        producer.close(0)
        raise
