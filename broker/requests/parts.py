"""Requests of many rows, handled a few rows at a time.

A handler whose rows do not depend on one another says where they are (`Handler.parts`). A request of more
than `PART_ROWS` of them is then handled as if it were many requests, a few in each turn of the reactor, and
their answers make one. The work of a turn stays the same however long a request is, and the rows of the
answer are priced and encoded as all long answers are (`LongAnswers`).
"""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, groupby, islice
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from holdfast_log.broker.requests.answers import AnswerAbandoned, AnswerRows, LongAnswer, LongAnswers
from holdfast_log.broker.requests.handler import Handler, InnerContext, RequestContext, RowPaths
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError

PART_ROWS = 25
"""Maximum number of rows handled at once. The dearest take 50 µs each: an offset that is committed."""

_COUNTED_MAX = 100
"""No request of more rows is handled as a whole (`Handler.whole_rows_max`)."""

PART_BYTES = 4 * PART_ROWS
"""Requests with fewer bytes are not looked at: a row has as many as a number."""

PART_PRICE = PART_ROWS * 128
"""The price of a part in a turn: far more than its bytes, since its rows are handled as well as encoded. Two
are handled in a turn at most, and the second only if the first was quick (`Rotation.is_over`)."""

_AnyHandler: TypeAlias = "Handler[Any, Any]"
_Place: TypeAlias = tuple[Any, ...]
"""A row, after the rows that it is nested in."""


def long_rows(handler: _AnyHandler, request: Request[Any]) -> RowPaths | None:
    """Where the rows of the request are if it has so many that it is handled in parts, or answered in turns;
    None if it is handled and answered at once."""
    for paths in handler.parts:
        outermost, *inner = paths.asked
        rows = getattr(request, outermost)
        if rows:
            if len(rows) == 1 and len(inner) == 1 and len(getattr(rows[0], inner[0]) or ()) <= PART_ROWS:
                return None  # As most requests are.
            is_long = _count(rows, tuple(inner)) > max(PART_ROWS, handler.whole_rows_max)
            return paths if is_long else None
    return None


def _count(rows: Sequence[Any], path: tuple[str, ...]) -> int:
    """Number of rows at the end of the path, as `_places` returns them, or one above `_COUNTED_MAX`."""
    if not path:
        return len(rows)
    name, rest = path[0], path[1:]
    count = 0
    for row in rows:
        inner = getattr(row, name)
        count += _count(inner, rest) if inner else 1
        if count > _COUNTED_MAX:
            break
    return count


@dataclass(frozen=True, slots=True)
class PartedRequests:
    """Handles the requests of many rows."""

    answers: LongAnswers

    async def answer(
        self, handler: _AnyHandler, context: RequestContext, request: Request[Any], paths: RowPaths
    ) -> Response | None:
        """The answer to all parts of the request, or to the whole if it must not be divided; None if they
        want none. Raises AnswerAbandoned once the client has gone."""
        refusal: BrokerError | None = None
        try:
            if not await self._may_divide(handler, context, request):
                return await self._answer_whole(handler, context, request, paths)
        except _Refused as error:
            refusal = error.why
        try:
            return await self._answer(handler, context, request, paths, refusal)
        except _TooLong as error:
            return await self._answer(handler, context, request, paths, error.why)

    async def answer_named(
        self, handler: _AnyHandler, context: RequestContext, named: Deferred[Request[Any]]
    ) -> Response | None:
        """The answer to a request for everything, as soon as it is `named`."""
        request = await named
        paths = long_rows(handler, request)
        if paths is not None:
            return await self.answer(handler, context, request, paths)
        with self.answers.begin(context, request.api.response) as answer:
            return await _begin(answer.context, handler, request, None).outcome(answer, handler)

    async def _may_divide(self, handler: _AnyHandler, context: RequestContext, request: Request[Any]) -> bool:
        """Whether the request may be divided, judged in turns. Raises `_Refused`."""
        steps = handler.divisible_steps(context, request)
        with self.answers.begin(context, request.api.response) as answer:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return bool(end.value)
                except BrokerError as error:
                    raise _Refused(error.with_traceback(None)) from None
                await answer.turn(PART_PRICE)

    async def _answer_whole(
        self, handler: _AnyHandler, context: RequestContext, request: Request[Any], paths: RowPaths
    ) -> Response | None:
        """The answer to a request that is handled in one turn. It is made in others."""
        with self.answers.begin(context, request.api.response) as answer:
            await answer.other_turn()
            response = await _begin(answer.context, handler, request, None).outcome(answer, handler)
            if response is None:
                return None
            outermost, *inner = paths.answered
            rows = _JoinedRows(answer, tuple(inner))
            for part in _some_rows(getattr(response, outermost), tuple(inner)):
                await answer.turn(PART_PRICE)
                for row in part:
                    rows.add(row)
            setattr(response, outermost, rows.finish())
            return response

    async def _answer(
        self,
        handler: _AnyHandler,
        context: RequestContext,
        request: Request[Any],
        paths: RowPaths,
        refusal: BrokerError | None,
    ) -> Response | None:
        """The answer; with a `refusal`, that of a request which is refused with it."""
        with self.answers.begin(context, request.api.response) as answer:
            joined: Response | None = None
            rows = _JoinedRows(answer, paths.answered[1:])
            begun: deque[_Begun] = deque()
            ahead = sys.maxsize if handler.parts_overlap else 0

            async def finish_first() -> None:
                nonlocal joined
                response = await begun.popleft().outcome(answer, handler)
                if response is None:
                    return
                joined = _join(joined, response)
                for row in getattr(response, paths.answered[0]):
                    rows.add(row)

            for part in _requests(request, paths.asked):
                await answer.turn(PART_PRICE)
                begun.append(_begin(answer.context, handler, part, refusal))
                while begun and (len(begun) > ahead or begun[0].is_done):
                    await finish_first()
                if refusal is None and answer.made_bytes > self.answers.limits.answer_bytes_max:
                    raise _TooLong(answer.too_long)
            while begun:
                await finish_first()
            if joined is not None:
                setattr(joined, paths.answered[0], rows.finish())
            return joined


class _TooLong(Exception):
    """Parts of the request are answered, and the whole answer would be too long."""

    def __init__(self, why: BrokerError) -> None:
        self.why = why


class _Refused(Exception):
    """All rows of the request are refused."""

    def __init__(self, why: BrokerError) -> None:
        self.why = why


@dataclass(frozen=True, slots=True)
class _Begun:
    """A part that a handler has been given. `answer` is None if the part wants no answer."""

    context: RequestContext
    part: Request[Any]
    answer: Response | Deferred[Any] | None

    @property
    def is_done(self) -> bool:
        return not isinstance(self.answer, Deferred) or self.answer.called

    async def outcome(self, whole: LongAnswer, handler: _AnyHandler) -> Response | None:
        """The answer to the part, as soon as there is one."""
        if not isinstance(self.answer, Deferred):
            return self.answer
        try:
            response = await whole.outcome(self.answer)
        except BrokerError as error:
            return _refused(self.context, handler, self.part, error)
        assert response is None or isinstance(response, Response), f"{handler} has answered {response}"
        return response


def _begin(
    whole: RequestContext, handler: _AnyHandler, part: Request[Any], refusal: BrokerError | None
) -> _Begun:
    """Have the part handled, or refused."""
    context = _PartContext(whole)
    if refusal is not None:
        # It is not raised: an error that is raised for each part keeps the frames of all of them.
        return _Begun(context, part, _refused(context, handler, part, refusal))
    try:
        given = handler.handle(context, part)
    except BrokerError as error:
        return _Begun(context, part, _refused(context, handler, part, error))
    return _Begun(context, part, context.answered if given is None else given)


def _refused(
    context: RequestContext, handler: _AnyHandler, part: Request[Any], error: BrokerError
) -> Response:
    refused: Response | None = handler.failed(context, part, error)
    if refused is None:
        raise error
    return refused


class _PartContext(InnerContext):
    """The context of a part of a request. Its answer is one of those that make the request's."""

    __slots__ = ("answered",)

    def __init__(self, whole: RequestContext) -> None:
        super().__init__(whole)
        self.answered: Deferred[Any] = Deferred()

    def answer(self, response: Response) -> None:
        self.answered.callback(response)

    def answer_nothing(self) -> None:
        self.answered.callback(None)

    def close(self, reason: str) -> None:
        super().close(reason)
        self.answered.errback(AnswerAbandoned())


def _join(joined: Response | None, response: Response) -> Response:
    """The answer so far and that of the next part: an error of any part is that of the whole."""
    if joined is None:
        return response
    if getattr(response, "error_code", 0) and not getattr(joined, "error_code", 0):
        return response
    return joined


# -- requests ------------------------------------------------------------------------------------------------


def _requests(request: Request[Any], path: tuple[str, ...]) -> Iterator[Request[Any]]:
    """The request, as requests of `PART_ROWS` rows each."""
    for part in _some_rows(getattr(request, path[0]), path[1:]):
        yield _with(request, path[0], part)


def _some_rows(rows: Sequence[Any], path: tuple[str, ...]) -> Iterator[list[Any]]:
    """The rows, with at most `PART_ROWS` of those at the end of the path at a time."""
    places = _places(rows, path)
    while part := list(islice(places, PART_ROWS)):
        yield _nested(part, path)


def _places(rows: Sequence[Any], path: tuple[str, ...]) -> Iterator[_Place]:
    """All rows at the end of the path, in order. A row that has none in it counts as one."""
    if not path:
        return ((row,) for row in rows)
    return chain.from_iterable(_places_in(row, path) for row in rows)


def _places_in(row: Any, path: tuple[str, ...]) -> Iterator[_Place]:
    inner = getattr(row, path[0])
    if not inner:
        return iter(((row,),))
    return ((row, *rest) for rest in _places(inner, path[1:]))


def _nested(places: Sequence[_Place], path: tuple[str, ...]) -> list[Any]:
    """Rows with exactly those of `places` in them."""
    if not path:
        return [place[0] for place in places]
    rows = []
    for _, group in groupby(places, key=lambda place: id(place[0])):
        same = list(group)
        row = same[0][0]
        has_inner = len(same[0]) > 1
        rows.append(
            _with(row, path[0], _nested([place[1:] for place in same], path[1:])) if has_inner else row
        )
    return rows


def _with(value: Any, name: str, rows: list[Any]) -> Any:
    changed = copy.copy(value)
    setattr(changed, name, rows)
    return changed


# -- answers -------------------------------------------------------------------------------------------------


class _JoinedRows:
    """Rows of an answer. Successive ones that differ only in the rows in them become one."""

    def __init__(self, answer: LongAnswer, path: tuple[str, ...]) -> None:
        self._answer = answer
        self._path = path
        self._rows: AnswerRows[Any] = answer.rows(object)
        self._last: Any = None
        self._inner: _JoinedRows | None = None

    def add(self, row: Any) -> None:
        if not self._path:
            self._rows.add(row)
            return
        name = self._path[0]
        if self._inner is None or not _are_same(self._last, row, name):
            self._end_last()
            self._last = row
            self._inner = _JoinedRows(self._answer, self._path[1:])
        for each in getattr(row, name) or ():
            self._inner.add(each)

    def finish(self) -> list[Any]:
        self._end_last()
        return self._rows.finish()

    def _end_last(self) -> None:
        if self._inner is not None:
            setattr(self._last, self._path[0], self._inner.finish())
            self._rows.add(self._last)
            self._inner = None


def _are_same(left: Any, right: Any, except_for: str) -> bool:
    return all(
        getattr(left, each.name) == getattr(right, each.name)
        for each in fields(left)
        if each.name != except_for
    )
