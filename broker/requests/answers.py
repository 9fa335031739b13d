"""Long answers: their rows are priced before they are made, and made in turns of the reactor.

A request of a few bytes may ask for an answer of megabytes. Every handler that lists things makes its rows
through `LongAnswers`, which bounds the work of one turn, the bytes of one answer, and those of all
answers together that are being made or that no client has read yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar, cast

from twisted.internet.defer import Deferred, gatherResults

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.rows import EncodedRows

R = TypeVar("R")
T = TypeVar("T")

TURN_BYTES = 8 * 1024
"""Bytes of rows made before other clients are served, in about a millisecond. The dearest rows take 5 µs for
24 bytes."""

ROW_BYTES = 64
"""The price of a row besides its strings and its numbers beyond a few."""

ALTERED_TOGETHER = 10
"""Maximum number of things that are altered at a time: of each the order and its answer take a quarter of a
millisecond."""

_ALTERED_BYTES = 500
"""The price of a row that is altered."""

ACTIVE_MAX = 4
"""Maximum number of long answers being made at once, each for another connection. Others wait: they would be
finished no sooner, and each needs memory for what it has of its rows."""

_KEPT_BYTES = 64 * 1024
"""A connection with fewer unsent bytes is not counted: the system's own buffer holds more."""

_STALLED_MS = 1000
"""Time in ms without a byte sent after which a client counts as not reading."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Maximum bytes of one listing answer, and of those of all connections together."""

    answer_bytes_max: Annotated[int, "answer.max.bytes"] = 16 * 1024 * 1024
    queued_bytes_max: Annotated[int, "queued.max.answer.bytes"] = 64 * 1024 * 1024


class AnswerAbandoned(BrokerError):
    """The client has gone: nobody waits for the rest of the answer."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, "the connection was closed")


class LongAnswers:
    """Makes the long answers of a broker, a few rows of one of them in each turn of the reactor: as many as
    fit into a slice of the `rotation`, which they share with all else that can wait.

    Short answers are made at once, as long as those made since the last turn are short together. An answer
    that waits for a turn holds its connection: what an answer needs before its first row is kept for one
    request of each connection, not for all that it has sent ahead.
    """

    def __init__(
        self, clock: Clock, limits: AnswerLimits | None = None, rotation: Rotation | None = None
    ) -> None:
        self.limits = limits or AnswerLimits()
        self._clock = clock
        self._rotation = rotation or Rotation(clock)
        self._spent_bytes = 0  # by answers made at once, since the last turn
        self._active: deque[LongAnswer] = deque()
        self._waiting: dict[int, deque[LongAnswer]] = {}  # by connection, those served last at the end
        self._has_turn = False
        self._made_bytes = 0  # of answers that are not finished
        self._readers: dict[int, ServerConnection] = {}  # connections that were sent a long answer

    def begin(self, context: RequestContext, response: type[Response]) -> LongAnswer:
        """The answer to this request. Use it in a `with` block, which ends before the response is sent."""
        return LongAnswer(self, context, response)

    async def listed(
        self,
        context: RequestContext,
        response: type[Response],
        rows: Iterable[R],
        row_bytes: int = ROW_BYTES,
        is_shown: Callable[[R], bool] | None = None,
    ) -> list[R]:
        """The value of the only array in a response: `rows`, which are made in turns as they are taken; of
        all rows those that `is_shown` allows.

        Raises BrokerError POLICY_VIOLATION if there are too many, and AnswerAbandoned once the client has
        gone."""
        with self.begin(context, response) as answer:
            listed: AnswerRows[R] = AnswerRows(answer)
            answer.add(listed)
            for row in rows:
                if is_shown is not None and not is_shown(row):
                    await answer.turn(0)
                    continue
                if not await answer.afford(row_bytes):
                    raise answer.too_long
                listed.add(row)
            return listed.finish()

    @property
    def queued_bytes(self) -> int:
        """Bytes of long answers that are being made, or that their clients have not read."""
        return self._made_bytes + sum(each.buffered_bytes for each in self._readers.values())

    @property
    def waiting(self) -> int:
        """Number of answers that are being made or wait for that."""
        return len(self._active) + sum(map(len, self._waiting.values()))

    # Called by an answer

    def may_go_on(self, price: int) -> bool:
        """Whether rows of this price can be made at once; they then count as made."""
        if self._spent_bytes and (self._spent_bytes + price > TURN_BYTES or self._rotation.is_over):
            return False
        self._spent_bytes += price
        return True

    def enqueue(self, answer: LongAnswer) -> None:
        """Give the answer a turn later."""
        if answer in self._active:
            return
        self._waiting.setdefault(answer.connection_id, deque()).append(answer)
        self._schedule()

    def made(self, count: int) -> None:
        """Count bytes of rows, which are kept until the answer is finished."""
        self._made_bytes += count
        self._make_room()

    def suspend(self, answer: LongAnswer) -> None:
        """Give the answer no turn until it asks for one: it waits for something else."""
        if answer in self._active:
            self._active.remove(answer)

    def finished(self, answer: LongAnswer) -> None:
        self._made_bytes -= answer.made_bytes
        answer.release()
        connection = answer.context.connection
        if connection is not None and answer.made_bytes > _KEPT_BYTES:
            self._readers[connection.id] = connection
        self.suspend(answer)

    # Internal

    def _schedule(self) -> None:
        if not self._has_turn and (self._active or self._waiting):
            self._has_turn = True
            self._rotation.call(self._take_turn)

    def _take_turn(self) -> None:
        """Let one answer make its next rows. The others follow in later turns, in rotation."""
        self._has_turn = False
        self._spent_bytes = 0
        self._activate()
        if self._active:
            answer = self._active[0]
            self._active.rotate(-1)
            answer.go_on()
        self._schedule()

    def _activate(self) -> None:
        held = {each.connection_id for each in self._active}
        for connection_id in list(self._waiting):
            if len(self._active) >= ACTIVE_MAX:
                return
            if connection_id in held:
                continue
            line = self._waiting.pop(connection_id)
            self._active.appendleft(line.popleft())
            if line:
                self._waiting[connection_id] = line

    def _make_room(self) -> None:
        """Close connections whose clients do not read, as long as all answers together are over the limit."""
        if not self._readers:
            return
        self._readers = {
            id_: each
            for id_, each in self._readers.items()
            if not each.is_closed and each.buffered_bytes > _KEPT_BYTES
        }
        now_ms = int(self._clock.seconds() * 1000)
        while self._readers and self.queued_bytes > self.limits.queued_bytes_max:
            worst = max(
                self._readers.values(),
                key=lambda each: (now_ms - each.last_activity_ms >= _STALLED_MS, each.buffered_bytes),
            )
            del self._readers[worst.id]
            limit = f"queued.max.answer.bytes={self.limits.queued_bytes_max}"
            reason = f"it does not read {worst.buffered_bytes} bytes of answers, and all are over {limit}"
            worst.refuse("clients that do not read their answers", reason)


class LongAnswer:
    """One answer, from its first row to its last."""

    __slots__ = (
        "_answers", "_budget_bytes", "_is_holding", "_open", "_turn", "connection_id", "context",
        "is_flexible", "made_bytes",
    )  # fmt: skip

    def __init__(self, answers: LongAnswers, context: RequestContext, response: type[Response]) -> None:
        self._answers = answers
        self.context = context
        self.connection_id = -1 if context.connection is None else context.connection.id
        self.made_bytes = 0
        self._budget_bytes = answers.limits.answer_bytes_max
        self.is_flexible = context.version in response.flexible_versions
        self._open: list[AnswerRows[Any]] = []
        self._turn: Deferred[None] | None = None
        self._is_holding = False

    def __enter__(self) -> LongAnswer:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()
        self._answers.finished(self)

    def rows(self, _: type[R]) -> AnswerRows[R]:
        """Rows of an array in the response. Arrays within one another are finished from the innermost."""
        rows: AnswerRows[R] = AnswerRows(self)
        self.add(rows)
        return rows

    def add(self, rows: AnswerRows[Any]) -> None:
        """Encode these rows as well whenever the answer pauses."""
        self._open.append(rows)

    async def afford(self, price: int) -> bool:
        """Wait until a row of `price` bytes may be made. False: the answer would be too long, and a row with
        the error `too_long` takes its place. Raises AnswerAbandoned once the client has gone."""
        is_affordable = self.reserve(price)
        await self.turn(price if is_affordable else 0)
        return is_affordable

    def reserve(self, price: int) -> bool:
        """Count a row of `price` bytes towards the limit of one answer. False: it would be over the limit."""
        price += ROW_BYTES
        is_affordable = price <= self._budget_bytes
        if is_affordable:
            self._budget_bytes -= price
        return is_affordable

    async def turn(self, price: int, *, even_if_gone: bool = False) -> None:
        """Wait until rows of `price` bytes may be made. Raises AnswerAbandoned once the client has gone, or
        goes on `even_if_gone`: what was changed is to be logged, whether or not anybody reads the answer."""
        price += ROW_BYTES
        while not self._answers.may_go_on(price):
            self._seal()
            await self._pause()
            if self.context.is_closed and not even_if_gone:
                raise AnswerAbandoned

    async def other_turn(self) -> None:
        """Wait for another turn, since what was done in this one is a turn's work: decoding the request, for
        one. Raises AnswerAbandoned once the client has gone."""
        self._seal()
        await self._pause()
        if self.context.is_closed:
            raise AnswerAbandoned
        self._answers.may_go_on(TURN_BYTES)  # What is done now is a turn's work too.

    async def altered(self, row: type[R], wanted: Sequence[T], alter: Callable[[T], Deferred[R]]) -> list[R]:
        """The rows that tell how `wanted` was altered, each by `alter`: some at a time, since each is read
        from ZooKeeper and written to it. Raises AnswerAbandoned once the client has gone; then the rest is
        not altered."""
        rows = self.rows(row)
        for start in range(0, len(wanted), ALTERED_TOGETHER):
            some = wanted[start : start + ALTERED_TOGETHER]
            await self.turn(len(some) * _ALTERED_BYTES)
            for outcome in await self.outcome(gatherResults(map(alter, some))):
                rows.add(outcome)
        return rows.finish()

    async def outcome(self, waiting: Deferred[T]) -> T:
        """Wait for something else than the next turn."""
        if not waiting.called:
            self._answers.suspend(self)
        return await waiting

    @property
    def too_long(self) -> BrokerError:
        """Why a row is missing."""
        limit = self._answers.limits.answer_bytes_max
        return BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"the answer would have more than answer.max.bytes={limit}: ask for fewer things in one request",
        )

    def go_on(self) -> None:
        """Make the next rows."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.callback(None)

    def release(self) -> None:
        """Let the next request of the connection be handled."""
        connection = self.context.connection
        if self._is_holding and connection is not None:
            self._is_holding = False
            connection.go_on()

    def _pause(self) -> Deferred[None]:
        connection = self.context.connection
        if connection is not None and not self._is_holding:
            self._is_holding = True
            connection.hold()
        self._turn = Deferred()
        self._answers.enqueue(self)
        return self._turn

    def _seal(self) -> None:
        """Keep the bytes of the rows so far instead of the rows, innermost arrays first."""
        if self.context.connection is None:
            return  # This broker asks itself: nothing is encoded.
        count = sum(rows.seal(self.context.version, flexible=self.is_flexible) for rows in self._open)
        self.made_bytes += count
        self._answers.made(count)

    def finish(self, rows: AnswerRows[Any]) -> None:
        self._open.remove(rows)


class AnswerRows(Generic[R]):
    """Rows of one array: objects, or bytes as soon as the answer has paused."""

    __slots__ = ("_answer", "_encoded", "_plain")

    def __init__(self, answer: LongAnswer) -> None:
        self._answer = answer
        self._plain: list[R] = []
        self._encoded: EncodedRows | None = None

    def add(self, row: R) -> None:
        self._plain.append(row)

    def seal(self, version: int, *, flexible: bool) -> int:
        """Encode the rows so far. Returns the number of bytes."""
        if not self._plain:
            return 0
        encoded = self._encoded = self._encoded or EncodedRows()
        count = encoded.add(self._plain, version, flexible=flexible)
        self._plain = []
        return count

    def finish(self) -> list[R]:
        """The value of the response's field. If it is not a list, it can only be encoded."""
        answer = self._answer
        answer.finish(self)
        if self._encoded is None:
            return self._plain
        self.seal(answer.context.version, flexible=answer.is_flexible)
        return cast("list[R]", self._encoded)
