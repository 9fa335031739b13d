"""The results of `send`: a future of one message, or of several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast_log.clients.arguments import A_FUNCTION, A_TIMEOUT, checked
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.clients.message import UNKNOWN_OFFSET, RecordMetadata
from holdfast_log.clients.sending.batch import Batch, Onward, whereabouts
from holdfast_log.clients.sending.producer_lock import RunUntil
from holdfast_log.clients.sending.waiting import wait_while_awake
from holdfast_log.protocol.send_fields import PlaceFields

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Event

Callback: TypeAlias = "Callable[[SendResponse], object]"


class SendResponse:
    """The outcome of a `send`, now or later: wait for it, ask, register a callback, or await it.

    For several messages sent in one call: done when all are, failed when one has failed, and otherwise the
    outcome of the last message.
    """

    __slots__ = ()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        raise NotImplementedError

    @property
    def error(self) -> Exception | None:
        """Why the message was not acknowledged. None if it was, or while the outcome is unknown."""
        raise NotImplementedError

    @property
    def topic(self) -> str:
        raise NotImplementedError

    @property
    def partition(self) -> int | None:
        """The partition, once one has been chosen."""
        raise NotImplementedError

    @property
    def offset(self) -> int | None:
        """The offset, once the message is acknowledged; -1 if the broker did not answer it (acks=0)."""
        raise NotImplementedError

    @property
    def timestamp(self) -> int | None:
        """The message's time in the log, in ms since the epoch, once the message is acknowledged."""
        raise NotImplementedError

    @property
    def is_repeat(self) -> bool:
        """Whether the log already had the message, from an earlier append with the same `append_id`. False
        while the outcome is unknown."""
        return False

    @checked(callback=A_FUNCTION)
    def on_completion(self, callback: Callback) -> None:
        """Call `callback(self)` when the outcome is known, or at once if it is.

        The producer's thread calls it and sends nothing meanwhile: it should be quick.
        """
        self._when_done(partial(self._tell, callback))

    def _tell(self, callback: Callback) -> None:
        _ = self.error  # The callback gets the response, and with it the error: that is seen from here on.
        callback(self)

    def _when_done(self, callback: Callable[[], object]) -> None:
        """Call back when the outcome is known, or at once if it is. The outcome is not looked at by that: who
        waited may have given up meanwhile."""
        raise NotImplementedError

    def _forget(self, callback: Callable[[], object]) -> None:
        """Do not call back any more: who waited has given up."""
        raise NotImplementedError

    @checked(timeout_ms=A_TIMEOUT)
    def result(self, timeout_ms: int | None = None) -> RecordMetadata:
        """Wait for the outcome and return where the message is.

        Raises the error if it failed. Raises RequestTimeoutError, which says what the producer waits for, if
        the outcome is unknown after `timeout_ms`: the producer goes on, and `flush`, `close` or another
        `result` reports the outcome. Time during which the process stood still does not count, so that a
        process that was stopped gets ProducerFencedError, and not this. While the outcome is unknown, raises
        InsideCallbackError in the producer's thread, and ForkedError in a fork. Runs the loop of a producer
        without a thread meanwhile.
        """
        if not self.done:
            self._check_may_wait("result()")
            if not self._wait(timeout_ms):
                raise RequestTimeoutError(
                    f"the outcome is not known after timeout_ms={timeout_ms}, and the producer goes on: "
                    f"{self._why_waiting()}"
                )
        return self._outcome()

    def _wait(self, timeout_ms: int | None) -> bool:
        """Wait until the outcome is known, at most `timeout_ms`; whether it is."""
        run_until = self._run_until()
        if run_until is not None:
            return run_until(lambda: self.done, timeout_ms)
        event = threading.Event()
        wake = event.set
        self._when_done(wake)
        is_done = False
        try:
            is_done = wait_while_awake(event, timeout_ms)
        finally:
            if not is_done:
                self._forget(wake)
        return is_done

    def _run_until(self) -> RunUntil | None:
        """Runs the loop of a producer without a thread; None if it has one."""
        raise NotImplementedError

    def _check_may_wait(self, call: str) -> None:
        """Raise InsideCallbackError or ForkedError if this thread would wait for ever."""
        raise NotImplementedError

    def _why_waiting(self) -> str:
        """What the producer knows about why there is no outcome yet, in words."""
        raise NotImplementedError

    def _outcome(self) -> RecordMetadata:
        if self.error is not None:
            raise self.error
        assert self.partition is not None and self.offset is not None and self.timestamp is not None
        return RecordMetadata(self.topic, self.partition, self.offset, self.timestamp)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done:
            self._check_may_wait("await")
            import asyncio  # Slow to import, seldom used.

            loop = asyncio.get_running_loop()
            event = asyncio.Event()
            wake = partial(_set_in, loop, event)
            self._when_done(wake)
            try:
                yield from event.wait().__await__()
            finally:
                if not event.is_set():
                    self._forget(wake)
        return self._outcome()


def _set_in(loop: AbstractEventLoop, event: Event) -> None:
    """Set an event of a loop, from the producer's thread."""
    with suppress(RuntimeError):  # The loop was closed meanwhile: nobody awaits the outcome any more.
        loop.call_soon_threadsafe(event.set)


class RecordResponse(PlaceFields, SendResponse):
    """The outcome of one message: that of its batch, at the message's index."""

    __slots__ = ()

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def as_span(self) -> SpanResponse:
        """The same outcome, as that of a span of one message."""
        return SpanResponse(self._batch, self._index, 1)

    def _place(self) -> tuple[Batch, int]:
        """The batch that the message is in now, and its index there."""
        batch, index = self._batch, self._index
        if batch.replacements:
            ((batch, index, _),) = whereabouts(batch, index, 1)
        return batch, index

    @property
    def done(self) -> bool:
        return self._place()[0].is_done

    @property
    def error(self) -> Exception | None:
        batch, index = self._place()
        if batch.loss is not None:
            batch.look_at(index)
        return batch.error

    def _check_may_wait(self, call: str) -> None:
        self._batch.check_may_wait(call)

    def _run_until(self) -> RunUntil | None:
        return self._batch.run_until

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int | None:
        partition = self._place()[0].partition
        return None if partition < 0 else partition

    @property
    def offset(self) -> int | None:
        batch, index = self._place()
        if not batch.is_done or batch.error is not None:
            return None
        return UNKNOWN_OFFSET if batch.base_offset < 0 else batch.base_offset + index

    @property
    def timestamp(self) -> int | None:
        batch, index = self._place()
        if not batch.is_done or batch.error is not None:
            return None
        return batch.timestamps[index] if batch.log_append_time < 0 else batch.log_append_time

    @property
    def is_repeat(self) -> bool:
        return self._place()[0].is_repeat

    def _why_waiting(self) -> str:
        return self._place()[0].why_waiting()

    def _when_done(self, callback: Callable[[], object]) -> None:
        batch = self._place()[0]
        while not batch.when_done(Onward(self._ask_again, callback)):
            batch = self._place()[0]  # The message moved in between.

    def _forget(self, callback: Callable[[], object]) -> None:
        self._place()[0].forget(callback)

    def _ask_again(self, callback: Callable[[], object]) -> None:
        if self._place()[0].is_done:
            callback()
        else:
            self._when_done(callback)


class SpanResponse(SendResponse):
    """The outcome of `count` messages that one `send_many` put into one batch.

    Done when all are, failed when one has failed, and otherwise the outcome of the last. `offsets` has all.
    """

    __slots__ = ("_batch", "_first", "count")

    def __init__(self, batch: Batch, first: int, count: int) -> None:
        self._batch = batch
        self._first = first
        self.count = count

    def _places(self) -> list[tuple[Batch, int, int]]:
        return list(whereabouts(self._batch, self._first, self.count))

    def _last(self) -> RecordResponse:
        return RecordResponse(self._batch, self._first + self.count - 1)

    @property
    def done(self) -> bool:
        return all(batch.is_done for batch, _, _ in self._places())

    @property
    def error(self) -> Exception | None:
        places = self._places()
        _look_at(places)
        return next((batch.error for batch, _, _ in places if batch.error is not None), None)

    def _check_may_wait(self, call: str) -> None:
        self._batch.check_may_wait(call)

    def _run_until(self) -> RunUntil | None:
        return self._batch.run_until

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int | None:
        return self._last().partition

    @property
    def offset(self) -> int | None:
        return self._last().offset

    @property
    def offsets(self) -> list[range]:
        """The offsets of the acknowledged messages, in order, as ranges without gaps; empty if the broker did
        not answer them (acks=0)."""
        return [
            range(batch.base_offset + first, batch.base_offset + first + count)
            for batch, first, count in self._places()
            if batch.is_done and batch.error is None and batch.base_offset >= 0
        ]

    @property
    def failed(self) -> int:
        """How many of the messages have failed so far."""
        places = self._places()
        _look_at(places)
        return sum(count for batch, _, count in places if batch.error is not None)

    @property
    def timestamp(self) -> int | None:
        return self._last().timestamp

    def _why_waiting(self) -> str:
        waiting = self._first_waiting()
        return "" if waiting is None else waiting.why_waiting()

    def _first_waiting(self) -> Batch | None:
        return next((batch for batch, _, _ in self._places() if not batch.is_done), None)

    def _when_done(self, callback: Callable[[], object]) -> None:
        while True:
            waiting = self._first_waiting()
            if waiting is None:
                callback()
                return
            if waiting.when_done(Onward(self._when_done, callback)):
                return

    def _forget(self, callback: Callable[[], object]) -> None:
        for batch, _, _ in self._places():
            batch.forget(callback)


def _look_at(places: list[tuple[Batch, int, int]]) -> None:
    for batch, first, count in places:
        if batch.loss is not None:
            batch.look_at(first, count)


class GroupResponse(SendResponse):
    """The outcome of several messages sent together; that of each is in `responses`."""

    __slots__ = ("responses",)

    def __init__(self, responses: tuple[SendResponse, ...]) -> None:
        self.responses = responses

    @property
    def done(self) -> bool:
        return all(response.done for response in self.responses)

    @property
    def error(self) -> Exception | None:
        # All are asked, because all count as looked at.
        return next((error for error in [each.error for each in self.responses] if error is not None), None)

    def _check_may_wait(self, call: str) -> None:
        self.responses[0]._check_may_wait(call)

    def _run_until(self) -> RunUntil | None:
        return self.responses[0]._run_until()

    @property
    def topic(self) -> str:
        return self.responses[-1].topic

    @property
    def partition(self) -> int | None:
        return self.responses[-1].partition

    @property
    def offset(self) -> int | None:
        return self.responses[-1].offset

    @property
    def timestamp(self) -> int | None:
        return self.responses[-1].timestamp

    @property
    def is_repeat(self) -> bool:
        return self.responses[-1].is_repeat

    def _why_waiting(self) -> str:
        return next((response._why_waiting() for response in self.responses if not response.done), "")

    def _when_done(self, callback: Callable[[], object]) -> None:
        self._await_from(0, callback)

    def _await_from(self, index: int, callback: Callable[[], object]) -> None:
        # One after the other: the last may be done first, and counting would need a lock.
        for position in range(index, len(self.responses)):
            response = self.responses[position]
            if not response.done:
                response._when_done(Onward(partial(self._await_from, position + 1), callback))
                return
        callback()

    def _forget(self, callback: Callable[[], object]) -> None:
        for response in self.responses:
            response._forget(callback)


class BulkResponse(GroupResponse):
    """The outcome of one `send_many`; `responses` has that of each batch, or part of one."""

    __slots__ = ()

    responses: tuple[SpanResponse, ...]

    @property
    def offsets(self) -> list[range]:
        """The offsets of the acknowledged messages, as `SpanResponse.offsets` has them."""
        return [offsets for span in self.responses for offsets in span.offsets]

    @property
    def failed(self) -> int:
        """How many of the messages have failed so far."""
        return sum(span.failed for span in self.responses)
