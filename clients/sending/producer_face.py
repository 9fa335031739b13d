"""The methods that every producer only passes on to its engine."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast_log.clients.arguments import A_NAME, A_TIMEOUT, A_WAIT, checked
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.sending.engine import SendingEngine

if TYPE_CHECKING:
    from holdfast_log.clients.feedback.snapshots import ProducerFeedback

_INTERRUPTED_MS = 1_000
"""How long the end of a block waits for what is queued, after Ctrl-C."""


class ProducerFace:
    """Holds a producer's engine. As a context manager, closes the producer at the end of the block."""

    def __init__(self, engine: SendingEngine) -> None:
        self._engine = engine

    @checked(timeout_ms=A_TIMEOUT)
    def flush(self, timeout_ms: int | None = None) -> bool:
        """Send what is queued without lingering, and wait until every message sent so far has its outcome.

        False if that takes longer than `timeout_ms`; a warning through `logging` then says what the oldest
        message waits for, at most every 30 s. Raises UndeliveredError for messages that failed and whose
        response nobody has looked at, and InsideCallbackError in a callback.
        """
        return self._engine.flush(timeout_ms)

    @checked(topic=A_NAME)
    def partitions_for(self, topic: str) -> int | None:
        """The number of all partitions of a topic; None while this producer does not know."""
        return self._engine.partitions_for(topic)

    def feedback(self) -> ProducerFeedback:
        """Counts of what was sent and its outcomes, and of requests. May be called by any thread."""
        return self._engine.feedback()

    @checked(max_wait_ms=A_WAIT)
    def turn(self, max_wait_ms: int) -> None:
        """One turn of the loop, for a producer without a thread; waits at most `max_wait_ms`."""
        self._engine.turn(max_wait_ms)

    @checked(timeout_ms=A_TIMEOUT)
    def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, for at most `timeout_ms`, then stop.

        Messages not acknowledged by then fail with ClosedError. Raises UndeliveredError as `flush` does. May
        be called again. In a callback it stops without sending if `timeout_ms` is 0, and otherwise raises
        InsideCallbackError.
        """
        self._engine.close(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(_INTERRUPTED_MS if kind is KeyboardInterrupt else None)
        except ClientError as undelivered:
            error.add_note(str(undelivered))  # What ended the block is raised, with this below it.
